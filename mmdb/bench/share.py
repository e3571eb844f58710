"""How much of its full size a bench measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of a bench; those of benches with options of their own have them as fields.

    Attributes:
        share: above 0; of rows, runs, models, rounds and seconds, those of options too. At 1 they
            are what the bars are for.
    """

    share: float = 1.0

    @property
    def is_full(self) -> bool:
        """Whether nothing is left out."""
        return self.share >= 1

    def of(self, full: int, least: int = 1) -> int:
        """Return the share of a number, at least `least` or all there is."""
        return max(min(least, full), round(self.share * full))

    def time(self, full: float, least: float = 0.0) -> float:
        """Return the share of some seconds, at least `least` or all there are."""
        return max(min(least, full), self.share * full)

    def first(self, values: Sequence[_T], least: int = 1) -> Sequence[_T]:
        """Return the first of the values: their share, at least `least` or all there are."""
        return values[: self.of(len(values), least)]


FULL = Share()
