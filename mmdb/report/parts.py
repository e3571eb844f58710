"""What a report consists of, and values as its texts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mmdb.report.lineage_graph import LineageGraph


def value_text(value: Any) -> str:
    """Return a value, a number with four significant digits, a mapping as `key=value`.

    >>> value_text(0.123456), value_text({"name": "sgd", "momentum": 0.9}), value_text(None)
    ('0.1235', 'sgd momentum=0.9', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    if isinstance(value, Mapping):
        return " ".join(
            value_text(v) if k == "name" else f"{k}={value_text(v)}" for k, v in value.items()
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(value_text, value))
    return str(value)


def time_text(seconds: float | None) -> str:
    """Return a time of the clock, of UTC.

    >>> time_text(0.0)
    '1970-01-01 00:00 UTC'
    """
    if seconds is None:
        return ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def finite(value: float | None) -> float | None:
    """Return a number that a chart can show, or None."""
    return value if value is not None and math.isfinite(value) else None


def short(text: str, most: int = 32) -> str:
    """Return a text of at most so many characters.

    >>> short("lr=0.1 optimizer=adam", 10)
    'lr=0.1 op…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def architecture_text(text: str) -> str:
    """Return how a model was built as people write it; a text that is no JSON as it is.

    >>> architecture_text('{"arguments":{"hidden":[8]},"factory":"mlp"}'), architecture_text("x")
    ('mlp(hidden=[8])', 'x')
    """
    try:
        known = json.loads(text)
    except ValueError:
        return text
    if not isinstance(known, dict) or "factory" not in known:
        return text
    given = ", ".join(f"{k}={json.dumps(v)}" for k, v in (known.get("arguments") or {}).items())
    return f"{known['factory']}({given})"


def strategy_text(strategy: str, group_size: int, executed: bool) -> str:
    """Return the name of a way of training.

    >>> strategy_text("data_parallel", 2, True), strategy_text("pipeline", 1, False)
    ('data parallel of 2', 'pipeline (what-if)')
    """
    name = strategy.replace("_", " ") + (f" of {group_size}" if group_size > 1 else "")
    return name if executed else f"{name} (what-if)"


#: A Vega-Lite specification without width, colours and fonts, which are the theme's.
Spec = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart, with what it shows in words."""

    title: str
    alt: str  # for whoever cannot see it
    spec: Spec
    note: str = ""  # how to read it


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table; `show` makes the text of a value."""

    key: str
    label: str = ""
    show: Callable[[Any], str] = value_text
    right: bool = False
    entity: str = ""  # key of the entity whose page a cell leads to, where there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; JSON has its rows as they are, a page their columns as texts."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: Rows
    folded: bool = False  # shown when it is asked for
    swatch: str = ""  # key of the colour that a row has in the charts; None there for none


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """A graph that can be clicked through; a page has one at most."""

    graph: LineageGraph
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of a report; `key` names it in JSON and in links."""

    key: str
    title: str
    texts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    lineage: Lineage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A figure at a report's head."""

    key: str
    label: str
    value: Any
    text: str
    entity: str = ""  # whose page it leads to, where there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report of one thing."""

    kind: str  # "run", "model"
    name: str
    made: float  # seconds since 1970
    facts: tuple[Fact, ...] = ()
    sections: tuple[Section, ...] = field(default=())

    @property
    def title(self) -> str:
        """Its heading."""
        return f"{self.kind.capitalize()} {self.name}"
