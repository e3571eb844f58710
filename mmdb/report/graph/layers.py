"""Which layer each node of a graph is in: edges go down, and no layer has too many nodes. Pure.

Source: the bound of a layer's width as in Coffman and Graham 1972.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
