"""The outlines of a zoo that a child has most in common with: branch and bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.match.align import Alignment, align_with, child_of
from mmdb.graph.match.bound import upper_bounds
from mmdb.graph.match.pack import Packed
from mmdb.graph.match.program import best_of, room_of
from mmdb.graph.match.zoo import PackedZoo


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A parent that was found.

    Attributes:
        number, key: in the zoo.
        is_same: whether it was found by its key; its score is 1 then.
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
class Found:
    """The answer of a search, and for how many outlines it had to look beyond the bound."""

    matches: list[Match]
    looked_at: int


def search(
    child: Packed,
    zoo: PackedZoo,
    k: int,
    *,
    key: bytes | None = None,
    among: NDArray[np.bool_] | None = None,
) -> list[Match]:
    """Return the k best outlines, best first; among equal scores the ones that were added first.

    Args:
        key: of the child's architecture; the outline that has it comes first.
        among: (Z,) which outlines to look at; all without it.
    """
    return explore(child, zoo, k, key=key, among=among).matches


def explore(
    child: Packed,
    zoo: PackedZoo,
    k: int,
    *,
    key: bytes | None = None,
    among: NDArray[np.bool_] | None = None,
) -> Found:
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
            alignment=align_with(made, zoo, number),
        )
        for number in found
    ]
    return Found(matches=matches, looked_at=looked_at)
