"""Why features are stored, kept, recomputed or streamed, in a sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mmdb.messages import bytes_text
from mmdb.train.features.cost import Problem

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
