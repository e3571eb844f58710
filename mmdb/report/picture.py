"""Charts as pictures: drawn by vl-convert without a browser, and stacked below each other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache
from html import escape
from typing import Any

from mmdb.errors import EngineError
from mmdb.report.graph_drawing import drawing
from mmdb.report.parts import Chart, Report, Spec
from mmdb.report.theme import FONT, LIGHT, ROOM, config

#: Of Vega-Lite, so that a page and a picture are drawn by the same one.
VERSION = "6.4"
#: Pixels for each point of a picture: sharp on paper and on dense screens.
SCALE = 2
_LIBRARIES = "window.vegaEmbed = vegaEmbed;"
#: Characters that XML cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOTICE = (
    "/* Vega, Vega-Lite and Vega-Embed. Copyright (c) University of Washington Interactive Data "
    "Lab and contributors. BSD-3-Clause. */\n"
)


def _converter() -> Any:
    try:
        import vl_convert
    except ImportError as error:
        raise EngineError(
            "Charts are drawn by vl-convert, which is not installed.",
            hint="pip install 'mmdb-learn[report]'; a report as JSON needs none of it.",
        ) from error
    return vl_convert


def svg(spec: Spec, config: dict[str, Any]) -> bytes:
    """Return a chart as SVG.

    Raises:
        EngineError: vl-convert is not installed.
    """
    drawn: str = _converter().vegalite_to_svg(
        _full(spec), vl_version=VERSION, config=config, allowed_base_urls=[]
    )
    return drawn.encode()


def png(spec: Spec, config: dict[str, Any]) -> bytes:
    """Return a chart as PNG.

    Raises:
        EngineError: vl-convert is not installed.
    """
    drawn: bytes = _converter().vegalite_to_png(
        _full(spec), vl_version=VERSION, config=config, scale=SCALE, allowed_base_urls=[]
    )
    return drawn


def png_of(drawn: str) -> bytes:
    """Return an SVG as PNG; control characters in its texts become the sign for unknown ones.

    Raises:
        EngineError: vl-convert is not installed.
    """
    found: bytes = _converter().svg_to_png(_NOT_XML.sub("\ufffd", drawn), scale=SCALE)
    return found


@cache
def libraries() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script for a page.

    Raises:
        EngineError: vl-convert is not installed.
    """
    bundle: str = _converter().javascript_bundle(_LIBRARIES, vl_version=VERSION)
    return _NOTICE + bundle


def _full(spec: Spec) -> Spec:
    return {"$schema": "https://vega.github.io/schema/vega-lite/v6.json", **spec}


#: Points that a chart is wide, axes and legend not counted.
WIDTH = 680
#: Points around it all.
EDGE = 20


def stack(title: str, subtitle: str | list[str], charts: Iterable[Chart]) -> Spec:
    """Return one specification of several charts, each with its own scales and its title."""
    parts = [_titled(chart) for chart in charts]
    scales = dict.fromkeys(("color", "shape", "strokeDash", "x", "y", "yOffset"), "independent")
    head: dict[str, Any] = {"text": title, "fontSize": 20, "offset": 20}
    if subtitle:
        head["subtitle"] = subtitle
    return {
        "title": head,
        "params": ROOM,
        "vconcat": parts,
        "spacing": 36,
        "padding": EDGE,
        "resolve": {"scale": scales},
    }


def report_picture(report: Report) -> bytes:
    """Return all charts of a report as PNG, on light, its lineage below them.

    Raises:
        EngineError: vl-convert is not installed.
    """
    charts = [chart for section in report.sections for chart in section.charts]
    facts = _lines(" · ".join(f"{fact.label} {fact.text}" for fact in report.facts[:6]), 110)
    parts = [_heading(report.title)]
    if charts:
        parts = [svg(stack(report.title, facts, charts), config(LIGHT)).decode()]
    for section in report.sections:
        if section.lineage is not None:
            parts += [_heading(section.title), drawing(section.lineage.graph, theme=LIGHT)]
    return png_of(_below(parts))


def _heading(text: str) -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="400" height="40">'
        f'<text y="26" font-size="16" font-weight="bold" font-family="{FONT}" '
        f'fill="{LIGHT.text}">{escape(text)}</text></svg>'
    )


def _below(parts: Iterable[str]) -> str:
    """Return drawings below each other as one; each says at its head how large it is."""
    placed, across, down = [], 0, 0
    for part in parts:
        width, height = (_size(part, side) for side in ("width", "height"))
        x = EDGE if down else 0  # the charts have an edge of their own
        placed.append(part.replace("<svg ", f'<svg x="{x}" y="{down}" ', 1))
        across, down = max(across, width + 2 * x), down + height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{across}" height="{down + EDGE}">'
        f'<rect width="100%" height="100%" fill="{LIGHT.ground}"/>{"".join(placed)}</svg>'
    )


def _size(drawn: str, side: str) -> int:
    match = re.search(rf'\b{side}="([\d.]+)', drawn)
    return math.ceil(float(match[1])) if match else 0


def _titled(chart: Chart) -> Spec:
    title: dict[str, Any] = {"text": chart.title, "frame": "group"}
    if chart.note:
        title["subtitle"] = _lines(chart.note)
    return {"width": WIDTH, "title": title, **chart.spec}


def _lines(text: str, most: int = 100) -> list[str]:
    """Return a text as lines of at most so many characters."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
