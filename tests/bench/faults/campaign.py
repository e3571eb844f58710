"""The fault campaign: runs that are disturbed end, lose no hop and come to the same bits.

    python -m tests.bench.faults.campaign --runs 30 --seed 0

Each run has a plan, drawn from the seed: an engine, a search and faults at shares of its hops. Grid
and random search must come to the hops and states of an undisturbed run; ASHA to those of its
candidates trained undisturbed, and its log of decisions must follow from the reports in it.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmdb.api import Database
from tests.bench.faults.checks import check
from tests.bench.faults.driver import Driver, Stuck
from tests.bench.faults.subjects import Subject, Whole, file_subject, server_subject
from tests.bench.points import load_points
from tests.bench.train.convergence import labelled_rows

ROWS, WIDTH, PARTITIONS = 36_000, 20, 3
TIMEOUT_S = 240.0
SPACE = {
    "lr": {"low": 1e-4, "high": 1e-2, "log": True},
    "architecture.hidden": [[16], [64]],
    "optimizer": [{"name": "sgd", "momentum": 0.9}, "adam"],
}
GRID = {"lr": [0.01, 0.001], "optimizer": [{"name": "sgd", "momentum": 0.9}, "adam"]}
#: Search, epochs, and the search that trains all its candidates for all epochs.
SEARCHES: dict[str, tuple[dict[str, Any], int, dict[str, Any]]] = {
    "grid": (
        {"method": "grid", "space": GRID},
        3,
        {"method": "grid", "space": GRID},
    ),
    "random": (
        {"method": "random", "trials": 4, "space": SPACE},
        3,
        {"method": "random", "trials": 4, "space": SPACE},
    ),
    "asha": (
        {"method": "asha", "trials": 9, "eta": 3, "space": SPACE},
        4,
        {"method": "random", "trials": 9, "space": SPACE},
    ),
}
#: Share of the undisturbed run's epochs that a search trains: nine for one, three for three more.
WORK = {"asha": 18 / 36}
#: The faults of each engine that may come again and again; the disk is filled once on each.
FAULTS = {
    "postgres": ("worker", "driver", "server", "connections"),
    "duckdb": ("worker", "driver"),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done to one run: faults, each when a share of the run is done."""

    engine: str
    search: str
    faults: tuple[tuple[float, str], ...]
    seed: int


@dataclass(slots=True, kw_only=True)
class Result:
    """What became of one run."""

    plan: Plan
    seconds: float
    struck: list[str] = field(default_factory=list)  # faults that hit
    starts: int = 0  # of its driver
    complaints: list[str] = field(default_factory=list)
    error: str = ""


