"""Searches that are planned and then trained, in every way that mmdb executes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from mmdb.plan.cost import StrategyName

#: Numbers of a row, whatever shape they are given.
COLUMNS, CLASSES = 64, 10
_RATES = tuple(round(0.01 * 0.8**k, 6) for k in range(12))


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models of one factory, of growing size.

    Attributes:
        shape: of a row; empty for flat ones.
        argument: of the factory, which the sizes are values of.
    """

    architecture: Mapping[str, Any]
    shape: tuple[int, ...]
    argument: str
    sizes: tuple[Any, ...]


FAMILIES = {
    "mlp": Family(
        architecture={"factory": "mlp"},
        shape=(),
        argument="hidden",
        sizes=([256], [512, 512], [1024, 1024]),
    ),
    "cnn": Family(
        architecture={"factory": "cnn", "arguments": {"depth": 2}},
        shape=(1, 8, 8),
        argument="width",
        sizes=(8, 16, 32),
    ),
    "resnet": Family(
        architecture={"factory": "resnet", "arguments": {"blocks": 1}},
        shape=(1, 8, 8),
        argument="width",
        sizes=(8, 12, 16),
    ),
    "transformer": Family(
        architecture={"factory": "transformer", "arguments": {"heads": 2, "layers": 1}},
        shape=(8, 8),
        argument="d_model",
        sizes=(32, 64, 128),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A strategy that mmdb executes, on so many workers."""

    strategy: StrategyName = "mop"
    workers: int = 2

    @property
    def group(self) -> int:
        """Workers of one candidate."""
        return self.workers if self.strategy == "data_parallel" else 1

    def __str__(self) -> str:
        return f"{self.strategy} @ {self.workers}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """A run of one epoch, after which everything is planned."""

    candidates: int
    workers: int
    strategy: StrategyName = "mop"

    def __str__(self) -> str:
        short = "" if self.strategy == "mop" else f" {self.strategy}"
        return f"{self.candidates}@{self.workers}{short}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A search over learning rates and, where there are several, sizes of a model."""

    family: str
    sizes: tuple[int, ...]  # of the family's, as indices
    candidates: int
    partitions: int
    batch_size: int
    validates: bool
    warm_ups: tuple[WarmUp, ...]
    ways: tuple[Way, ...]
    share: float = 1.0  # of the work that others have

    def __str__(self) -> str:
        sizes = "+".join(str(k) for k in self.sizes)
        warm = ", ".join(map(str, self.warm_ups))
        held_out = " validated" if self.validates else ""
        part = f", {self.share:g} of the work" if self.share != 1 else ""
        return (
            f"{self.family} {sizes}: {self.candidates} x {self.partitions}, batches of "
            f"{self.batch_size}{held_out}{part}, after {warm}"
        )

    @property
    def architecture(self) -> Mapping[str, Any]:
        """What its candidates are built from; their sizes are in the search space."""
        return FAMILIES[self.family].architecture

    def space(self, candidates: int) -> dict[str, Any]:
        """Return the grid of so many candidates, which are a multiple of its sizes."""
        family = FAMILIES[self.family]
        return {
            "lr": list(_RATES[: candidates // len(self.sizes)]),
            f"architecture.{family.argument}": [family.sizes[k] for k in self.sizes],
            "batch_size": self.batch_size,
            "optimizer": "adam",
        }

    def is_seen(self, way: Way) -> bool:
        """Whether a warm-up was trained in this way, with as many candidates."""
        return (
            WarmUp(candidates=self.candidates, workers=way.workers, strategy=way.strategy)
            in self.warm_ups
        )


def mop_workloads() -> Iterator[Workload]:
    """Yield searches whose workers, or candidates for each, were seen before, or were not."""
    cases: Sequence[tuple[int, int, WarmUp, tuple[int, ...]]] = (
        (4, 4, WarmUp(candidates=4, workers=1), (1, 2)),
        (5, 3, WarmUp(candidates=5, workers=2), (2, 1)),
        (6, 4, WarmUp(candidates=2, workers=2), (2, 3)),
    )
    for place, (family, (candidates, partitions, warm_up, workers)) in enumerate(
        product(FAMILIES, cases)
    ):
        yield Workload(
            family=family,
            sizes=((0,), (1,), (1, 2))[place % 3],
            candidates=candidates,
            partitions=partitions,
            batch_size=(32, 128, 64, 256)[place % 4],
            validates=place % 2 == 1,
            warm_ups=(warm_up,),
            ways=tuple(Way(workers=count) for count in workers),
        )


#: Ways in which several workers train one candidate, and the work after which a run takes about as
#: long as others: members of a group wait for each other's gradients most of the time.
_TOGETHER: tuple[tuple[StrategyName, float], ...] = (
    ("data_parallel", 0.25),
    ("model_average", 1.0),
)


def iteration_workloads() -> Iterator[Workload]:
    """Yield searches of few candidates, which several workers train together.

    Two of three were trained so for an epoch, as a run's own first one is.
    """
    cases = product(FAMILIES, ((1, 2), (2, 4), (1, 5)), _TOGETHER)
    for number, (family, (candidates, partitions), (strategy, share)) in enumerate(cases):
        place, way = number // len(_TOGETHER), Way(strategy=strategy)
        seen = WarmUp(candidates=candidates, workers=way.workers, strategy=strategy)
        yield Workload(
            family=family,
            sizes=(place % 3,),
            candidates=candidates,
            partitions=partitions,
            batch_size=(64, 256, 32, 128)[place % 4],
            validates=place % 3 == 0,
            warm_ups=(WarmUp(candidates=candidates, workers=1), *((seen,) if place % 3 else ())),
            ways=(way,),
            share=share,
        )


def choice_workloads() -> Iterator[Workload]:
    """Yield 44 searches: each family with each number of candidates, and all else in turn."""
    counts = (1, 2, 3, 4, 6, 1, 8, 5, 2, 12, 1)
    for place in range(len(FAMILIES) * len(counts)):
        candidates = counts[place % len(counts)]
        mixed = max(k for k in (1, 2, 3) if candidates % k == 0)
        yield Workload(
            family=tuple(FAMILIES)[place % len(FAMILIES)],
            sizes=((0,), (1,), tuple(range(mixed)))[place % 3],
            candidates=candidates,
            partitions=(2, 4, 8, 3, 6)[place % 5],
            batch_size=(64, 16, 256, 32, 128, 512, 96)[place % 7],
            validates=place % 2 == 0,
            warm_ups=tuple(WarmUp(candidates=candidates, workers=k) for k in (1, 2)[:candidates]),
            ways=tuple(_ways(candidates)),
        )


def _ways(candidates: int) -> Iterator[Way]:
    """Yield what differs on up to two workers; one worker alone hops as it stays."""
    yield Way(workers=1)
    if candidates > 1:
        yield Way()
        yield Way(strategy="task")
    yield Way(strategy="model_average")
    yield Way(strategy="data_parallel")
