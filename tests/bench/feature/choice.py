"""Whether the choice that is made is the best one: each workload is trained in every way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median

from mmdb.api import Run
from mmdb.bench.figures import Figure
from mmdb.train.values.feature_options import ASKED
from tests.bench.feature.saving import WORKERS
from tests.bench.feature.subject import Subject
from tests.bench.feature.turns import Runs, train_in_turn
from tests.bench.feature.workloads import COLUMNS, WORKLOADS, Workload

BAR, WORKLOADS_BAR = 1.10, 12
REPEATS = 3
#: What is left to the run.
AUTO = "auto"
#: Times the best seconds so far from which on a way is not tried again.
OUTCLASSED = 1.4


@dataclass(slots=True, kw_only=True)
class Tried:
    """A way of training a workload: what it asked for, what was done, and the seconds of each run.

    Attributes:
        done: the choice of each feature, in the order of the cuts.
    """

    asked: str
    done: tuple[str, ...] = ()
    seconds: list[float] = field(default_factory=list)


def measure_choice(
    subject: Subject, workloads: int | None = None, repeats: int = REPEATS
) -> Iterator[Figure]:
    """Yield how far the choice is behind the best of all.

    Runs that came to the same choices did the same work, whether they were asked to or not, so
    their seconds are taken together.
    """
    chosen = subject.share.first(WORKLOADS[:workloads])
    found: list[list[Tried]] = []
    train_in_turn(subject.database, _all(subject, chosen, repeats, found), WORKERS)
    figures = [_figure(subject, *pair) for pair in zip(chosen, found, strict=True)]
    yield from figures
    worst = max(figure.value for figure in figures)
    yield Figure(
        name=f"{subject.engine}: chosen against best, the worst of {len(figures)} workloads",
        value=worst,
        unit="x",
        bar=f"<= {BAR:g}" + (f" in {WORKLOADS_BAR}" if workloads is None else ""),
        holds=worst <= BAR and (workloads is not None or len(figures) >= WORKLOADS_BAR),
    )


def _figure(subject: Subject, workload: Workload, tried: Sequence[Tried]) -> Figure:
    found = seconds_of(tried)
    auto = next(one.done for one in tried if one.asked == AUTO)
    best = min(found, key=lambda done: found[done])
    ratio = found[auto] / found[best]
    told = ", ".join(f"{_told(done)} {seconds:.2f} s" for done, seconds in found.items())
    return Figure(
        name=f"{subject.engine}, {workload}: {_told(auto)} of {told}",
        value=ratio,
        unit="x",
        bar=f"<= {BAR:g}",
        holds=ratio <= BAR,
        runs=[seconds for one in tried if one.done == auto for seconds in one.seconds],
    )


def seconds_of(tried: Sequence[Tried]) -> Mapping[tuple[str, ...], float]:
    """Return the median seconds of each combination of choices that was made."""
    by_choice: dict[tuple[str, ...], list[float]] = {}
    for one in tried:
        by_choice.setdefault(one.done, []).extend(one.seconds)
    return {done: median(seconds) for done, seconds in by_choice.items()}


def _all(
    subject: Subject, workloads: Sequence[Workload], repeats: int, found: list[list[Tried]]
) -> Runs:
    """Train each workload in every way, as often as it takes to tell the good ones apart."""
    for number, workload in enumerate(workloads):
        factory = subject.factory("tests.bench.feature.networks:tower")
        dataset = subject.dataset(
            f"choice{number}", (COLUMNS,), subject.share.of(workload.rows, 400)
        )
        create = _Creation(subject, workload, dataset, factory)
        yield create.run("memory", epochs=1).name  # rows are read, workers are up
        tried = [Tried(asked=asked) for asked in (*ASKED, AUTO)]
        for repeat in range(repeats):
            for one in in_turn(tried, repeat):
                run = create.run(one.asked)
                one.seconds.append((yield run.name))
                one.done = tuple(use["choice"] for use in subject.uses(run))
        found.append(tried)


def in_turn(tried: Sequence[Tried], repeat: int) -> Sequence[Tried]:
    """Return the ways to try once more; none always follows the same one."""
    if not repeat:
        return tried
    limit = OUTCLASSED * min(median(one.seconds) for one in tried)
    again = [one for one in tried if one.asked == AUTO or median(one.seconds) < limit]
    return again[::-1] if repeat % 2 else again


class _Creation:
    """Makes the runs of a workload.

    Each has a seed of its own and so another backbone: none finds another one's features.
    """

    def __init__(self, subject: Subject, workload: Workload, dataset: str, factory: str) -> None:
        self._subject, self._workload = subject, workload
        self._dataset, self._factory = dataset, factory
        self._seeds = count()

    def run(self, asked: str, *, epochs: int | None = None) -> Run:
        """Create a run with a choice that is asked for, or left to it."""
        workload, seed = self._workload, next(self._seeds)
        return self._subject.run(
            f"{self._dataset}-{seed}",
            self._dataset,
            {"factory": self._factory, "arguments": workload.arguments},
            workload.space,
            epochs=epochs or workload.epochs,
            features=workload.options | ({} if asked == AUTO else {"choice": asked}),
            seed=seed,
        )


def _told(done: Sequence[str]) -> str:
    return " + ".join(done)
