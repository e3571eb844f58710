"""Where something came from and what came of it: what is read, and its section of a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mmdb.db.connection import Connection
from mmdb.lineage.finding import find
from mmdb.lineage.reading import lineage
from mmdb.lineage.walk import Direction
from mmdb.report.graph.folding import Edge, Graph, graph_of
from mmdb.report.parts import Lineage, Section

NOTE = (
    "What came first is at the top. Choose one to see what it came from and what came of it; "
    "Escape shows all of it again."
)


class Part(NamedTuple):
    """A walk whose edges a graph has."""

    entity: str
    direction: Direction
    max_depth: int | None = None


def lineage_of(connection: Connection, entity: str) -> Graph | None:
    """Return the graph of both directions, or None where there are no edges.

    Raises:
        EntityNotFound, AmbiguousEntity
    """
    subject = find(connection, entity).node
    return lineage_graph(connection, subject, [Part(subject, "up"), Part(subject, "down")])


def lineage_graph(connection: Connection, subject: str, parts: Iterable[Part]) -> Graph | None:
    """Return the graph of several walks, or None where they have no edges.

    Raises:
        EntityNotFound, AmbiguousEntity
    """
    found: dict[Edge, None] = {}
    for entity, direction, max_depth in parts:
        for step in lineage(connection, entity, direction, max_depth=max_depth):
            found[(step.parent, step.child, step.via or "")] = None
    return graph_of(found, subject) if found else None


def section_of(graph: Graph | None) -> Section | None:
    """Return the section, or None where nothing is known."""
    if graph is None:
        return None
    left = f" {graph.left_out:,} more are too far away to be drawn." if graph.left_out else ""
    return Section(key="lineage", title="Lineage", lineage=Lineage(graph=graph, note=NOTE + left))
