"""Measured figures with their bars, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
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
    best = min(runs)
    return Figure(
        name=name,
        value=best,
        unit=unit,
        peer=peer,
        bar=f"<= {bar:g}",
        holds=best <= bar,
        runs=list(runs),
    )


def at_least(name: str, runs: Sequence[float], unit: str, bar: float, peer: str = "") -> Figure:
    """Return a figure whose best run must reach the bar."""
    best = max(runs)
    return Figure(
        name=name,
        value=best,
        unit=unit,
        peer=peer,
        bar=f">= {bar:g}",
        holds=best >= bar,
        runs=list(runs),
    )


def report(bench: str, figures: Sequence[Figure], share: float = 1.0) -> dict[str, Any]:
    """Return a bench's result for machines."""
    packages = ("mmdb-learn", "torch", "duckdb", "psycopg", "pyarrow", "numpy")
    return {
        "bench": bench,
        "share": share,
        "machine": {
            "processor": _processor(),
            "processors": os.cpu_count(),
            "system": platform.platform(),
        },
        "versions": {name: version(name) for name in packages}
        | {"python": platform.python_version()},
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
