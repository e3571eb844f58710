"""Timing of a call, and of calls that take turns: what slows a machine then slows all of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Literal

from mmdb.bench.figures import Figure, at_most

#: Seconds of each round of each call, by the call's name.
Rounds = dict[str, list[float]]


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, and put the number back."""
    import torch  # what only asks a database does without it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds of a call; what it returns is released outside its time."""
    started = perf_counter()
    kept = call()
    taken = perf_counter() - started
    del kept
    return taken


def take_turns(calls: Mapping[str, Callable[[], object]], rounds: int, *, warm: int = 1) -> Rounds:
    """Return the seconds of every call in `rounds` rounds of one call each.

    Args:
        warm: rounds before those that count: caches fill, connections prepare their statements.

    The collector of cyclic garbage rests.
    """
    seconds: Rounds = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for k in range(warm + rounds):
            for name, call in calls.items():
                taken = seconds_of(call)
                if k >= warm:
                    seconds[name].append(taken)
    finally:
        gc.enable()
    return seconds


def beside(
    name: str, ours: Sequence[float], theirs: Sequence[float], bar: float, peer: str
) -> Figure:
    """Return the figure ours / theirs, which must not exceed the bar.

    Its value is the least of ours by the least of theirs, as what disturbs a call only adds to its
    time; its runs are the ratios round by round.
    """
    runs = [a / b for a, b in zip(ours, theirs, strict=True)]
    return replace(at_most(name, [min(ours) / min(theirs)], "x", bar, peer), runs=runs)


def least(name: str, seconds: Sequence[float], unit: Literal["s", "ms"] = "ms") -> Figure:
    """Return the least of some seconds as a figure without a bar."""
    runs = [s * (1e3 if unit == "ms" else 1) for s in seconds]
    return Figure(name=name, value=min(runs), unit=unit, runs=runs)
