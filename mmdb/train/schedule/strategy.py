"""Strategies: which hops of a candidate may start now, and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

Parts = int  # a set of parts: bit p stands for part p


class Strategy(Protocol):
    """How a run uses its workers.

    An epoch of a candidate is a chain of stages. All parts of a stage are done before the next
    stage begins; there is no barrier between candidates.
    """

    @property
    def name(self) -> str:
        """Its name in SQL."""

    @property
    def alone(self) -> bool:
        """Whether a candidate is in one place at a time (a group counts as one place)."""

    @property
    def stays(self) -> bool:
        """Whether a candidate stays with the worker of its first hop until that worker is lost."""

    @property
    def group(self) -> int:
        """Workers that visit as many parts at once for one candidate."""

    def stages(self, train: Parts, merge: Parts, validation: Parts) -> tuple[Parts, ...]:
        """Return the stages of an epoch; `validation` is empty where nothing is validated."""


@dataclass(frozen=True, slots=True)
class Mop:
    """Model Hopper Parallelism: one hop of a candidate at a time, on whichever worker."""

    name: str = "mop"
    alone: bool = True
    stays: bool = False
    group: int = 1

    def stages(self, train: Parts, merge: Parts, validation: Parts) -> tuple[Parts, ...]:
        """Visit every partition, then validate."""
        return (train, validation) if validation else (train,)


@dataclass(frozen=True, slots=True)
class TaskParallel(Mop):
    """Task parallelism: a candidate visits all partitions on one worker."""

    name: str = "task"
    stays: bool = True


@dataclass(frozen=True, slots=True)
class DataParallel(Mop):
    """A group of workers visits as many partitions at once, with one state between them."""

    name: str = "data_parallel"
    group: int = 2


@dataclass(frozen=True, slots=True)
class ModelAverage:
    """All hops of an epoch at once, each from the epoch's merged state; then they are merged."""

    name: str = "model_average"
    alone: bool = False
    stays: bool = False
    group: int = 1

    def stages(self, train: Parts, merge: Parts, validation: Parts) -> tuple[Parts, ...]:
        """Visit every partition, then merge, then validate."""
        return (train, merge, validation) if validation else (train, merge)


STRATEGIES = ("mop", "task", "model_average", "data_parallel")


def strategy_of(name: str, group: int = 1) -> Strategy:
    """Return a strategy by its name.

    Args:
        group: workers of one candidate, for `data_parallel`.
    Raises:
        ValueError: there is no strategy of that name, or the group is empty.
    """
    if group < 1:
        raise ValueError(f"A group of {group} workers trains nothing.")
    if name == "data_parallel":
        return DataParallel(group=group)
    for known in (Mop(), TaskParallel(), ModelAverage()):
        if known.name == name:
            return known
    raise ValueError(f"There is no strategy {name!r}; known: {', '.join(STRATEGIES)}.")
