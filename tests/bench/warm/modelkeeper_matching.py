"""ModelKeeper's alignment of a parent's operations with a child's.

Source: SymbioticLab/ModelKeeper at 9212bc7, modelkeeper/backend/matcher.cpp (`align_child_parent`,
    `merge_branch_mapping`, `cal_score`) and modelkeeper/matcher.py (`backtrack`, `get_mappings`).
"""

from __future__ import annotations

import heapq
from math import prod

from tests.bench.warm.modelkeeper_graph import Node, sorted_for_matching

MATCH, INSERT, OTHER = 1, 0, -1
INSERT_GAP, DELETE_GAP, MISMATCH = -0.25, -1.0, -1.0

Place = tuple[int, int]
#: Score, operation, where it comes from.
Candidate = tuple[float, int, Place]


def aligned(
    parent: list[Node], child: list[Node], *, integers: bool
) -> tuple[float, list[tuple[int, int]]]:
    """Return the score over the child's length, and the matched (parent, child) operations.

    Args:
        integers: divide parameter counts as the original's C++ does, where each width change makes
            a mismatch; else as real numbers.
    """
    parent_order, child_order = sorted_for_matching(parent), sorted_for_matching(child)
    parents, befores = _numbered(parent, parent_order)
    children, child_befores = _numbered(child, child_order)
    scores = _borders(befores, child_befores)
    back: dict[Place, list[Place]] = {}
    for i, here in enumerate(parents):
        for j, there in enumerate(children):
            match = _match(here, there, integers)
            branches = [
                _candidates(scores, i, j, k, befores[i], match, len(child_befores[j]) > 1)
                for k in child_befores[j]
            ]
            scores[i + 1][j + 1], back[i + 1, j + 1] = _merged(branches)
    pairs = _traced(back, parents, children)
    score = scores[-1][-1] / len(children)
    return score, [(parent_order[i], child_order[j]) for i, j in pairs]


def _numbered(nodes: list[Node], order: list[int]) -> tuple[list[Node], list[list[int]]]:
    """Return nodes in an order, and the places of each one's inputs there, [-1] for none."""
    place = {k: position for position, k in enumerate(order)}
    befores = [sorted(place[b] for b in nodes[k].before) or [-1] for k in order]
    return [nodes[k] for k in order], befores


def _borders(befores: list[list[int]], child_befores: list[list[int]]) -> list[list[float]]:
    scores = [[0.0] * (len(child_befores) + 1) for _ in range(len(befores) + 1)]
    for i, before in enumerate(befores):
        scores[i + 1][0] = max(scores[m + 1][0] for m in before) + DELETE_GAP
    for j, before in enumerate(child_befores):
        scores[0][j + 1] = max(scores[0][k + 1] for k in before) + INSERT_GAP
    return scores


def _match(parent: Node, child: Node, integers: bool) -> float:
    if parent.op != child.op or len(parent.dims) != len(child.dims):
        return MISMATCH
    shared = prod(map(min, parent.dims, child.dims))
    ours, theirs = prod(child.dims), prod(parent.dims)
    larger = max(ours, theirs)
    share = float(shared // larger if integers else shared / larger)
    if theirs > ours:
        share /= 1.2
    return share if share > 0.3 else MISMATCH


def _candidates(
    scores: list[list[float]],
    i: int,
    j: int,
    k: int,
    before: list[int],
    match: float,
    branched: bool,
) -> list[Candidate]:
    """Return the ways to come to parent i and child j from the child's input k, best first."""
    found: list[Candidate] = [(scores[i + 1][k + 1] + INSERT_GAP, INSERT, (i + 1, k + 1))]
    for m in before:
        kind = MATCH if match > 0 else OTHER
        found.append((scores[m + 1][k + 1] + match, kind, (m + 1, k + 1)))
        if not branched:
            found.append((scores[m + 1][j + 1] + DELETE_GAP, OTHER, (m + 1, j + 1)))
    return sorted(found, key=lambda each: (-each[0], -each[1]))


def _merged(branches: list[list[Candidate]]) -> tuple[float, list[Place]]:
    """Return the sum of the branches' best candidates, no two from the same parent operation."""
    queue = [(-each[0][0], branch, 0) for branch, each in enumerate(branches)]
    heapq.heapify(queue)
    total, taken, used = 0.0, [], set()
    while queue:
        _, branch, rank = heapq.heappop(queue)
        score, _, place = branches[branch][rank]
        if place[0] not in used:
            used.add(place[0])
            total += score
            taken.append(place)
        elif rank + 1 < len(branches[branch]):
            heapq.heappush(queue, (-branches[branch][rank + 1][0], branch, rank + 1))
    return total, taken


def _traced(
    back: dict[Place, list[Place]], parents: list[Node], children: list[Node]
) -> list[tuple[int, int]]:
    """Return matched places from the first operation to the last, each used once."""
    start = (len(parents), len(children))
    stack, seen, found = [start], {start}, []
    while stack:
        i, j = stack.pop()
        steps = back.get((i, j), [])
        gap = any(i == m or j == k for m, k in steps)
        if i and j and not gap and parents[i - 1].op == children[j - 1].op:
            found.append((i - 1, j - 1))
        for step in steps:
            if step != (0, 0) and step not in seen:
                stack.append(step)
                seen.add(step)
    pairs: list[tuple[int, int]] = []
    used_parents, used_children = set(), set()
    for i, j in reversed(found):
        if i not in used_parents and j not in used_children:
            pairs.append((i, j))
            used_parents.add(i)
            used_children.add(j)
    return pairs
