"""Candidates ranked by the seconds that they still need, longest first."""

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
