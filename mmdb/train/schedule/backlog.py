"""What is left of every candidate, in parts and in seconds, ranked."""

from __future__ import annotations

from mmdb.train.schedule.ranks import LEVELS, Ranks

NOBODY = -1
#: The longest candidate keeps at least a quarter of the levels above 0.
COARSE = 1 << LEVELS // 4


class Backlog:
    """Candidates by number, with what they still have to do."""

    __slots__ = ("bits", "closed", "epoch", "goal", "left", "level", "load_s", "ranks", "weight")

    def __init__(self) -> None:
        self.bits: list[int] = []  # of each candidate: the set of it alone
        self.epoch: list[int] = []
        self.goal: list[int] = []  # epochs after which it rests
        self.closed: list[bool] = []
        self.left: list[int] = []  # parts until the goal
        self.weight: list[float] = []  # predicted seconds of a part
        self.level: list[int] = []  # in `ranks`; NOBODY for those that are at their goal or closed
        self.ranks, self.load_s = Ranks(1e-9), 0.0  # both of the others alone

    def active(self, c: int) -> bool:
        """Return whether a candidate is neither closed nor at its goal."""
        return not self.closed[c] and self.epoch[c] < self.goal[c]

    def remaining_s(self, c: int) -> float:
        """Return the predicted seconds of a candidate's work until its goal."""
        return self.left[c] * self.weight[c] if self.active(c) else 0.0

    def weigh(self, c: int, weight: float) -> None:
        """Set the predicted seconds of a candidate's part."""
        if self.level[c] >= 0:
            self.load_s += self.left[c] * (weight - self.weight[c])
        self.weight[c] = weight
        if self.level[c] >= 0:
            self.place(c)

    def lengthen(self, c: int, parts: int) -> None:
        """Add parts to what a candidate has to do, or with a negative number take them away."""
        self.left[c] += parts
        if self.level[c] >= 0:
            self.load_s += parts * self.weight[c]

    def rank(self, c: int) -> None:
        """Rank a candidate that is active, and no other."""
        active = self.active(c)
        if active and self.level[c] < 0:
            self.load_s += self.left[c] * self.weight[c]
        if active:
            self.place(c)
        elif self.level[c] >= 0:
            self.load_s -= self.left[c] * self.weight[c]
            self.ranks.move(self.bits[c], self.level[c], NOBODY)
            self.level[c] = NOBODY
            if not self.ranks.filled:
                self.load_s = 0.0  # rounding adds up
            self._refine()

    def place(self, c: int) -> None:
        """Put an active candidate on its level."""
        seconds, before = self.left[c] * self.weight[c], self.level[c]
        level = int(seconds * self.ranks.scale)
        if level >= LEVELS:
            self._rescale(2 * seconds)
            before, level = self.level[c], int(seconds * self.ranks.scale)
        self.level[c] = level
        self.ranks.move(self.bits[c], before, level)
        self._refine()

    def _refine(self) -> None:
        """Use finer levels where all candidates have come down to the lower ones."""
        if 0 < self.ranks.filled < COARSE:
            ranked = (c for c, level in enumerate(self.level) if level >= 0)
            longest_s = max(self.left[c] * self.weight[c] for c in ranked)
            if longest_s > 0:
                self._rescale(2 * longest_s)

    def _rescale(self, longest_s: float) -> None:
        self.ranks = Ranks(longest_s)
        for c, level in enumerate(self.level):
            if level >= 0:
                self.level[c] = int(self.left[c] * self.weight[c] * self.ranks.scale)
                self.ranks.move(self.bits[c], NOBODY, self.level[c])
