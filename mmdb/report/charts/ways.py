"""Rows of a plan, picked and named for charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mmdb.report.parts import Rows
from mmdb.report.texts import strategy_text

Way = Mapping[str, Any]


def possible(rows: Rows) -> list[Way]:
    """Return the ways that can be done, the fastest first; notes of a plan have no rank."""
    found = [row for row in rows if row["rank"] is not None and row["feasible"]]
    return sorted(found, key=lambda row: (row["t_p50"], row["rank"]))


def name_of(row: Way) -> str:
    """Return a way's name without its workers."""
    return strategy_text(row["strategy"], row["group_size"], row["executed"])


def fastest(ways: Iterable[Way], *keys: str) -> list[Way]:
    """Return the first way of each combination of these columns."""
    found: dict[tuple[Any, ...], Way] = {}
    for row in ways:
        found.setdefault(tuple(row[key] for key in keys), row)
    return list(found.values())


def chosen(rows: Rows) -> Way | None:
    """Return what `train` would do, or has done."""
    return next((row for row in possible(rows) if row["chosen"]), None)
