"""Interpolation on logarithmic axes, made never to fall: where no formula fits, as over caches."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from mmdb.plan.profile.fits.isotonic import rising
from mmdb.plan.profile.fits.points import Noise, Point, noise_of, usable


@dataclass(frozen=True, slots=True)
class Table:
    """Seconds over sizes; flat before the first size, in proportion after the last."""

    sizes: tuple[float, ...]
    values: tuple[float, ...]  # seconds
    noise: Noise

    def seconds(self, size: float) -> float:
        """Return the cost at a size."""
        sizes, values = self.sizes, self.values
        if size <= sizes[0]:
            return values[0]
        if size >= sizes[-1]:
            return values[-1] * (size / sizes[-1])
        k = bisect_right(sizes, size)
        share = math.log(size / sizes[k - 1]) / math.log(sizes[k] / sizes[k - 1])
        return values[k - 1] * math.pow(values[k] / values[k - 1], share)

    def rate(self, size: float) -> float:
        """Return the units of size a second."""
        return max(0.0, size) / self.seconds(size)


def fit_table(points: Iterable[Point]) -> Table:
    """Return the rising curve that is closest to the points.

    Raises:
        ValueError: there is no point of a size above 0.
    """
    found = usable(p for p in points if p.size > 0)
    logs = rising([math.log(p.seconds) for p in found], [1.0] * len(found))
    values = tuple(math.exp(value) for value in logs)
    return Table(tuple(p.size for p in found), values, noise_of(found, values))