def plans(runs: int, seed: int, engines: Sequence[str] = tuple(FAULTS)) -> list[Plan]:
    """Return a plan for each run: engines and searches take turns, faults are drawn."""
    source = random.Random(seed)
    turns = [engine for engine in engines for _ in range(2 if engine == "postgres" else 1)]
    made: list[Plan] = []
    filled: set[str] = set()
    for k in range(runs):
        engine = turns[k % len(turns)]
        search = list(SEARCHES)[(k // len(turns)) % len(SEARCHES)]
        kinds = [source.choice(FAULTS[engine]) for _ in range(source.randint(1, 3))]
        if engine not in filled and k >= len(turns):
            kinds.append("disk")
            filled.add(engine)
        shares = sorted(source.uniform(0.05, 0.9) for _ in kinds)
        source.shuffle(kinds)
        faults = tuple(zip(shares, kinds, strict=True))
        made.append(Plan(engine, search, faults, source.randrange(2**32)))
    return made


class Campaign:
    """Databases with undisturbed runs in them, and the disturbed ones beside these."""

    def __init__(self, subjects: Sequence[Subject], rows: int = ROWS) -> None:
        self._subjects = {subject.engine: subject for subject in subjects}
        self._wholes: dict[tuple[str, str], Whole] = {}
        self._count = 0
        for subject in subjects:
            with subject.open() as db:
                load_points(db, "points", *labelled_rows(rows, WIDTH))
                query = "SELECT x, y FROM points"
                db.create_dataset("points", query, partitions=PARTITIONS)

    def run(self, plan: Plan) -> Result:
        """Train a run while its plan is carried out, and check what it came to."""
        subject, started = self._subjects[plan.engine], time.monotonic()
        whole = self._whole(subject, plan.search)
        self._count += 1
        name = f"{plan.search}-{self._count}"
        search, epochs, _ = SEARCHES[plan.search]
        with subject.open() as db:
            _create(db, name, search, epochs)
        result = Result(plan=plan, seconds=0.0)
        try:
            with Driver(subject.driver_url, name) as driver:
                result.struck = list(_disturb(subject, name, plan, whole, driver))
                try:
                    driver.wait(TIMEOUT_S)
                finally:
                    result.starts, result.complaints = driver.starts, driver.complaints
            with subject.open() as db:
                check(db, name, f"reference-{plan.search}")
        except (AssertionError, Stuck) as error:
            result.error = str(error)
        result.seconds = time.monotonic() - started
        return result

    def _whole(self, subject: Subject, search: str) -> Whole:
        """Train the undisturbed run of a search, once; return what the search takes."""
        key = (subject.engine, search)
        if key not in self._wholes:
            _, epochs, reference = SEARCHES[search]
            with subject.open() as db:
                run = _create(db, f"reference-{search}", reference, epochs)
                summary, share = run.train(workers=2), WORK.get(search, 1.0)
            self._wholes[key] = Whole(share * summary.hops, share * summary.seconds)
        return self._wholes[key]


def _create(db: Database, name: str, search: dict[str, Any], epochs: int) -> Any:
    return db.create_run(
        name,
        dataset="points",
        architecture="mlp",
        search=search,
        epochs=epochs,
        strategy="mop",
    )


def _disturb(subject: Subject, run: str, plan: Plan, whole: Whole, driver: Driver) -> Iterator[str]:
    """Carry out a plan; yield the faults that hit."""
    source = random.Random(plan.seed)
    done = 0.0
    for share, kind in plan.faults:
        # On a file, where nothing can be counted, shares of time add up over restarts.
        step = share if subject.engine == "postgres" else share - done
        if not subject.wait_for_share(run, step, whole, driver):
            return
        fault = subject.faults.get(kind)
        if fault is not None and fault(source, driver):
            yield f"{kind} at {share:.0%}"
        done = share


def line(number: int, result: Result) -> str:
    """Return what became of a run, in a line."""
    verdict = "FAILED: " + result.error if result.error else "same bits"
    plan = result.plan
    return (
        f"{number:3} {plan.engine:8} {plan.search:6} {result.seconds:6.1f} s  "
        f"{result.starts} driver(s)  {', '.join(result.struck) or 'undisturbed'}: {verdict}"
    )


def summary(results: Sequence[Result], disks: dict[str, str]) -> str:
    """Return the last lines of the campaign."""
    failed = sum(bool(result.error) for result in results)
    counts: dict[str, int] = {}
    for result in results:
        for struck in result.struck:
            kind = f"{result.plan.engine} {struck.split()[0]}"
            counts[kind] = counts.get(kind, 0) + 1
    hits = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    lines = [f"{len(results)} runs, {failed} failed; faults that hit: {hits}"]
    lines += [f"{engine}: no disk was filled, {why}" for engine, why in disks.items() if why]
    return "\n".join(lines)


def main() -> int:
    """Run the campaign; return 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=tuple(FAULTS), action="append")
    parser.add_argument("--only", type=int, metavar="N", help="the Nth run of the plan alone")
    parser.add_argument("--verbose", action="store_true", help="print what drivers complained of")
    given = parser.parse_args()
    chosen = plans(given.runs, given.seed, given.engine or tuple(FAULTS))
    numbers = [given.only] if given.only else list(range(1, len(chosen) + 1))
    # Else the small disks would stay mounted.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mmdb-campaign-")))
        subjects: list[Subject] = []
        engines = {chosen[number - 1].engine for number in numbers}
        if "postgres" in engines:
            subjects.append(stack.enter_context(server_subject()))
        if "duckdb" in engines:
            subjects.append(stack.enter_context(file_subject(folder)))
        campaign, results = Campaign(subjects), []
        for number in numbers:
            results.append(campaign.run(chosen[number - 1]))
            print(line(number, results[-1]), flush=True)
            for complaint in results[-1].complaints if given.verbose else ():
                print(textwrap.indent(complaint, "      "), flush=True)
        print(summary(results, {subject.engine: subject.disk for subject in subjects}))
    return 1 if any(result.error for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
