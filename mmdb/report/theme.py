"""Colours and sizes of charts, on light and on dark, that colour-blind people can tell apart.

Charts name a colour by its place in PALETTES; each mark has three times the contrast of its ground.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
