"""A canonical order of the nodes of a labelled directed acyclic graph.

Colour refinement (Weisfeiler and Leman) with a worklist of splitters, in
O(E log V): nodes get different colours when their labels differ, or when they
have different numbers of edges of one kind to the nodes of one colour. Nodes
that stay alike are told apart by picking one and refining again.

Source: Paige and Tarjan 1987, "Three Partition Refinement Algorithms"; McKay and
Piperno 2014, "Practical graph isomorphism, II", section 2 (individualisation).
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

Edge = tuple[int, int, int]  # source, target, kind


def canonical_order(labels: Sequence[bytes], edges: Sequence[Edge]) -> list[int]:
    """Return the nodes in a topological order that does not depend on how they are numbered.

    Where refinement leaves nodes alike, any of them is taken first. Layers that
    are alike in that way are interchangeable: parallel branches of one form. A graph
    built so that they are not could get two orders; it never shares one with another graph.

    Args:
        labels: of each node.
        edges: source, target and kind; the kind of an edge into a commutative node is
            the same whatever its position.
    """
    partition = _Partition(labels, edges)
    partition.refine()
    while (alike := partition.first_alike()) is not None:
        partition.single_out(alike)
        partition.refine()
    return _topological(partition.colour, edges)


def _topological(rank: Sequence[int], edges: Iterable[Edge]) -> list[int]:
    """Return the nodes so that sources come first, and else by rank."""
    waiting = [0] * len(rank)
    readers: list[list[int]] = [[] for _ in rank]
    for source, target, _ in edges:
        waiting[target] += 1
        readers[source].append(target)
    ready = [(rank[node], node) for node, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for target in readers[node]:
            waiting[target] -= 1
            if not waiting[target]:
                heapq.heappush(ready, (rank[target], target))
    return order


class _Partition:
    """Nodes by colour. Colours are numbered by content alone, never by a node's number."""

    def __init__(self, labels: Sequence[bytes], edges: Iterable[Edge]) -> None:
        ranks = {label: rank for rank, label in enumerate(sorted(set(labels)))}
        self.colour = [ranks[label] for label in labels]
        self._members: list[set[int]] = [set() for _ in ranks]
        for node, colour in enumerate(self.colour):
            self._members[colour].add(node)
        # Each edge is seen from both ends; the kinds of the two directions are kept apart.
        self._edges: list[list[tuple[int, tuple[int, int]]]] = [[] for _ in labels]
        for source, target, kind in edges:
            self._edges[source].append((target, (0, kind)))
            self._edges[target].append((source, (1, kind)))
        self._alike = [colour for colour, nodes in enumerate(self._members) if len(nodes) > 1]
        heapq.heapify(self._alike)
        self._queue = deque(range(len(self._members)))
        self._queued = set(self._queue)

    def first_alike(self) -> int | None:
        """Return the lowest colour that two or more nodes have."""
        while self._alike:
            if len(self._members[self._alike[0]]) > 1:
                return self._alike[0]
            heapq.heappop(self._alike)
        return None

    def single_out(self, colour: int) -> None:
        """Give one of the nodes of a colour a colour of its own."""
        self._enqueue(self._add({min(self._members[colour])}, colour))

    def refine(self) -> None:
        """Split colours until all nodes of one have the same edges to every colour."""
        if len(self._members) == len(self.colour):
            self._queue.clear()
        while self._queue:
            splitter = self._queue.popleft()
            self._queued.discard(splitter)
            self._split_by(splitter)

    def _split_by(self, splitter: int) -> None:
        links: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for node in self._members[splitter]:
            for other, kind in self._edges[node]:
                if len(self._members[self.colour[other]]) > 1:
                    links[other].append(kind)
        touched: dict[int, dict[tuple[tuple[int, int], ...], set[int]]] = defaultdict(dict)
        for node, kinds in links.items():
            parts = touched[self.colour[node]]
            parts.setdefault(tuple(sorted(kinds)), set()).add(node)
        for colour in sorted(touched):
            self._split(colour, touched[colour])

    def _split(self, colour: int, parts: dict[tuple[tuple[int, int], ...], set[int]]) -> None:
        keys = sorted(parts)
        untouched = len(self._members[colour]) - sum(len(nodes) for nodes in parts.values())
        if not untouched:
            keys = keys[1:]  # the first part keeps the colour
        made = [self._add(parts[key], colour) for key in keys]
        if not made:
            return
        pieces = [colour, *made]
        if colour not in self._queued:  # what the largest would split, the others do
            pieces.remove(max(pieces, key=lambda piece: (len(self._members[piece]), -piece)))
        for piece in pieces:
            self._enqueue(piece)

    def _add(self, nodes: set[int], old: int) -> int:
        new = len(self._members)
        self._members[old] -= nodes
        self._members.append(nodes)
        for node in nodes:
            self.colour[node] = new
        if len(nodes) > 1:
            heapq.heappush(self._alike, new)
        return new

    def _enqueue(self, colour: int) -> None:
        if colour not in self._queued:
            self._queued.add(colour)
            self._queue.append(colour)
