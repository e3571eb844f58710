"""Whether two runs of the same search, or two trainings of a head, came to the same. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import torch
from torch import Tensor

from mmdb.bench.figures import Figure

#: Objectives and weights that differ by no more are taken for equal: features that pass the frozen
#: layers in other batches are rounded differently.
TOLERANCE = 1e-6


def largest_gap(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float:
    """Return the largest difference of two runs' objectives, by candidate; inf where one lacks."""
    if ours.keys() != theirs.keys() or not ours:
        return float("inf")
    return max(abs(ours[k] - theirs[k]) for k in ours)


def swapped(
    ours: Mapping[int, float], theirs: Mapping[int, float], tolerance: float = TOLERANCE
) -> int:
    """Return how many pairs of candidates stand the other way round on two leaderboards.

    A pair whose objectives are closer than the tolerance on either board is a tie, and stands
    either way.
    """
    count = 0
    for a, b in combinations(ours, 2):
        here, there = ours[a] - ours[b], theirs[a] - theirs[b]
        count += here * there < 0 and min(abs(here), abs(there)) > tolerance
    return count


def within(name: str, difference: float) -> Figure:
    """Return a figure of a difference, which is not to be above the tolerance."""
    return Figure(
        name=name,
        value=difference / TOLERANCE,
        unit=f"{TOLERANCE:g}",
        bar="<= 1",
        holds=difference <= TOLERANCE,
    )


def equal_bits(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> bool:
    """Return whether two state dicts are the same, bit for bit."""
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def largest_difference(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> float:
    """Return the largest difference of two weights of the same place; inf where a place is not."""
    if ours.keys() != theirs.keys():
        return float("inf")
    return max((float((ours[k] - theirs[k]).abs().max()) for k in ours), default=0.0)
