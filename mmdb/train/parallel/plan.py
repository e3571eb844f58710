"""Which rows each member of a group learns from in each step. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate as running
from itertools import pairwise

from torch import Tensor

from mmdb.train.compute.portions import Planner, Portion, steps


def portion_sizes(rows: Sequence[int], batch_size: int) -> list[tuple[int, ...]]:
    """Return how many rows each rank puts through in each batch of the group.

    There are ceil(sum(rows) / batch_size) batches, and each rank's rows are split among them as
    evenly as can be. A portion has two rows or more, or none: BatchNorm cannot learn from a single
    row. Where that leaves a rank with fewer portions than batches, they are spread, and ranks take
    turns.

    Args:
        rows: of each rank's partition, at least 1.
        batch_size: of the group, not of a rank.

    >>> portion_sizes([6, 5], 4)
    [(2, 2), (2, 0), (2, 3)]
    >>> portion_sizes([4, 4], 2)
    [(2, 0), (0, 2), (2, 0), (0, 2)]
    """
    batches = -(-sum(rows) // batch_size)
    found = [[0] * len(rows) for _ in range(batches)]
    for rank, count in enumerate(rows):
        pieces = min(batches, max(1, count // 2))
        for piece in range(pieces):
            batch = (piece * len(rows) + rank) * batches // (pieces * len(rows))
            found[batch][rank] = (piece + 1) * count // pieces - piece * count // pieces
    return [tuple(sizes) for sizes in found if any(sizes)]


def group_plan(rows: Sequence[int], rank: int, batch_size: int, accumulate: int = 1) -> Planner:
    """Return the plan of one rank's pass, which has as many steps as that of each other rank.

    A step takes `accumulate` batches of the group. A portion's share is its part of all rows of
    the step, so that the sum of the ranks' gradients is that of the mean loss over those rows. A
    group of one has the plan of an ordinary hop.

    Args:
        rows: of each rank's partition, in rank order.
        batch_size: of the group, not of a rank.
    """
    if len(rows) == 1:
        return lambda order: steps(order, batch_size, accumulate)
    batches = portion_sizes(rows, batch_size)
    ends = [0, *running(sizes[rank] for sizes in batches)]

    def plan(order: Tensor) -> list[list[Portion]]:
        parts = [order[low:high] for low, high in pairwise(ends)]
        found = []
        for first in range(0, len(batches), accumulate):
            chosen = slice(first, first + accumulate)
            total = sum(map(sum, batches[chosen]))
            found.append([Portion(part, len(part) / total) for part in parts[chosen]])
        return found

    return plan
