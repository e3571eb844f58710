"""rate = peak * size / (size + half): what a processor does in a second, over an operation's size.

The same curve in seconds is a line, (size + half) / peak, which is how it is fitted: small
operations pay `half / peak` seconds whatever they do, large ones run at the peak.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from mmdb.plan.profile.fits.line import fit_line
from mmdb.plan.profile.fits.points import Noise, Point


@dataclass(frozen=True, slots=True)
class RateCurve:
    """A rate that rises with the size and saturates."""

    peak: float  # units of size a second
    half: float  # size at which half of the peak is reached
    noise: Noise

    def rate(self, size: float) -> float:
        """Return the rate at a size; 0 at size 0 where small sizes pay a fixed cost."""
        if size <= 0:
            return 0.0 if self.half else self.peak
        return self.peak * (size / (size + self.half))

    def seconds(self, size: float) -> float:
        """Return what an operation of a size takes."""
        return (max(0.0, size) + self.half) / self.peak


def fit_rate(points: Iterable[Point]) -> RateCurve:
    """Return the curve with the least relative errors.

    Points whose times do not grow with the size give the rate of the largest one for a peak.

    Raises:
        ValueError: there is no point of a size above 0.
    """
    found = [p for p in points if 0 < p.size < inf]
    line = fit_line(found)
    if line.unit_s > 0:
        return RateCurve(1 / line.unit_s, line.fixed_s / line.unit_s, line.noise)
    largest = max(p.size for p in found)
    # As seen, no size costs more than another: from the largest on, sizes are taken to count.
    peak = 2 * largest / line.fixed_s
    return RateCurve(peak, largest, line.noise)
