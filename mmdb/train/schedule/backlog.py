"""What is left of every candidate, in parts and in seconds, ranked, longest first."""

from __future__ import annotations

#: Steps between nothing and the longest. Within a step the lowest ordinal goes first.
LEVELS = 256


class Ranks:
    """Sets of candidates by level; a set is an integer with bit c for candidate c.

    Moving costs O(1), finding the longest of a set O(levels that hold anything).
    """

    __slots__ = ("_bits", "_sets", "filled", "scale")

    def __init__(self, longest_s: float) -> None:
        self.scale = (LEVELS - 1) / longest_s  # levels of a second
        self._sets = [0] * LEVELS
        self._bits = [1 << level for level in range(LEVELS)]
        self.filled = 0  # levels that hold anything

    @property
    def longest_s(self) -> float:
        """Return the seconds of the longest, rounded up by at most a level."""
        return self.filled.bit_length() / self.scale if self.filled else 0.0

    def move(self, bit: int, before: int, after: int) -> None:
        """Move a candidate from a level to another; a level below 0 is none."""
        if before >= 0:
            left = self._sets[before] ^ bit
            self._sets[before] = left
            if not left:
                self.filled ^= self._bits[before]
        if after >= 0:
            self._sets[after] |= bit
            self.filled |= self._bits[after]

    def top(self, among: int) -> int:
        """Return the longest candidate of a set that is not empty and is ranked."""
        filled, sets = self.filled, self._sets
        while True:
            level = filled.bit_length() - 1
            hit = sets[level] & among
            if hit:
                return (hit & -hit).bit_length() - 1
            filled ^= self._bits[level]


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
