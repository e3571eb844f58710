"""Where the nodes of a graph stand: layers from top to bottom, with few crossings. Pure.

Source: Sugiyama, Tagawa and Toda 1981 (layers, barycentres); places within a layer by pooling
adjacent violators.
The bound of a layer's width as in Coffman and Graham 1972.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: (parent, child).
Edge = tuple[str, str]


def acyclic(nodes: Sequence[str], edges: Sequence[Edge]) -> list[Edge]:
    """Return the edges, those that close a cycle turned round; without repetition."""
    children: dict[str, list[str]] = {node: [] for node in nodes}
    for parent, child in edges:
        children[parent].append(child)
    entered = {child for _, child in edges}
    state: dict[str, int] = {}  # 1: on the path, 2: done
    back: set[Edge] = set()
    for root in [*(n for n in nodes if n not in entered), *nodes]:
        if root in state:
            continue
        state[root] = 1
        path = [(root, iter(children[root]))]
        while path:
            node, rest = path[-1]
            for child in rest:
                if child not in state:
                    state[child] = 1
                    path.append((child, iter(children[child])))
                    break
                if state[child] == 1:
                    back.add((node, child))
            else:
                state[node] = 2
                path.pop()
    return list(dict.fromkeys((c, p) if (p, c) in back else (p, c) for p, c in edges))


def layers_of(nodes: Sequence[str], edges: Sequence[Edge], most: int) -> dict[str, int]:
    """Return a layer for each node, below all parents, at most so many nodes in one."""
    parents: dict[str, list[str]] = {node: [] for node in nodes}
    children: dict[str, list[str]] = {node: [] for node in nodes}
    for parent, child in edges:
        parents[child].append(parent)
        children[parent].append(child)
    longest = _longest(nodes, parents, children)
    # A node without parents stands just above its first child, not at the top of all.
    for node in nodes:
        if not parents[node] and children[node]:
            longest[node] = min(longest[child] for child in children[node]) - 1
    found: dict[str, int] = {}
    taken: dict[int, int] = {}
    # What came of a node follows it at once: where there is too much for one layer, a branch goes
    # on below the one before, and edges between its nodes stay short.
    for node in _branches([node for node in nodes if not parents[node]], children):
        above = (found[parent] + 1 for parent in parents[node])
        place = max([longest[node], *above])
        while taken.get(place, 0) >= most:
            place += 1
        found[node] = place
        taken[place] = taken.get(place, 0) + 1
    used = {place: k for k, place in enumerate(sorted(taken))}
    return {node: used[place] for node, place in found.items()}


def _branches(roots: Sequence[str], children: Mapping[str, list[str]]) -> list[str]:
    """Return all nodes, parents before children, each branch as far down as it goes by itself."""
    ended: list[str] = []
    seen: set[str] = set()
    for root in reversed(roots):
        path = [(root, reversed(children[root]))]
        seen.add(root)
        while path:
            node, rest = path[-1]
            child = next((one for one in rest if one not in seen), None)
            if child is None:
                ended.append(node)
                path.pop()
            else:
                seen.add(child)
                path.append((child, reversed(children[child])))
    return ended[::-1]


def _longest(
    nodes: Sequence[str], parents: Mapping[str, list[str]], children: Mapping[str, list[str]]
) -> dict[str, int]:
    """Return the number of edges on the longest path to each node."""
    left = {node: len(parents[node]) for node in nodes}
    ready = [node for node in nodes if not left[node]]
    found = dict.fromkeys(nodes, 0)
    for node in ready:  # grows while it is read
        for child in children[node]:
            found[child] = max(found[child], found[node] + 1)
            left[child] -= 1
            if not left[child]:
                ready.append(child)
    return found


#: Passes down and up that look for an order with fewer crossings, and that move nodes to the middle
#: of their neighbours.
SWEEPS = 8
#: Room that a bend of an edge takes in its layer; a node takes 1.
BEND = 0.12
#: Weight of a bend against a node's: long edges are straight.
STRAIGHT = 8.0
#: Bends that are laid out at most; edges beyond are drawn straight.
BENDS = 4000


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """Places of a graph: `across` within a layer in widths of a node, `layer` from 0 at the top."""

    across: Mapping[str, float]
    layer: Mapping[str, int]
    paths: Mapping[Edge, tuple[tuple[float, int], ...]]  # bends from parent to child, ends left out
    width: float  # widths of a node
    layers: int


def layered(nodes: Sequence[str], edges: Iterable[Edge], most: int = 5) -> GraphLayout:
    """Return a layout in which edges go down; of a cycle, one edge goes up.

    The same nodes and edges in the same order give the same layout.

    Args:
        nodes: without repetition.
        edges: (parent, child); those of other nodes, and of a node to itself, are left out.
        most: nodes in a layer.
    """
    known = set(nodes)
    given = [e for e in dict.fromkeys(edges) if e[0] != e[1] and e[0] in known and e[1] in known]
    down = acyclic(nodes, given)
    layer = layers_of(nodes, down, most)
    chains = _chains(down, layer)
    rows = _rows(nodes, layer, chains)
    links = _links(down, chains)
    _order(rows, links)
    width = max(map(_length, rows), default=0.0)
    across = _across(rows, links, width)
    paths = {}
    for parent, child in given:
        forward = (parent, child) in chains
        bends = chains[(parent, child)] if forward else chains[(child, parent)][::-1]
        paths[(parent, child)] = tuple((across[bend], _layer_of(bend)) for bend in bends)
    return GraphLayout(
        across={node: across[node] for node in nodes},
        layer=layer,
        paths=paths,
        width=width,
        layers=len(rows),
    )


class _Bend(str):
    """A place that an edge passes on its way through a layer; edges of one parent share it."""

    __slots__ = ("layer",)
    layer: int


def _room(node: str) -> float:
    return BEND if isinstance(node, _Bend) else 1.0


def _layer_of(bend: str) -> int:
    assert isinstance(bend, _Bend)
    return bend.layer


def _chains(edges: Sequence[Edge], layer: Mapping[str, int]) -> dict[Edge, list[str]]:
    """Return the bends of each edge, one for each layer that it passes."""
    bends: dict[tuple[str, int], str] = {}
    found: dict[Edge, list[str]] = {}
    for parent, child in edges:
        chain = []
        passed = range(layer[parent] + 1, layer[child])
        if len(bends) + len(passed) <= BENDS:
            for place in passed:
                if (parent, place) not in bends:
                    bend = _Bend(f"{parent}\0{place}")
                    bend.layer = place
                    bends[(parent, place)] = bend
                chain.append(bends[(parent, place)])
        found[(parent, child)] = chain
    return found


def _rows(
    nodes: Sequence[str], layer: Mapping[str, int], chains: Mapping[Edge, list[str]]
) -> list[list[str]]:
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for node in nodes:
        rows[layer[node]].append(node)
    for bend in dict.fromkeys(bend for chain in chains.values() for bend in chain):
        rows[_layer_of(bend)].append(bend)
    return rows


@dataclass(frozen=True, slots=True)
class _Links:
    """Neighbours in the layers next to a node's own."""

    above: Mapping[str, list[str]]
    below: Mapping[str, list[str]]


