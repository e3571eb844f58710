"""Two segments on logarithmic axes: a floor of latency, then a slope. For links and collectives.

The form that dPRO fits to its communication measurements (Hu et al., MLSys 2022): up to a knee a
message takes the latency whatever its bytes, beyond it a power of its bytes, close to the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mmdb.plan.profile.fits.points import Noise, Point, huber_weights, noise_of, usable

#: Knees that are tried, spread evenly on the logarithmic axis.
_KNEES = 128
#: The steepest slope that is believed.
_STEEPEST = 1.5
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class LinkCurve:
    """Seconds of a message over its bytes."""

    latency_s: float
    knee: float  # bytes up to which the latency is all
    slope: float  # of the second segment
    largest: float  # bytes of the largest message measured
    noise: Noise

    def seconds(self, size: float) -> float:
        """Return what a message takes; beyond the largest one measured, in proportion to it."""
        if size <= self.knee:
            return self.latency_s
        if size <= self.largest:
            return self.latency_s * math.pow(size / self.knee, self.slope)
        top_s = self.latency_s * math.pow(max(1.0, self.largest / self.knee), self.slope)
        return top_s * (size / max(self.largest, self.knee))

    @property
    def bytes_per_s(self) -> float:
        """The bandwidth at the largest message, its latency left out."""
        top_s = self.seconds(self.largest)
        return self.largest / max(top_s - self.latency_s, 0.05 * top_s)


def fit_link(points: Iterable[Point]) -> LinkCurve:
    """Return the two segments with the least squared errors of the logarithms.

    Raises:
        ValueError: there is no point of a size above 0.
    """
    found = usable(p for p in points if p.size > 0)
    x = np.log([p.size for p in found])
    y = np.log([p.seconds for p in found])
    knees = np.unique(np.concatenate([np.linspace(x[0], x[-1], _KNEES), x]))
    weights = np.ones(len(x))
    for _ in range(_ROUNDS if len(found) > 4 else 1):
        floor, slope, knee = _best(x, y, weights, knees)
        fitted = floor + slope * np.maximum(0.0, x - knee)
        weights = np.asarray(huber_weights((fitted - y).tolist()))
    if slope == 0.0:
        knee = float(x[-1])
    noise = noise_of(found, np.exp(fitted).tolist())
    return LinkCurve(math.exp(floor), math.exp(knee), slope, found[-1].size, noise)


def _best(
    x: np.ndarray, y: np.ndarray, weights: np.ndarray, knees: Sequence[float] | np.ndarray
) -> tuple[float, float, float]:
    """Return floor, slope and knee with the least weighted squared error."""
    best = (math.inf, 0.0, 0.0, 0.0)
    mean_y = float(np.average(y, weights=weights))
    for knee in knees:
        beyond = np.maximum(0.0, x - knee)
        mean_b = float(np.average(beyond, weights=weights))
        spread = float(np.sum(weights * (beyond - mean_b) ** 2))
        cross = float(np.sum(weights * (beyond - mean_b) * (y - mean_y)))
        slope = min(max(cross / spread, 0.0), _STEEPEST) if spread > 1e-12 else 0.0
        floor = mean_y - slope * mean_b
        error = float(np.sum(weights * (floor + slope * beyond - y) ** 2))
        if error < best[0] - 1e-12:
            best = (error, floor, slope, float(knee))
    return best[1:]
