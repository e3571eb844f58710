"""A report as JSON, for machines: the rows of its tables as they are."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from mmdb.report.graph.folding import Graph
from mmdb.report.parts import Report, Section


def values(report: Report) -> bytes:
    """Return the facts and, by section and table, the rows; what is no number is null."""
    whole = {
        report.kind: report.name,
        "made": report.made,
        "facts": {fact.key: fact.value for fact in report.facts},
        "sections": {section.key: _section(section) for section in report.sections},
    }
    text = json.dumps(_plain(whole), ensure_ascii=False, allow_nan=False, indent=1, default=str)
    return (text + "\n").encode()


def _section(section: Section) -> dict[str, Any]:
    found: dict[str, Any] = {"texts": section.texts, "warnings": section.warnings}
    for table in section.tables:  # one that is folded goes on where the other ends
        hidden = {table.swatch}
        rows = [{k: v for k, v in row.items() if k not in hidden} for row in table.rows]
        found.setdefault(table.key, []).extend(rows)
    return found if section.lineage is None else found | _graph(section.lineage.graph)


def _graph(graph: Graph) -> dict[str, Any]:
    nodes = [
        {"entity": node.key, "kind": node.kind, "name": node.name, "members": node.members}
        for node in graph.nodes
    ]
    edges = [dict(zip(("parent", "child", "via"), edge, strict=True)) for edge in graph.edges]
    return {"nodes": nodes, "edges": edges}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
