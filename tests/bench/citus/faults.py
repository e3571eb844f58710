"""The fault campaign on Citus: runs whose cluster is disturbed end, and come to the same bits.

    python -m tests.bench.citus.faults --faults 20 --seed 0

A coordinator and two nodes, each on a host of its own, train one run after the other; faults come
at shares of its hops that are drawn from the seed. Every run must lose no hop, double none, and
come to the hops and states of an undisturbed one. A node that was added stays.
"""

from __future__ import annotations

import argparse
import random
import sys
import textwrap
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg

import mmdb
from tests.bench.citus.run import Work, create_run, make_dataset
from tests.bench.citus.subject import Subject, citus_subject
from tests.bench.faults.checks import check
from tests.bench.faults.driver import Driver, Stuck
from tests.citus_cluster import has_citus
from tests.cluster import ClusterError

#: Hops of some tenths of a second, states of 1.2 MB.
WORK = Work(
    rows=24_000,
    width=64,
    hidden=(512, 256),
    rates=(0.05, 0.02, 0.01, 0.005),
    partitions=4,
    epochs=4,
)
WORKERS = 2
#: Seconds after which a run is stuck, or so many times what an undisturbed one takes.
TIMEOUT_S, TIMEOUT_RUNS = 180.0, 15
REFERENCE = "undisturbed"
#: How often each kind comes among twenty; the rest of another number is drawn.
MIX = {
    "node": 4,
    "coordinator": 3,
    "cut": 3,
    "delay": 2,
    "loss": 2,
    "disk": 2,
    "standby": 2,
    "added": 2,
}
FAULTS_PER_RUN = 2
#: While these last, a run may come to its end: they are a run's last.
LETS_GO_ON = ("delay", "loss", "added")
EARLY, LATE = (0.05, 0.3), (0.05, 0.7)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done to one run: faults, each when a share of its hops is done."""

    faults: tuple[tuple[float, str], ...]
    seed: int


@dataclass(slots=True, kw_only=True)
class Result:
    """What became of one run."""

    plan: Plan
    seconds: float = 0.0
    struck: list[str] = field(default_factory=list)
    starts: int = 0  # of its driver
    complaints: list[str] = field(default_factory=list)
    error: str = ""


def plans(faults: int, seed: int, kinds: Sequence[str] = tuple(MIX)) -> list[Plan]:
    """Return a plan for each run: two faults, which are drawn from the mix."""
    source = random.Random(seed)
    pool = [kind for kind in kinds for _ in range(MIX[kind])]
    chosen: list[str] = []
    while len(chosen) < faults:
        source.shuffle(pool)
        chosen += pool[: faults - len(chosen)]
    made = []
    for start in range(0, len(chosen), FAULTS_PER_RUN):
        made.append(_plan(chosen[start : start + FAULTS_PER_RUN], LATE, source))
    return made


def _plan(kinds: Sequence[str], shares: tuple[float, float], source: random.Random) -> Plan:
    ordered = sorted(kinds, key=lambda kind: kind in LETS_GO_ON)
    drawn = sorted(source.uniform(*shares) for _ in ordered)
    return Plan(tuple(zip(drawn, ordered, strict=True)), source.randrange(2**32))


def missed(result: Result) -> list[Plan]:
    """Return plans for the faults that came too late for a run, to strike others early."""
    source = random.Random(result.plan.seed)
    late = result.plan.faults[len(result.struck) :]
    return [_plan([kind], EARLY, source) for _, kind in late] if not result.error else []


class Campaign:
    """A cluster with an undisturbed run, and disturbed ones beside it."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._count = 0
        with subject.open() as db:
            make_dataset(db, WORK)
            summary = create_run(db, REFERENCE, WORK).train(workers=WORKERS)
        self._hops, self.seconds = summary.hops, summary.seconds

    def run(self, plan: Plan) -> Result:
        """Train a run while its plan is carried out, and check what it came to."""
        subject, result, started = self._subject, Result(plan=plan), time.monotonic()
        self._count += 1
        name = f"run-{self._count}"
        try:
            with subject.open() as db:
                create_run(db, name, WORK)
            for _, kind in plan.faults:
                subject.prepare(kind)
            with Driver(subject.url, name, WORKERS) as driver:
                try:
                    self._disturb(name, plan, driver, result.struck)
                    driver.wait(max(TIMEOUT_S, TIMEOUT_RUNS * self.seconds))
                finally:
                    result.starts, result.complaints = driver.starts, driver.complaints
            with subject.open() as db:
                check(db, name, REFERENCE)
        except (AssertionError, Stuck, ClusterError, mmdb.MmdbError, psycopg.Error) as error:
            result.error = f"{type(error).__name__}: {error}"
        result.seconds = time.monotonic() - started
        return result

    def _disturb(self, run: str, plan: Plan, driver: Driver, struck: list[str]) -> None:
        source = random.Random(plan.seed)
        for share, kind in plan.faults:
            if not self._subject.wait_for_hops(run, share * self._hops, driver):
                return
            self._subject.faults[kind](source)
            struck.append(f"{kind} at {share:.0%}")


def line(number: int, result: Result) -> str:
    """Return what became of a run, in a line."""
    verdict = "FAILED: " + result.error if result.error else "same bits"
    struck = ", ".join(result.struck) or "undisturbed"
    return f"{number:3} {result.seconds:6.1f} s  {result.starts} driver(s)  {struck}: {verdict}"


def summary(results: Sequence[Result]) -> str:
    """Return the last line of the campaign."""
    failed = sum(bool(result.error) for result in results)
    counts = Counter(struck.split()[0] for result in results for struck in result.struck)
    hits = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    return f"{len(results)} runs, {failed} failed; {counts.total()} faults hit: {hits}"


def main() -> int:
    """Run the campaign; return 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=tuple(MIX), action="append", help="these alone")
    parser.add_argument("--only", type=int, metavar="N", help="the Nth run of the plan alone")
    parser.add_argument("--verbose", action="store_true", help="print what drivers complained of")
    given = parser.parse_args()
    if not has_citus():
        parser.error("this machine has no Citus")
    chosen = plans(given.faults, given.seed, given.kind or tuple(MIX))
    waiting = deque(chosen[given.only - 1 : given.only] if given.only else chosen)
    results: list[Result] = []
    with citus_subject() as subject:
        if subject.no_disk:
            parser.error(f"the disk cannot be filled: {subject.no_disk}")
        campaign = Campaign(subject)
        print(f"undisturbed: {campaign.seconds:.1f} s", flush=True)
        while waiting and len(results) < 2 * len(chosen):
            results.append(campaign.run(waiting.popleft()))
            waiting += missed(results[-1])
            print(line(len(results), results[-1]), flush=True)
            for complaint in results[-1].complaints if given.verbose else ():
                print(textwrap.indent(complaint, "      "), flush=True)
    print(summary(results))
    return 1 if any(result.error for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
