"""A report as one page of HTML that needs nothing else: no network, no other file.

The page's own policy forbids it to ask for anything, and names the scripts that may run by their
hashes. Whatever comes from data is escaped, or is JSON that no browser takes for markup.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from mmdb.report import picture
from mmdb.report.lineage_graph import LineageGraph, LineageNode
from mmdb.report.parts import (
    THEMES,
    Chart,
    Fact,
    Lineage,
    ReportContent,
    Section,
    Table,
    TableColumn,
    Theme,
    config,
    time_text,
)
from mmdb.report.picture import drawing, style

#: Characters of a cell that goes over several lines.
LONG = 40
#: Pixels across and nodes beside each other of the graph, on a screen and on a phone.
WIDE, NARROW = (1000, 5), (318, 2)

#: Entities that are named of a node that stands for many.
MEMBERS = 50

#: Where an entity has a page of its own, or None: in a file there is none.
PageOf = Callable[[str], str | None]


def nowhere(_entity: str) -> str | None:
    """Return no page for any entity."""
    return None


def facts_markup(some: tuple[Fact, ...], page_of: PageOf = nowhere) -> str:
    """Return the figures at a report's head."""
    items = "".join(
        f"<div><dt>{escape(fact.label)}</dt>"
        f"<dd>{_linked(fact.text, page_of(fact.entity) if fact.entity else None)}</dd></div>"
        for fact in some
    )
    return f"<dl>{items}</dl>"


def section_markup(one: Section, page_of: PageOf = nowhere) -> str:
    """Return a section, its tables and the places of its charts."""
    parts = [f'<section id="{one.key}" tabindex="-1">\n<h2>{escape(one.title)}</h2>\n']
    parts += [f"<p>{escape(text)}</p>\n" for text in one.texts]
    parts += [f'<p class="warning">{escape(text)}</p>\n' for text in one.warnings]
    if one.lineage is not None:
        parts.append(_lineage(one.lineage, page_of))
    parts += [_chart(chart) for chart in one.charts]
    parts += [_table(table, page_of, one.title) for table in one.tables]
    return "".join([*parts, "</section>\n"])


def _chart(chart: Chart) -> str:
    note = f'<p class="note">{escape(chart.note)}</p>' if chart.note else ""
    return (
        f"<figure><figcaption>{escape(chart.title)}</figcaption>{note}"
        f'<div class="chart" role="img" aria-label="{escape(chart.alt)}"></div></figure>\n'
    )


def _table(table: Table, page_of: PageOf, above: str) -> str:
    """Return a table, with its title where another one stands above it."""
    head = "".join(f"<th scope=col{_side(c)}>{escape(c.label)}</th>" for c in table.columns)
    body = "\n".join(_row(table, row, page_of) for row in table.rows)
    shown = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )
    if table.folded:
        return f"<details><summary>{escape(table.title)}</summary>{shown}</details>\n"
    title = "" if table.title == above else f"<h3>{escape(table.title)}</h3>"
    return f"{title}{shown}\n"


def _row(table: Table, row: Any, page_of: PageOf) -> str:
    color = row.get(table.swatch) if table.swatch else None
    cells = []
    for place, column in enumerate(table.columns):
        text = column.show(row[column.key])
        kind = " class=long" if len(text) > LONG else _side(column)
        mark = ""
        if place == 1 and color is not None:
            mark = f'<i class="swatch" style="background:var(--c{int(color)})"></i>'
        page = page_of(row[column.entity]) if column.entity and row[column.entity] else None
        cells.append(f"<td{kind}>{mark}{_linked(text, page)}")
    return f"<tr>{''.join(cells)}"


def _side(column: TableColumn) -> str:
    return " class=n" if column.right else ""


def _linked(text: str, page: str | None) -> str:
    return escape(text) if page is None else f'<a href="{escape(page)}">{escape(text)}</a>'


def _lineage(lineage: Lineage, page_of: PageOf) -> str:
    """Return the graph for a screen and for a phone, and its nodes as a table with links."""
    graph = lineage.graph

    def href(k: int, node: LineageNode) -> str:
        page = None if node.members else page_of(node.key)
        return f"#node-{k}" if page is None or node.is_subject else page

    drawings = "".join(
        f'<div class="graph {name}" role="region" tabindex="0" aria-label="Lineage as a graph">'
        f"{drawing(graph, href=href, room=room, most=most)}</div>"
        for name, (room, most) in (("wide", WIDE), ("narrow", NARROW))
    )
    note = f'<p class="note">{escape(lineage.note)}</p>' if lineage.note else ""
    told = '<div class="told" aria-live="polite" hidden></div>'
    return f"<figure>{note}{told}{drawings}</figure>\n{_nodes(graph, page_of)}"


def _nodes(graph: LineageGraph, page_of: PageOf) -> str:
    number = {node.key: k for k, node in enumerate(graph.nodes)}
    before: dict[str, list[str]] = {node.key: [] for node in graph.nodes}
    after: dict[str, list[str]] = {node.key: [] for node in graph.nodes}
    for parent, child, via in graph.edges:
        how = f" <small>{escape(via)}</small>" if via else ""
        before[child].append(_to(number[parent], graph.nodes[number[parent]]) + how)
        after[parent].append(_to(number[child], graph.nodes[number[child]]) + how)
    rows = "\n".join(
        f'<tr id="node-{k}"><td>{_named(node, page_of)}<td class=long>{", ".join(before[node.key])}'
        f"<td class=long>{', '.join(after[node.key])}"
        for k, node in enumerate(graph.nodes)
    )
    title = "The graph as a table"
    return (
        f'<details id="nodes"><summary>{title}</summary><div class="scroll" role="region" '
        f'tabindex="0" aria-label="{title}"><table><thead><tr><th scope=col>what</th>'
        "<th scope=col>comes from</th><th scope=col>leads to</th></tr></thead><tbody>\n"
        f"{rows}\n</tbody></table></div></details>\n"
    )


