"""What a report consists of: parts, texts of values, colours and sizes of charts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from mmdb.report.lineage_graph import LineageGraph

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
#: Candidates that have a colour of their own; the ninth colour is for all others.
LEADERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """One of both."""

    ground: str
    text: str
    quiet: str  # of axes and notes
    line: str  # of grids
    inside: str  # of texts on marks
    category: tuple[str, ...]
    phase: tuple[str, ...]  # compute, read, hop, communication, validation, idle
    pair: tuple[str, str]  # planned, took


LIGHT = Theme(
    ground="#ffffff",
    text="#1b1f24",
    quiet="#57606a",
    line="#e3e6ea",
    inside="#ffffff",
    category=("#0a5ea8", "#ea701f", "#661a61", "#6092e8", "#76100f", "#3d64f4", "#92405f",
              "#b94500", "#8b929a"),
    phase=("#0a5ea8", "#6092e8", "#ea701f", "#661a61", "#14663e", "#8b929a"),
    pair=("#8b929a", "#0a5ea8"),
)  # fmt: skip
DARK = Theme(
    ground="#14181d",
    text="#e8ebee",
    quiet="#a3adb8",
    line="#2c333b",
    inside="#101419",
    category=("#5aa9ef", "#ff8209", "#fae01b", "#60c89d", "#d0551c", "#5a6dfd", "#7adffe",
              "#8efdbe", "#7d8894"),
    phase=("#5aa9ef", "#c8fa48", "#ff8209", "#5a6dfd", "#60c89d", "#6f7a86"),
    pair=("#7d8894", "#5aa9ef"),
)  # fmt: skip
THEMES = {"light": LIGHT, "dark": DARK}
#: How the ways of training are drawn: place of the colour, dash, symbol. Kin share a colour.
STRATEGIES: dict[str, tuple[int, list[int], str]] = {
    "mop": (0, [], "circle"),
    "task": (1, [], "square"),
    "model_average": (2, [], "diamond"),
    "data_parallel": (3, [], "triangle-up"),
    "data_parallel_tree": (3, [6, 3], "triangle-down"),
    "data_parallel_overlap": (3, [2, 3], "triangle-right"),
    "parameter_server": (4, [6, 3], "cross"),
    "parameter_server_async": (4, [2, 3], "triangle-left"),
    "partitioned": (5, [6, 3], "square"),
    "pipeline": (5, [2, 3], "diamond"),
}


#: Every chart's parameters.
ROOM: list[dict[str, Any]] = [{"name": "room", "value": 680}]


def legend_columns(names: Sequence[str]) -> dict[str, str]:
    """Return how many names of a legend stand in a row, as there is room for them.

    Whoever draws says how many pixels there are, in the parameter that ROOM declares.
    """
    longest = 7 * max(map(len, names), default=0) + 34  # pixels, about
    return {"expr": f"max(1, min({len(names)}, floor(room / {longest})))"}


def config(theme: Theme, *, narrow: bool = False) -> dict[str, Any]:
    """Return Vega-Lite's configuration: charts have no colours of their own."""
    size = 12 if narrow else 13
    axis = {
        "labelColor": theme.quiet,
        "titleColor": theme.text,
        "labelFontSize": size,
        "titleFontSize": size,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "gridColor": theme.line,
        "domainColor": theme.quiet,
        "tickColor": theme.quiet,
        "labelLimit": 180 if narrow else 240,
    }
    legend = {
        "labelColor": theme.text,
        "titleColor": theme.quiet,
        "labelFontSize": size,
        "titleFontSize": size,
        "labelLimit": 300,
        "symbolSize": 90,
        "orient": "top",
        "rowPadding": 4,
    }
    ranges = {
        "category": list(theme.category),
        "phase": list(theme.phase),
        "pair": list(theme.pair),
        "strategy": [theme.category[place] for place, _, _ in STRATEGIES.values()],
    }
    return {
        "aria": False,  # the page says what a chart shows; a mark each would be thousands of texts
        "background": theme.ground,
        "font": FONT,
        "view": {"stroke": None},
        "mark": {"color": theme.category[0]},
        # on a phone, texts at the ends of bars reach beyond the axis
        "padding": {"left": 4, "top": 4, "bottom": 4, "right": 24 if narrow else 4},
        "axis": axis,
        "legend": legend,
        "range": ranges,
        "title": {
            "color": theme.text,
            "subtitleColor": theme.quiet,
            "fontSize": 16,
            "subtitleFontSize": 13,
            "anchor": "start",
            "offset": 14,
        },
        "style": {
            "ring": {"color": theme.text},
            "band": {"color": theme.quiet},
            "middle": {"color": theme.quiet},
            "inside": {"color": theme.inside, "fontSize": 11},
            "label": {"color": theme.text, "fontSize": size},
            "gap": {"stroke": theme.ground},
        },
    }


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
class TableColumn:
    """A column of a table; `show` makes the text of a value."""

    key: str
    label: str = ""
    show: Callable[[Any], str] = value_text
    right: bool = False
    entity: str = ""  # key of the entity whose page a cell leads to, where there is one


def telling(columns: Iterable[TableColumn], rows: Rows) -> tuple[TableColumn, ...]:
    """Return the columns that have a value in any row."""
    return tuple(c for c in columns if any(row[c.key] is not None for row in rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; JSON has its rows as they are, a page their columns as texts."""

    key: str
    title: str
    columns: tuple[TableColumn, ...]
    rows: Rows
    folded: bool = False  # shown when it is asked for
    swatch: str = ""  # key of the colour that a row has in the charts; None there for none

    def split(self, most: int, others: str) -> tuple[Table, ...]:
        """Return the first rows, and where there are more these as a folded table."""
        rest, title = self.rows[most:], f"{len(self.rows) - most:,} {others}"
        first = replace(self, rows=self.rows[:most])
        return (first, replace(self, rows=rest, title=title, folded=True)) if rest else (first,)


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


@dataclass(frozen=True, slots=True)
class ReportContent:
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
