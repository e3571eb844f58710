"""The skeletons of a zoo that a child has most in common with: branch and bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.match.alignment import Alignment, align_with, alignment_with_itself, child_of
from mmdb.graph.match.pack import PackedSkeleton
from mmdb.graph.match.packed_zoo import PackedZoo
from mmdb.graph.match.program import best_of, room_of
from mmdb.graph.match.score import PIECES, SIZE_PIECES

# Sums of float32 and whole values of 1/SCALE are off by less than this.
_SLACK = 1e-4


def upper_bounds(child: PackedSkeleton, zoo: PackedZoo) -> NDArray[np.float64]:
    """Return (Z,) numbers that are at least the scores of the child with each skeleton.

    score <= 1/2 min(T_P, T_C, sum of min(H_P, H_C) over the parameters' features) / T*
           + 1/2 min(N_P, N_C, sum of min(H_P, H_C) over the sizes' features) / N*
    """
    count = len(zoo)
    alike, shared = np.zeros(count, np.float32), np.zeros(count, np.float32)
    least = np.empty(count, np.float32)
    for feature, mass in zip(child.feature.tolist(), child.mass, strict=True):
        column = zoo.column(feature)
        if column is not None:
            np.minimum(column, mass, out=least)
            total = alike if feature % PIECES < SIZE_PIECES else shared
            total += least
    own = child.labels
    weight, parameters = own.weight @ child.counts, own.parameters @ child.counts
    arrays = zoo.sequences
    by_count = _share(alike, arrays.weight, float(weight))
    by_parameters = _share(shared, arrays.parameters, float(parameters))
    without = np.maximum(arrays.parameters, parameters) == 0
    found = np.where(without, by_count, (by_count + by_parameters) / 2)
    found = np.where(np.maximum(arrays.weight, weight) == 0, 1.0, found)  # nothing is all alike
    bounds: NDArray[np.float64] = np.minimum(1.0, found * (1 + _SLACK) + _SLACK / 100)
    return bounds


def _share(
    overlap: NDArray[np.float32], theirs: NDArray[np.float64], own: float
) -> NDArray[np.float64]:
    most = np.minimum(overlap.astype(np.float64) * (1 + _SLACK), np.minimum(theirs, own))
    found: NDArray[np.float64] = most / np.maximum(1.0, np.maximum(theirs, own))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A parent that was found.

    Attributes:
        number, key: in the zoo.
        is_same: whether it was found by its key; its score is 1 then, and layers are paired with
            themselves.
    """

    number: int
    key: bytes
    is_same: bool
    alignment: Alignment

    @property
    def score(self) -> float:
        """How alike child and parent are, from 0 to 1."""
        return 1.0 if self.is_same else self.alignment.score


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMatches:
    """The answer of a search, and for how many skeletons it had to look beyond the bound."""

    matches: list[Match]
    looked_at: int


def search(
    child: PackedSkeleton,
    zoo: PackedZoo,
    k: int,
    *,
    key: bytes | None = None,
    among: NDArray[np.bool_] | None = None,
) -> list[Match]:
    """Return the k best skeletons, best first; among equal scores the ones that were added first.

    Args:
        key: of the child's architecture; the skeleton that has it comes first.
        among: (Z,) which skeletons to look at; all without it.
    """
    return explore(child, zoo, k, key=key, among=among).matches


def explore(
    child: PackedSkeleton,
    zoo: PackedZoo,
    k: int,
    *,
    key: bytes | None = None,
    among: NDArray[np.bool_] | None = None,
) -> FoundMatches:
    """Do what `search` does, and say how much it took."""
    wanted = np.ones(len(zoo), np.bool_) if among is None else among.copy()
    same = None if key is None else zoo.find(key)
    if same is not None and wanted[same] and k > 0:
        wanted[same] = False
        k -= 1
    else:
        same = None
    made = child_of(child)
    numbers = np.flatnonzero(wanted)
    best = np.full(max(0, min(k, len(numbers))), -1, np.int64)
    looked_at = 0
    if len(best):
        bounds = upper_bounds(child, zoo)[numbers]
        falling = np.argsort(-bounds, kind="stable")
        numbers, bounds = numbers[falling], bounds[falling]
        scores = np.full(len(best), -1.0)
        room = room_of(made.orders, zoo.sequences)
        looked_at = best_of(made.orders, zoo.sequences, numbers, bounds, best, scores, *room)
    found = [*([] if same is None else [same]), *best.tolist()]
    matches = [
        Match(
            number=number,
            key=zoo.keys[number],
            is_same=number == same,
            alignment=(
                alignment_with_itself(child) if number == same else align_with(made, zoo, number)
            ),
        )
        for number in found
    ]
    return FoundMatches(matches=matches, looked_at=looked_at)
