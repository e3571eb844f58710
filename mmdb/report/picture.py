"""Pictures without a browser: lineage graphs as SVG, charts by vl-convert, stacked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from mmdb.errors import EngineError
from mmdb.report.graph_layout import BEND, GraphLayout, layered
from mmdb.report.lineage_graph import LineageEdge, LineageGraph, LineageNode
from mmdb.report.parts import FONT, LIGHT, ROOM, Chart, ReportContent, Spec, Theme, config, short

#: Pixels: a node's height, the gaps beside and below it.
HEIGHT, GAP, BELOW = 46, 14, 44
#: Pixels of a letter, about, of a name and of what stands below it.
LETTER, SMALL = 7.4, 6.3
#: Pixels that a node is wide, at least and at most.
NARROWEST, WIDEST = 104, 210
#: What an edge is that has its name beside it, by the kinds of its ends.
TOLD = {("model", "model"), ("checkpoint", "candidate"), ("model", "candidate"), ("model", "table")}
#: The stripe of each kind: its place among the categories.
COLORS = {
    "database": 8, "file": 8, "table": 8, "column": 0, "dataset": 3, "partition": 3, "run": 1,
    "candidate": 1, "hop": 7, "checkpoint": 6, "model": 2, "feature": 4,
}  # fmt: skip

Href = Callable[[int, LineageNode], str | None]


def style(theme: Theme | None = None) -> str:
    """Return the rules of a drawing: with a theme's colours, or with a page's variables."""
    ink = {name: f"var(--{name})" for name in ("text", "quiet", "ground")}
    stripes = tuple(f"var(--c{k})" for k in range(len(LIGHT.category)))
    if theme is not None:
        ink, stripes = {name: getattr(theme, name) for name in ink}, theme.category
    rules = [
        f"text {{ fill: {ink['text']}; font-size: 13px; font-family: {FONT}; }}",
        f"text.q {{ fill: {ink['quiet']}; font-size: 11.5px; }}",
        f"text.v {{ fill: {ink['quiet']}; font-size: 11.5px; stroke: {ink['ground']}; "
        "stroke-width: 4; paint-order: stroke; }",
        f".box {{ fill: {ink['ground']}; stroke: {ink['quiet']}; }}",
        f".subject .box {{ stroke: {ink['text']}; stroke-width: 2.5; }}",
        ".subject text { font-weight: 600; }",
        ".subject text.q { font-weight: 400; }",
        f".edge {{ fill: none; stroke: {ink['quiet']}; stroke-opacity: .75; }}",
        f".tip {{ fill: {ink['quiet']}; }}",
        *(f".k{place} {{ fill: {stripes[place]}; }}" for place in sorted(set(COLORS.values()))),
    ]
    return "\n".join(f".lineage {rule}" for rule in rules)


def drawing(
    graph: LineageGraph,
    *,
    href: Href | None = None,
    room: int = 1000,
    most: int = 5,
    theme: Theme | None = None,
) -> str:
    """Return the graph as an `svg` element, what came first at the top.

    Args:
        href: where a node's link leads, given its place in the graph; without it there are none.
        room: pixels across; the drawing is wider only where nodes would be too narrow to read.
        most: nodes beside each other.
        theme: its colours; a page's variables where it is left out.
    """
    pairs = [(parent, child) for parent, child, _ in graph.edges]
    places = layered([node.key for node in graph.nodes], pairs, most)
    slot = min(max(room / max(places.width, 1), NARROWEST + GAP), WIDEST + GAP)
    number = {node.key: k for k, node in enumerate(graph.nodes)}
    width = round(slot * places.width)
    height = places.layers * (HEIGHT + BELOW) - BELOW + 8
    ground = (
        ""
        if theme is None
        else (
            f'<style>{style(theme)}</style><rect width="100%" height="100%" fill="{theme.ground}"/>'
        )
    )
    edges = [_edge(edge, graph, number, places, slot) for edge in graph.edges]
    nodes = [_node(k, node, places, slot, href) for k, node in enumerate(graph.nodes)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lineage" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" role="group" '
        f'aria-label="Lineage as a graph">{ground}{"".join(edges)}{"".join(nodes)}</svg>'
    )


def _node(k: int, node: LineageNode, at: GraphLayout, slot: float, href: Href | None) -> str:
    x, y = at.across[node.key] * slot + GAP / 2, _down(at.layer[node.key])
    wide = slot - GAP
    name = short(node.name, int((wide - 20) / LETTER))
    more = short(node.more, int((wide - 20) / SMALL))
    told = escape(_told(node))
    inside = (
        f'<title>{told}</title><rect class="box" width="{wide:.1f}" height="{HEIGHT}" rx="6"/>'
        f'<rect class="k{COLORS[node.kind]}" x="4" y="8" width="4" height="{HEIGHT - 16}" rx="2"/>'
        f'<text x="15" y="20">{escape(name)}</text>'
        f'<text class="q" x="15" y="36">{escape(more)}</text>'
    )
    kind = "node subject" if node.is_subject else "node"
    common = f'class="{kind}" data-n="{k}" transform="translate({x:.1f},{y})"'
    link = None if href is None else href(k, node)
    if link is None:
        return f"<g {common}>{inside}</g>"
    return f'<a {common} href="{escape(link)}" aria-label="{told}">{inside}</a>'


def _told(node: LineageNode) -> str:
    """Return what a node is, for whoever hears it."""
    text = f"{node.name}, {node.more}" if node.more else node.name
    return text + (" (the subject)" if node.is_subject else "")


def _edge(
    edge: LineageEdge, graph: LineageGraph, number: Mapping[str, int], at: GraphLayout, slot: float
) -> str:
    parent, child, via = edge
    bends = at.paths[(parent, child)]
    stops = [
        ((at.across[parent] + 0.5) * slot, _down(at.layer[parent]) + HEIGHT),
        *(
            ((across + BEND / 2) * slot, _down(layer) + down)
            for across, layer in bends
            for down in (0, HEIGHT)
        ),
        ((at.across[child] + 0.5) * slot, _down(at.layer[child])),
    ]
    ends = (number[parent], number[child])
    x, y = stops[-1]
    mark = f'data-e="{ends[0]} {ends[1]}"'
    drawn = (
        f'<path class="edge" {mark} d="{_curve(stops)}"/>'
        f'<path class="tip" {mark} d="M{x - 4:.1f},{y - 6}l4,6l4,-6z"/>'
    )
    if not via or (graph.nodes[ends[0]].kind, graph.nodes[ends[1]].kind) not in TOLD:
        return drawn
    return (
        f'{drawn}<text class="v" {mark} x="{x + 8:.1f}" y="{y - 8}">{escape(short(via, 24))}</text>'
    )


def _down(layer: int) -> int:
    return layer * (HEIGHT + BELOW) + 4


def _curve(stops: Sequence[tuple[float, int]]) -> str:
    """Return a path that leaves and enters each stop straight down."""
    (x, y), *rest = stops
    found = [f"M{x:.1f},{y}"]
    for right, down in rest:
        if right == x:
            found.append(f"V{down}")
            y = down
            continue
        half = (y + down) // 2
        found.append(f"C{x:.1f},{half} {right:.1f},{half} {right:.1f},{down}")
        x, y = right, down
    return "".join(found)


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


def report_picture(report: ReportContent) -> bytes:
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
