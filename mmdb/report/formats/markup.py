"""The parts of a page as HTML. Whatever comes from data is escaped."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from mmdb.report.graph.drawing import drawing
from mmdb.report.graph.folding import Graph, Node
from mmdb.report.parts import Chart, Column, Fact, Lineage, Section, Table

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


def facts(some: tuple[Fact, ...], page_of: PageOf = nowhere) -> str:
    """Return the figures at a report's head."""
    items = "".join(
        f"<div><dt>{escape(fact.label)}</dt><dd>{_fact(fact, page_of)}</dd></div>" for fact in some
    )
    return f"<dl>{items}</dl>"


def _fact(fact: Fact, page_of: PageOf) -> str:
    return _linked(fact.text, page_of(fact.entity) if fact.entity else None)


def section(one: Section, page_of: PageOf = nowhere) -> str:
    """Return a section, its tables and the places of its charts."""
    parts = [f'<section id="{one.key}" tabindex="-1">\n<h2>{escape(one.title)}</h2>\n']
    parts += [f"<p>{escape(text)}</p>\n" for text in one.texts]
    parts += [f'<p class="warning">{escape(text)}</p>\n' for text in one.warnings]
    if one.lineage is not None:
        parts.append(_lineage(one.lineage, page_of))
    parts += [_chart(chart) for chart in one.charts]
    parts += [_table(table, page_of) for table in one.tables]
    return "".join([*parts, "</section>\n"])


def _chart(chart: Chart) -> str:
    note = f'<p class="note">{escape(chart.note)}</p>' if chart.note else ""
    return (
        f"<figure><figcaption>{escape(chart.title)}</figcaption>{note}"
        f'<div class="chart" role="img" aria-label="{escape(chart.alt)}"></div></figure>\n'
    )


def _table(table: Table, page_of: PageOf) -> str:
    head = "".join(f"<th scope=col{_side(c)}>{escape(c.label)}</th>" for c in table.columns)
    body = "\n".join(_row(table, row, page_of) for row in table.rows)
    shown = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )
    if table.folded:
        return f"<details><summary>{escape(table.title)}</summary>{shown}</details>\n"
    return shown + "\n"


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


def _side(column: Column) -> str:
    return " class=n" if column.right else ""


def _linked(text: str, page: str | None) -> str:
    return escape(text) if page is None else f'<a href="{escape(page)}">{escape(text)}</a>'


def _lineage(lineage: Lineage, page_of: PageOf) -> str:
    """Return the graph for a screen and for a phone, and its nodes as a table with links."""
    graph = lineage.graph

    def href(k: int, node: Node) -> str:
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


def _nodes(graph: Graph, page_of: PageOf) -> str:
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


def _to(k: int, node: Node) -> str:
    return f'<a href="#node-{k}">{escape(node.name)}</a>'


def _named(node: Node, page_of: PageOf) -> str:
    """Return a node's name and what it is; of one that stands for many, all of them."""
    page = None if node.members else page_of(node.key)
    text = f"{_linked(node.name, page)} <small>{escape(node.more)}</small>"
    if not node.members:
        return text
    shown = ", ".join(_linked(one, page_of(one)) for one in node.members[:MEMBERS])
    rest = len(node.members) - MEMBERS
    return f"{text}<p class=many>{shown}{f' and {rest:,} more' if rest > 0 else ''}</p>"
