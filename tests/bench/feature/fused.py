"""Fused hops of eight heads: seconds beside those of one head, and beside what is not shared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from mmdb.api import Run
from mmdb.bench.figures import Figure, seconds_of
from mmdb.train.drive.worker import PoolWorker, workers_of
from mmdb.train.hops.orders import FusedOrder, HopOrder, Order
from tests.bench.feature.alone import Alone
from tests.bench.feature.networks import FEATURES
from tests.bench.feature.subject import HEADS, Subject

SHAPE, ROUNDS = (64,), 5
#: Of a hop, from which on the part that is shared should be all that counts.
MOSTLY = 0.9
MOSTLY_BAR, BAR = 2.0, 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A backbone, and how many rows the one partition has."""

    width: int
    depth: int
    features: int
    rows: int
    heads: tuple[Any, ...]

    @property
    def arguments(self) -> dict[str, int]:
        """Of the factory `tower`."""
        return {"width": self.width, "depth": self.depth, "features": self.features}


CASES = (
    Case(width=2048, depth=5, features=32, rows=2_048, heads=HEADS[:1] * 8),
    Case(width=1024, depth=3, features=64, rows=4_096, heads=HEADS),
    Case(width=512, depth=1, features=256, rows=8_192, heads=HEADS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Seconds of hops over the same rows.

    Attributes:
        fused: of all heads together.
        one: of one head that computes its features.
        apart: of each head where features are at hand.
        shared: of computing the features.
    """

    fused: float
    one: float
    apart: tuple[float, ...]
    shared: float


def measure_fused(subject: Subject, cases: Sequence[Case] = CASES) -> Iterator[Figure]:
    """Yield what fused hops take, in one session on one thread."""
    for number, case in enumerate(subject.share.first(cases)):
        rounds = _rounds(subject, f"fused{number}", case)
        share = median(min(1.0, r.shared / r.one) for r in rounds)
        where = f"{subject.engine}, {len(case.heads)} heads, {share:.0%} of a hop shared"
        if share >= MOSTLY:
            runs = [r.fused / r.one for r in rounds]
            yield _at_most(f"{where}: fused hop against one", runs, MOSTLY_BAR)
        runs = [r.fused / (r.shared + sum(r.apart)) for r in rounds]
        bar = BAR if share < MOSTLY else None
        yield _at_most(f"{where}: fused hop against unshared parts and one shared", runs, bar)
        whole = [len(case.heads) * r.one / r.fused for r in rounds]
        yield Figure(name=f"{where}: hops apart against fused", value=median(whole), unit="x")


def _at_most(name: str, runs: list[float], bar: float | None) -> Figure:
    value = median(runs)
    told = "" if bar is None else f"<= {bar:g}"
    holds = None if bar is None else value <= bar
    return Figure(name=f"{name}, median", value=value, unit="x", bar=told, holds=holds, runs=runs)


def _rounds(subject: Subject, name: str, case: Case) -> list[Round]:
    """Train for some epochs; the first, which sets everything up, is not measured."""
    dataset = subject.dataset(
        name, SHAPE, subject.share.of(case.rows, 128), partitions=1, validation=0.0
    )
    heads = list(case.heads)
    # Another seed gives another backbone, so that none finds the other's features at hand.
    fused = _run(subject, f"{name}-fused", dataset, case, heads, "recomputed", seed=1)
    one = _run(subject, f"{name}-one", dataset, case, heads[:1], "recomputed", seed=2)
    ready = _run(subject, f"{name}-ready", dataset, case, heads, "memory", seed=3)
    (worker,) = workers_of(subject.database.connection, 1)
    worker.open()
    try:
        part_id = fused.part_id
        found = []
        for epoch in range(1 + subject.share.of(ROUNDS)):
            seconds = _seconds(worker, FusedOrder(
                part_id=part_id, candidate_ids=tuple(fused.candidates), epoch=epoch, publish=False
            ))  # fmt: skip
            apart = [
                _seconds(worker, HopOrder(part_id=part_id, candidate_id=c, epoch=epoch,
                                          publish=False))
                for c in (*one.candidates, *ready.candidates)
            ]  # fmt: skip
            shared = fused.shared_s()
            found.append(Round(fused=seconds, one=apart[0], apart=tuple(apart[1:]), shared=shared))
    finally:
        worker.close()
    return found[1:]


class _Hopping:
    """A run that is told each hop."""

    def __init__(self, subject: Subject, run: Run) -> None:
        self._alone = Alone(subject, run)
        self.candidates = [head.spec.candidate_id for head in self._alone.heads]
        (self._part,) = self._alone.heads[0].parts

    @property
    def part_id(self) -> int:
        """Of its one partition."""
        return int(self._part["part_id"])

    def shared_s(self) -> float:
        """Return the seconds in which this process computes the features of the partition."""
        return self._alone.feature_seconds(self._alone.heads[0])


def _run(
    subject: Subject,
    name: str,
    dataset: str,
    case: Case,
    heads: Sequence[Any],
    choice: str,
    *,
    seed: int,
) -> _Hopping:
    factory = subject.factory("tests.bench.feature.networks:tower")
    rates = [0.05 * 0.9**k for k in range(len(heads))]
    same = len({repr(head) for head in heads}) == 1
    space = {"head": heads[:1], "lr": rates} if same else {"head": list(heads)}
    run = subject.run(
        name,
        dataset,
        {"factory": factory, "arguments": case.arguments},
        {"freeze_up_to": FEATURES} | space,
        epochs=1 + ROUNDS,
        features={"choice": choice},
        seed=seed,
        validates=False,
    )
    return _Hopping(subject, run)


def _seconds(worker: PoolWorker, order: Order) -> float:
    return seconds_of(lambda: worker.do(order))
