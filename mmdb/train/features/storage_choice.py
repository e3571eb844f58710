"""Whether a run's features are stored, kept, recomputed or streamed, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmdb.messages import bytes_text
from mmdb.train.features.storage_cost import Conditions, Demand, FeatureCost, Problem
from mmdb.train.features.storage_solver import best

_DOING = {
    "stored": "storing them",
    "memory": "keeping them in memory",
    "recomputed": "computing them at each hop",
    "streamed": "computing them with each batch",
}
_FOUND = "reading them from the database, where they are already,"


def reason_of(problem: Problem, choices: Sequence[str], place: int) -> str:
    """Return why a choice was made for one of the demands, where the others are as they are."""
    demand, choice = problem.demands[place], choices[place]
    if demand.fixed is not None:
        return demand.fixed[1]
    if choice == problem.asked:
        return "It was asked for."
    if problem.asked is not None:
        doing = _DOING[problem.asked]
        return f"{_capital(doing)} was asked for; {_excess(problem, choices, place)}."
    seconds = _seconds(problem, choices, place)
    fitting = [c for c in seconds if c != choice and problem.fits(_with(choices, place, c))]
    is_found = choice == "stored" and demand.found_rows >= demand.rows
    told = f"{_FOUND if is_found else _DOING[choice]} takes {_time(seconds[choice])}"
    if fitting:
        other = min(fitting, key=seconds.__getitem__)
        told += f", {_DOING[other]} {_time(seconds[other])}"
    if problem.conditions.reuse:
        told = f"over {1 + problem.conditions.reuse} runs, {told}"
    if any(seconds[c] < seconds[choice] for c in seconds if c not in (choice, *fitting)):
        told += f"; {_excess(problem, choices, place)}"
    return f"{_capital(told)}."


def _with(choices: Sequence[str], place: int, choice: str) -> list[str]:
    return [*choices[:place], choice, *choices[place + 1 :]]


def _seconds(problem: Problem, choices: Sequence[str], place: int) -> dict[str, float]:
    """Return the seconds that each choice adds to what the rest of its chain takes."""
    chain = next(chain for chain in problem.chains if place in chain)
    rest = problem.chain_s(chain, _with(choices, place, "streamed"))
    rest -= problem.weight_s(place, "streamed")
    return {
        option: problem.chain_s(chain, _with(choices, place, option)) - rest
        for option in problem.possible(place)
    }


def _excess(problem: Problem, choices: Sequence[str], place: int) -> str:
    """Return what of a demand's features does not fit the budgets beside what else is chosen."""
    demand, given = problem.demands[place], problem.conditions
    disk, memory = problem.bytes_of(_with(choices, place, "streamed"))
    possible = problem.possible(place)
    misfits = [c for c in possible if not problem.fits(_with(choices, place, c))]
    told = []
    if "stored" in misfits:
        size = bytes_text(problem.disk_bytes(place, "stored"))
        told.append(f"{_budget('disk', given.disk_bytes, disk)} has no room for {size}")
    held = f"the {bytes_text(demand.partition_bytes)} of a partition for each worker"
    if "recomputed" in misfits:
        told.append(f"{_budget('memory', given.memory_bytes, memory)} has no room for {held}")
    elif "memory" in misfits:
        size = bytes_text(demand.cache_bytes)
        told.append(f"{_budget('memory', given.memory_bytes, memory)} has no room for {size}")
    return ", and ".join(told)


def _budget(name: str, size: int, used: int) -> str:
    told = f"the {name} budget of {bytes_text(size)}"
    return f"{told}, of which {bytes_text(used)} are taken," if used else told


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


__all__ = ["Chosen", "Conditions", "Demand", "FeatureCost", "StoragePlan", "choose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """How the features of a prefix come to its candidates, and what that is expected to cost.

    Attributes:
        key: of the demand.
        choice: one of `mmdb.train.values.feature_spec.CHOICES`.
        reason: one sentence.
        compute_s, write_s, read_s: seconds of all workers in this run, see `FeatureCost`.
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
class StoragePlan:
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


def choose(
    demands: Sequence[Demand], conditions: Conditions, *, asked: str | None = None
) -> StoragePlan:
    """Return the choices that cost least within the budgets.

    What counts are the seconds of all workers in this run and in the later ones that
    `Conditions.reuse` names. The best of all choices is found for EXACT prefixes at most
    (`mmdb.train.features.storage_solver`); of more, a good one.

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
    return StoragePlan(chosen=chosen, disk_bytes=disk, memory_bytes=memory)