def _links(edges: Sequence[Edge], chains: Mapping[Edge, list[str]]) -> _Links:
    pairs: dict[Edge, None] = {}
    for parent, child in edges:
        stops = [parent, *chains[(parent, child)], child]
        pairs.update(dict.fromkeys(pairwise(stops)))
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for one, other in pairs:
        above.setdefault(other, []).append(one)
        below.setdefault(one, []).append(other)
    return _Links(above, below)


def _order(rows: list[list[str]], links: _Links) -> None:
    """Sort each row by the middle of its neighbours, down and up; keep the fewest crossings."""
    best, fewest = [list(row) for row in rows], _crossings(rows, links)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        downwards = sweep % 2 == 0
        beside = links.above if downwards else links.below
        places = range(1, len(rows)) if downwards else range(len(rows) - 2, -1, -1)
        for k in places:
            fixed = rows[k - 1] if downwards else rows[k + 1]
            at = {node: place for place, node in enumerate(fixed)}
            rows[k].sort(key=_barycentre(rows[k], beside, at).__getitem__)
        count = _crossings(rows, links)
        if count < fewest:
            best, fewest = [list(row) for row in rows], count
    rows[:] = best


def _barycentre(
    row: Sequence[str], beside: Mapping[str, list[str]], at: Mapping[str, int]
) -> dict[str, float]:
    """Return the mean place of each node's neighbours; a node without any stays where it is."""
    found = {}
    for place, node in enumerate(row):
        near = [at[other] for other in beside.get(node, ()) if other in at]
        found[node] = sum(near) / len(near) if near else float(place)
    return found


def _crossings(rows: Sequence[Sequence[str]], links: _Links) -> int:
    count = 0
    for upper, lower in pairwise(rows):
        at = {node: place for place, node in enumerate(lower)}
        seen: list[int] = []
        for node in upper:
            ends = sorted(at[other] for other in links.below.get(node, ()) if other in at)
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


def _across(rows: Sequence[Sequence[str]], links: _Links, width: float) -> dict[str, float]:
    """Return the left edge of each node, near the middle of its neighbours, none over another."""
    middle = {}
    for row in rows:
        left = (width - _length(row)) / 2
        for node in row:
            middle[node] = left + _room(node) / 2
            left += _room(node)
    for sweep in range(SWEEPS):
        beside = links.above if sweep % 2 == 0 else links.below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = []
            for node in row:
                near = [middle[other] for other in beside.get(node, ())]
                wanted.append(sum(near) / len(near) if near else middle[node])
            middle.update(zip(row, _apart(row, wanted, width), strict=True))
    return {node: middle[node] - _room(node) / 2 for row in rows for node in row}


def _length(row: Sequence[str]) -> float:
    return sum(map(_room, row))


def _apart(row: Sequence[str], wanted: Sequence[float], width: float) -> list[float]:
    """Return middles next to those wanted, by least squares, with room for each, within a width."""
    starts = [_room(row[0]) / 2]  # middles of the row at the left, without gaps
    for one, other in pairwise(row):
        starts.append(starts[-1] + (_room(one) + _room(other)) / 2)
    blocks: list[tuple[float, float, int]] = []  # mean shift, weight, members
    for node, want, start in zip(row, wanted, starts, strict=True):
        weight = STRAIGHT if isinstance(node, _Bend) else 1.0
        shift, members = want - start, 1
        while blocks and blocks[-1][0] > shift:
            mean, heavy, count = blocks.pop()
            shift = (mean * heavy + shift * weight) / (heavy + weight)
            weight, members = weight + heavy, members + count
        blocks.append((shift, weight, members))
    most = width - _length(row)
    shifts = [min(max(shift, 0.0), most) for shift, _, members in blocks for _ in range(members)]
    return [start + shift for start, shift in zip(starts, shifts, strict=True)]
