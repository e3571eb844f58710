"""The dimensions of a search space: listed values and ranges. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmdb.arguments import is_number
from mmdb.errors import EmptySearch, InvalidHyperparameter
from mmdb.messages import show

#: Ends of a range; beyond them the width of a range is infinite.
LARGEST = 1e300
#: How far a number of a range moves when it is changed at random (Jaderberg et al. 2017).
FACTORS = (0.8, 1.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Values to choose from; a single one is not searched."""

    values: tuple[Any, ...]

    def draw(self, source: random.Random) -> Any:
        """Return one of the values, each as likely."""
        return source.choice(self.values)

    def ends(self) -> tuple[Any, ...]:
        """Return the values that must be tried to know that all can train: every one."""
        return self.values

    def move(self, value: Any, source: random.Random) -> Any:
        """Return a neighbour of a value in the list."""
        place = self.values.index(value) + source.choice((-1, 1))
        return self.values[min(max(place, 0), len(self.values) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Numbers from `low` to `high`, evenly or evenly in the logarithm."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, source: random.Random) -> float:
        """Return a number of the range."""
        if self.log:
            value = math.exp(source.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = source.uniform(self.low, self.high)
        return self._inside(value) if self.whole else value

    def ends(self) -> tuple[float, ...]:
        """Return the least and the greatest number."""
        low, high = (
            (math.ceil(self.low), math.floor(self.high)) if self.whole else (self.low, self.high)
        )
        return (low,) if low == high else (low, high)

    def move(self, value: float, source: random.Random) -> float:
        """Return a number by a fifth below or above, by at least 1 where numbers are whole."""
        factor = source.choice(FACTORS)
        moved = value * factor
        if self.whole and abs(moved - value) < 1:
            moved = value + math.copysign(1, factor - 1)
        return self._inside(moved)

    def _inside(self, value: float) -> float:
        if self.whole:
            return min(max(round(value), math.ceil(self.low)), math.floor(self.high))
        return min(max(value, self.low), self.high)


Dimension = Values | Range


def parse_dimension(name: str, given: Any) -> Dimension:
    """Return a dimension: a list of values, a single value, or a range.

    Raises:
        EmptySearch: the list is empty.
        InvalidHyperparameter: what has a "low" is no range.
    """
    if isinstance(given, Mapping) and "low" in given:
        return _range(name, given)
    values = given if isinstance(given, list) else [given]
    if not values:
        raise EmptySearch(f"The dimension {name!r} of the search space has no value.")
    return Values(values=tuple(values))


def _range(name: str, given: Mapping[str, Any]) -> Range:
    low, high = given["low"], given.get("high", math.nan)
    log, whole = given.get("log", False), given.get("whole", False)
    if (
        set(given) - {"low", "high", "log", "whole"}
        or not all(map(_is_end, (low, high)))
        or not isinstance(log, bool)
        or not isinstance(whole, bool)
        or not low <= high
        or (log and low <= 0)
        or (whole and math.ceil(low) > math.floor(high))
    ):
        raise InvalidHyperparameter(
            f"The range of {name} is {show(dict(given))}.",
            hint='{"low": 1e-4, "high": 0.1, "log": true}; log needs low > 0; "whole" rounds.',
        )
    return Range(low=low, high=high, log=log, whole=whole)


def _is_end(value: Any) -> bool:
    return is_number(value, -LARGEST, LARGEST)
