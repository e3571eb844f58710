"""Bundles: candidates that train on the same input, and so can do a hop together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mmdb.train.schedule.standing import Standing

#: Once so many hops have failed that it did together with others, a candidate hops alone for good.
MAX_APART = 3


class Bundles:
    """Which candidates share what; sets of candidates as integers with one bit a member.

    Attributes:
        members: bundle -> its candidates.
    """

    __slots__ = ("_apart", "_bundle_of", "_failed", "members")

    def __init__(self) -> None:
        self.members: dict[int, int] = {}
        self._bundle_of: dict[int, int] = {}
        self._apart = 0  # candidates that hop alone for the present
        self._failed: Counter[int] = Counter()  # hops together that failed, by candidate

    def join(self, c: int, bundle: int) -> None:
        """Put a candidate into a bundle, and out of the one that it was in."""
        before = self._bundle_of.get(c)
        if before is not None:
            self.members[before] ^= 1 << c
        self._bundle_of[c] = bundle
        self.members[bundle] = self.members.get(bundle, 0) | 1 << c

    def mates(self, c: int) -> int:
        """Return the candidates of a candidate's bundle, itself included; 0 where it has none."""
        bundle = self._bundle_of.get(c)
        return 0 if bundle is None else self.members[bundle]

    def best(self, standing: Standing, c: int, among: int, can: int) -> tuple[int, int]:
        """Return which of a candidate's bundle is to start, and the part: one that most wait for.

        Those that are furthest behind go first, so that the others are there when they validate.

        Args:
            among: candidates that a worker could take, `c` among them.
            can: parts that it finds.
        """
        mates = self.mates(c) & among & ~self._apart
        behind, group = (standing.epoch[c], standing.stage[c]), 0
        while mates:
            bit = mates & -mates
            mates ^= bit
            other = bit.bit_length() - 1
            place = (standing.epoch[other], standing.stage[other])
            if place < behind and standing.may[other] & can:
                behind, group = place, 0
            if place == behind:
                group |= bit
        found, most = -1, 0
        for part, needed in enumerate(standing.needs):
            count = (needed & group).bit_count() if can >> part & 1 else 0
            if count > most:
                found, most = part, count
        waiting = standing.needs[found] & group
        if not most or waiting >> c & 1:
            return c, found
        return (waiting & -waiting).bit_length() - 1, found

    def companions(
        self, standing: Standing, c: int, worker: int, part: int, most: int
    ) -> tuple[int, ...]:
        """Return the others of a bundle that wait for the part which a candidate has just started.

        In the same epoch, and at most `most`: those whose state the worker holds go first, then
        those with the lowest numbers. They come in the order of their numbers.
        """
        if most < 1 or self._apart >> c & 1:
            return ()
        waiting = standing.loose | standing.pinned[worker]
        found = self.mates(c) & standing.needs[part] & waiting & ~self._apart
        held = found & standing.homed[worker]
        chosen: list[int] = []
        for some in (held, found ^ held):
            while some and len(chosen) < most:
                bit = some & -some
                some ^= bit
                other = bit.bit_length() - 1
                if standing.epoch[other] == standing.epoch[c]:
                    chosen.append(other)
        return tuple(sorted(chosen))

    def part(self, candidates: Iterable[int]) -> None:
        """Let candidates whose hop together failed hop alone, so that the one at fault is found."""
        for c in candidates:
            self._apart |= 1 << c
            self._failed[c] += 1

    def hopped_alone(self, c: int) -> None:
        """Let a candidate that has done a hop alone hop together with others again."""
        if self._apart >> c & 1 and self._failed[c] < MAX_APART:
            self._apart ^= 1 << c
