"""Whether the features of a run are stored, kept in memory, recomputed or streamed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmdb.train.features.cost import Problem
from mmdb.train.features.demand import Conditions, Cost, Demand
from mmdb.train.features.reason import reason_of
from mmdb.train.features.search import best

__all__ = ["Chosen", "Conditions", "Cost", "Demand", "Plan", "choose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """How the features of a prefix come to its candidates, and what that is expected to cost.

    Attributes:
        key: of the demand.
        choice: one of `mmdb.train.features.spec.CHOICES`.
        reason: one sentence.
        compute_s, write_s, read_s: seconds of all workers in this run, see `Cost`.
        disk_bytes: that the database grows by.
        memory_bytes: on each node: of all features in its cache, or of the partitions that its
            workers recompute at once.
        saved_s: seconds of this run that are saved against streaming.
    """

    key: str
    choice: str
    reason: str
    compute_s: float
    write_s: float
    read_s: float
    disk_bytes: int
    memory_bytes: int
    saved_s: float

    @property
    def seconds(self) -> float:
        """Seconds of all workers in this run."""
        return self.compute_s + self.write_s + self.read_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The choices of a run, in the order of its demands.

    Attributes:
        disk_bytes: that the database grows by.
        memory_bytes: of features on each node, at most. Less than the sum over the choices where
            several are recomputed: a worker holds one partition's features at a time.
    """

    chosen: tuple[Chosen, ...]
    disk_bytes: int
    memory_bytes: int

    @property
    def seconds(self) -> float:
        """Seconds of all workers in this run."""
        return sum(one.seconds for one in self.chosen)

    @property
    def saved_s(self) -> float:
        """Seconds of this run that are saved against streaming everything."""
        return sum(one.saved_s for one in self.chosen)


def choose(demands: Sequence[Demand], conditions: Conditions, *, asked: str | None = None) -> Plan:
    """Return the choices that cost least within the budgets.

    What counts are the seconds of all workers in this run and in the later ones that
    `Conditions.reuse` names. The best of all choices is found for EXACT prefixes at most
    (`mmdb.train.features.search`); of more, a good one.

    Args:
        demands: with different keys.
        asked: the choice to be made wherever it fits a budget; None: the one that costs least.
    """
    problem = Problem.of(demands, conditions, asked)
    choices = best(problem)
    costs = problem.costs(choices)
    disk, memory = problem.bytes_of(choices)
    chosen = tuple(
        Chosen(
            key=demand.key,
            choice=choice,
            reason=reason_of(problem, choices, place),
            compute_s=cost.compute_s,
            write_s=cost.write_s,
            read_s=cost.read_s,
            disk_bytes=problem.disk_bytes(place, choice),
            memory_bytes=problem.memory_bytes(place, choice),
            saved_s=problem.streamed_s(place) - cost.seconds,
        )
        for place, (demand, choice, cost) in enumerate(zip(demands, choices, costs, strict=True))
    )
    return Plan(chosen=chosen, disk_bytes=disk, memory_bytes=memory)
