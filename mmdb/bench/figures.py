"""Measured figures with their bars, and the timing of calls that take turns."""

from __future__ import annotations

import gc
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure; `value` is the best of `runs` unless its name says otherwise."""

    name: str
    value: float
    unit: str
    peer: str = ""  # what it is measured against
    bar: str = ""  # such as "<= 1.05"
    holds: bool | None = None
    runs: list[float] = field(default_factory=list)


def at_most(name: str, runs: Sequence[float], unit: str, bar: float, peer: str = "") -> Figure:
    """Return a figure whose best run must not exceed the bar."""
    best, said = min(runs), f"<= {bar:g}"
    return Figure(name, best, unit, peer, said, best <= bar, list(runs))


def at_least(name: str, runs: Sequence[float], unit: str, bar: float, peer: str = "") -> Figure:
    """Return a figure whose best run must reach the bar."""
    best, said = max(runs), f">= {bar:g}"
    return Figure(name, best, unit, peer, said, best >= bar, list(runs))


def is_so(name: str, holds: bool, bar: str = "") -> Figure:
    """Return a figure that holds or does not."""
    return Figure(name, float(holds), "", bar=bar, holds=holds)


def report(bench: str, figures: Sequence[Figure], share: float = 1.0) -> dict[str, Any]:
    """Return a bench's result for machines."""
    system, python = platform.platform(), platform.python_version()
    packages = ("mmdb-learn", "torch", "duckdb", "psycopg", "pyarrow", "numpy")
    return {
        "bench": bench,
        "share": share,
        "machine": {"processor": _processor(), "processors": os.cpu_count(), "system": system},
        "versions": {name: version(name) for name in packages} | {"python": python},
        "figures": [asdict(figure) for figure in figures],
    }


def write_json(path: str, content: dict[str, Any]) -> None:
    """Write a bench's result to a file."""
    Path(path).write_text(json.dumps(content, indent=2) + "\n")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "unknown")


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
    return Figure(name, min(runs), unit, runs=runs)
