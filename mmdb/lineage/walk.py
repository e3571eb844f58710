"""The walk over the lineage graph, level by level: no SQL, no I/O.

A recursive query would be shorter, but not every engine has one over distributed tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from mmdb.errors import InvalidOption
from mmdb.lineage.entity import kind_of

Direction = Literal["up", "down"]

#: Edges after which a walk gives up: nobody reads so many, and they take a gigabyte.
MOST_EDGES = 1_000_000


class Edge(NamedTuple):
    """The child came from the parent; both are texts of `mmdb.lineage.entity`."""

    parent: str
    child: str
    via: str


class Step(NamedTuple):
    """One edge of an answer; `kind` is that of the end which is farther from the start."""

    depth: int
    kind: str
    parent: str
    child: str
    via: str


#: Given nodes of one kind: their edges in the direction of the walk, in any order, also repeated.
Neighbours = Callable[[str, Sequence[str]], Iterable[Edge]]


def walk(
    start: str,
    direction: Direction,
    neighbours: Neighbours,
    *,
    max_depth: int | None = None,
    most_edges: int = MOST_EDGES,
) -> list[Step]:
    """Return every edge that can be reached from `start`, once, at its least depth.

    Each node is looked at once, so that cycles end: a table of predictions may feed a dataset.

    Returns:
        Steps in the order of their fields; texts by code point, which no collation changes.
    Raises:
        InvalidOption: there are more than `most_edges`.
    """
    seen, found = {start}, set()
    steps: list[Step] = []
    level, depth = [start], 0
    while level and (max_depth is None or depth < max_depth):
        depth += 1
        reached: list[str] = []
        for kind, nodes in _by_kind(level):
            for edge in neighbours(kind, nodes):
                if edge in found:
                    continue
                found.add(edge)
                far = edge.child if direction == "down" else edge.parent
                steps.append(Step(depth, kind_of(far), *edge))
                if far not in seen:
                    seen.add(far)
                    reached.append(far)
            if len(steps) > most_edges:
                raise InvalidOption(
                    f"The lineage of {start} has more than {most_edges:,} edges.",
                    hint="Set max_depth, or hops => false.",
                )
        level = reached
    return sorted(steps)


def _by_kind(nodes: Iterable[str]) -> Iterable[tuple[str, list[str]]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        groups[kind_of(node)].append(node)
    return groups.items()