def _to(k: int, node: LineageNode) -> str:
    return f'<a href="#node-{k}">{escape(node.name)}</a>'


def _named(node: LineageNode, page_of: PageOf) -> str:
    """Return a node's name and what it is; of one that stands for many, all of them."""
    page = None if node.members else page_of(node.key)
    text = f"{_linked(node.name, page)} <small>{escape(node.more)}</small>"
    if not node.members:
        return text
    shown = ", ".join(_linked(one, page_of(one)) for one in node.members[:MEMBERS])
    rest = len(node.members) - MEMBERS
    return f"{text}<p class=many>{shown}{f' and {rest:,} more' if rest > 0 else ''}</p>"


_HERE = Path(__file__).parent
#: A page's own scripts, in the order in which they run; Vega comes before them.
SCRIPTS = ("page.js", "graph.js")
_NO_SCRIPT = "The charts need JavaScript; the tables have all of their numbers."


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFrame:
    """What surrounds a report: in a file nothing, in a browser that is served links and scripts."""

    above: str = ""  # elements before the heading
    scripts: tuple[str, ...] = ()  # addresses; within the page where there are none
    page_of: PageOf = nowhere
    state: str = ""  # an address that says whether the page is out of date
    tag: str = ""  # what it says as long as it is not


def page(report: ReportContent, frame: PageFrame | None = None) -> bytes:
    """Return the page.

    Raises:
        EngineError: vl-convert is not installed.
    """
    frame = frame or PageFrame()
    charts = [chart.spec for section in report.sections for chart in section.charts]
    configs = {
        name: {"wide": config(theme), "narrow": config(theme, narrow=True)}
        for name, theme in THEMES.items()
    }
    links = "".join(f'<a href="#{s.key}">{escape(s.title)}</a>' for s in report.sections)
    few = " hidden" if len(report.sections) < 2 else ""
    made = f"Made by mmdb on {time_text(report.made)}."
    policy, scripts = _scripts(frame, needs_vega=bool(charts))
    state = ""
    if frame.state:
        state = f' data-state="{escape(frame.state)}" data-tag="{escape(frame.tag)}"'
    icon = '<link rel="icon" href="data:,">\n' if frame.scripts else ""  # else it is asked for
    text = f"""<!DOCTYPE html>
<html lang="en"{state}>
<head>
<meta charset="utf-8">
{policy}<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(report.title)}</title>
{icon}<style>
{stylesheet()}</style>
</head>
<body>
<a class="skip" href="#{report.sections[0].key if report.sections else "end"}">To the content</a>
<header>
{frame.above}<h1>{escape(report.title)}</h1>
<button id="theme" type="button" hidden></button>
<div id="facts">{facts_markup(report.facts, frame.page_of)}</div>
<nav id="sections" aria-label="Sections"{few}>{links}</nav>
</header>
<main>
<noscript><p class="warning">{_NO_SCRIPT}</p></noscript>
{"".join(section_markup(section, frame.page_of) for section in report.sections)}</main>
<footer id="end">{escape(made)}</footer>
<script type="application/json" id="charts">{_data({"configs": configs, "charts": charts})}</script>
{scripts}
</body>
</html>
"""
    return text.encode()


def stylesheet() -> str:
    """Return the rules of all pages, for light and for dark."""
    return f"{_variables()}\n{style()}\n{(_HERE / 'page.css').read_text()}"


def script(name: str) -> str:
    """Return one of SCRIPTS."""
    return (_HERE / name).read_text()


def _scripts(frame: PageFrame, *, needs_vega: bool) -> tuple[str, str]:
    """Return the policy that a page without a server declares, and its scripts."""
    if frame.scripts:
        return "", "\n".join(f'<script src="{escape(one)}"></script>' for one in frame.scripts)
    texts = [picture.libraries()] if needs_vega else []
    texts += [script(name) for name in SCRIPTS]
    hashes = " ".join(f"'sha256-{_hash(f'{chr(10)}{text}')}'" for text in texts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    elements = "\n".join(f"<script>\n{text}</script>" for text in texts)
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n', elements


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def _data(value: Any) -> str:
    """Return JSON that may stand within a script element, whatever its texts hold."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _variables() -> str:
    """Return the themes as CSS: what the system asks for, unless the page is told otherwise."""
    light, dark = (_colors(theme) for theme in THEMES.values())
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {dark} }} }}\n"
        f':root[data-theme="light"] {{ color-scheme: light; {light} }}\n'
        f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}'
    )


def _colors(theme: Theme) -> str:
    names = ("ground", "text", "quiet", "line")
    plain = [f"--{name}: {getattr(theme, name)};" for name in names]
    return " ".join([*plain, *(f"--c{k}: {c};" for k, c in enumerate(theme.category))])
