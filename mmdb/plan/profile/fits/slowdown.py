"""How much slower each worker is where several are busy on one machine."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from mmdb.plan.profile.fits.isotonic import rising
from mmdb.plan.profile.fits.points import Noise, Point, noise_of, usable


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Factors of a step's time at counts of busy workers; 1 at the first count, never falling."""

    counts: tuple[float, ...]
    factors: tuple[float, ...]
    noise: Noise

    def at(self, workers: int, cores: int = 1) -> float:
        """Return the factor at a count of busy workers.

        Beyond the counts measured, workers share what was there: from the cores on, or from the
        largest count where that is more, each one more slows all in proportion.
        """
        counts, factors = self.counts, self.factors
        if workers <= counts[0]:
            return 1.0
        if workers >= counts[-1]:
            return factors[-1] * max(1.0, workers / max(counts[-1], cores))
        k = bisect_left(counts, workers)
        share = (workers - counts[k - 1]) / (counts[k] - counts[k - 1])
        return factors[k - 1] + share * (factors[k] - factors[k - 1])

    def upto(self, workers: int, cores: int = 1) -> tuple[float, ...]:
        """Return the factors at 1, 2, ... `workers`."""
        return tuple(self.at(count, cores) for count in range(1, workers + 1))


def fit_slowdown(points: Iterable[Point]) -> Slowdown:
    """Return the factors of points whose sizes are counts of busy workers.

    Raises:
        ValueError: there is no point of a count above 0.
    """
    found = usable(p for p in points if p.size >= 1)
    logs = rising([math.log(p.seconds) for p in found], [float(p.samples) for p in found])
    fitted = [math.exp(value) for value in logs]
    factors = tuple(max(1.0, seconds / fitted[0]) for seconds in fitted)
    return Slowdown(tuple(p.size for p in found), factors, noise_of(found, fitted))
