"""`lineage`: what an entity came from, or what came of it."""

from __future__ import annotations

from typing import get_args

from mmdb.arguments import is_whole
from mmdb.db.connection import Connection
from mmdb.errors import InvalidOption
from mmdb.lineage.entity import kind_of
from mmdb.lineage.finding import find, written_out
from mmdb.lineage.graph import Graph
from mmdb.lineage.walk import Direction, Step, walk
from mmdb.messages import show


def lineage(
    connection: Connection,
    entity: str,
    direction: str = "up",
    *,
    hops: bool | None = None,
    max_depth: int | None = None,
) -> list[Step]:
    """Return the edges that lead to an entity, or away from it, those next to it first.

    It reads views alone, so a reader may call it.

    Args:
        entity: as `mmdb.lineage.entity` writes it; a name alone where it is of one thing.
        direction: "up" to what it came from, "down" to what came of it.
        hops: whether partitions and hops are shown; left out, they are on the way up, and on the
            way down from a partition or hop.
        max_depth: edges that the farthest is away at most.
    Raises:
        EntityNotFound, AmbiguousEntity
        InvalidOption: of `direction` or `max_depth`, or there are too many edges.
    """
    way = _direction(direction)
    if max_depth is not None and not is_whole(max_depth, 1):
        raise InvalidOption(f"max_depth is {show(max_depth)}.", hint="It is a whole number from 1.")
    node = written_out(entity) if way == "down" else None
    if node:  # its first edges say that it is there: one query less
        graph = Graph(connection, way, hops=bool(hops))
        if any(graph.neighbours(kind_of(node), [node])):
            return walk(node, way, graph.neighbours, max_depth=max_depth)
    found = find(connection, entity)
    shown = way == "up" or kind_of(found.node) in ("partition", "hop") if hops is None else hops
    graph = Graph(connection, way, hops=shown)
    graph.know(*found)
    return walk(found.node, way, graph.neighbours, max_depth=max_depth)


def _direction(given: object) -> Direction:
    for direction in get_args(Direction):
        if given == direction:
            return direction  # type: ignore[no-any-return]
    raise InvalidOption(f"direction is {show(given)}.", hint="It is 'up' or 'down'.")
