"""Curves through measured points: lines, links, rates, slowdowns, tables. Pure.

Every curve is defined on few and on noisy points, never falls as the size grows, and says how much
its points vary and how far it misses them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean, median, stdev
from typing import NamedTuple

import numpy as np

#: What counts as no time: fits work on logarithms and on relative errors.
_LEAST_S = 1e-12
#: A relative error beyond this many typical ones counts less.
_OUTLYING = 2.0


class Point(NamedTuple):
    """The median of repeated measurements at one size."""

    size: float
    seconds: float
    deviation: float = 0.0  # coefficient of variation of a single measurement
    samples: int = 1


class Noise(NamedTuple):
    """How much the points of a curve vary."""

    deviation: float  # coefficient of variation of a single measurement
    misfit: float  # relative root mean square of what the curve misses its points by
    samples: int  # measurements in all


def coefficient_of_variation(samples: Sequence[float]) -> float:
    """Return the relative standard deviation of a sample; 0 where one cannot be told.

    >>> round(coefficient_of_variation([9.0, 10.0, 11.0]), 3), coefficient_of_variation([3.0])
    (0.1, 0.0)
    """
    if len(samples) < 2:
        return 0.0
    mean = fmean(samples)
    return stdev(samples) / mean if mean > 0 else 0.0


def usable(points: Iterable[Point]) -> list[Point]:
    """Return what a fit can use, by size: one point a size, none without a time of its own.

    Raises:
        ValueError: nothing is left.
    """
    groups: dict[float, list[Point]] = defaultdict(list)
    for point in points:
        is_number = math.isfinite(point.size) and math.isfinite(point.seconds)
        if is_number and point.size >= 0 and point.seconds > _LEAST_S:
            groups[float(point.size)].append(point)
    if not groups:
        raise ValueError("There is no measured point to fit.")
    return [_merged(size, groups[size]) for size in sorted(groups)]


def _merged(size: float, points: Sequence[Point]) -> Point:
    deviations = [p.deviation for p in points if math.isfinite(p.deviation)]
    return Point(
        size=size,
        seconds=float(median(p.seconds for p in points)),
        deviation=max(0.0, median(deviations)) if deviations else 0.0,
        samples=sum(max(1, p.samples) for p in points),
    )


def noise_of(points: Sequence[Point], fitted: Sequence[float]) -> Noise:
    """Return the noise of points that a curve passes at `fitted` seconds."""
    misses = [(f - p.seconds) / p.seconds for p, f in zip(points, fitted, strict=True)]
    return Noise(
        deviation=float(median(p.deviation for p in points)),
        misfit=math.sqrt(fmean(miss * miss for miss in misses)),
        samples=sum(p.samples for p in points),
    )


def huber_weights(misses: Sequence[float]) -> list[float]:
    """Return weights by which one outlier among relative errors does not bend a curve (Huber)."""
    scale = 1.4826 * median(map(abs, misses))
    limit = max(_OUTLYING * scale, 1e-9)
    return [1.0 if abs(miss) <= limit else limit / abs(miss) for miss in misses]


def rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the sequence that never falls with the least weighted squared error.

    >>> rising([1.0, 3.0, 2.0, 5.0], [1.0, 1.0, 1.0, 1.0])
    [1.0, 2.5, 2.5, 5.0]
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values, weights, strict=True):
        mean, heft, length = value, weight, 1
        while pools and pools[-1][0] > mean:
            before, other, more = pools.pop()
            mean = (before * other + mean * heft) / (other + heft)
            heft, length = heft + other, length + more
        pools.append((mean, heft, length))
    return [mean for mean, _, length in pools for _ in range(length)]


#: Rounds of reweighting, after which outliers count little.
_LINE_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class LineFit:
    """A cost that grows in proportion, from a fixed part on; neither is negative."""

    fixed_s: float
    unit_s: float  # seconds of one more unit of size
    noise: Noise

    def seconds(self, size: float) -> float:
        """Return the cost at a size."""
        return self.fixed_s + self.unit_s * max(0.0, size)


def fit_line(points: Iterable[Point]) -> LineFit:
    """Return the line with the least relative errors, outliers counting less.

    Raises:
        ValueError: there is no point.
    """
    found = usable(points)
    fixed_s, unit_s = _reweighted(found)
    fitted = [fixed_s + unit_s * p.size for p in found]
    return LineFit(fixed_s, unit_s, noise_of(found, fitted))


def fit_constant(points: Iterable[Point]) -> LineFit:
    """Return a cost that no size changes: the median.

    Raises:
        ValueError: there is no point.
    """
    found = usable(p._replace(size=0.0) for p in points)
    return LineFit(found[0].seconds, 0.0, noise_of(found, [found[0].seconds]))


def _reweighted(points: Sequence[Point]) -> tuple[float, float]:
    weights = [1.0] * len(points)
    fixed_s, unit_s = _weighted(points, weights)
    for _ in range(_LINE_ROUNDS if len(points) > 3 else 0):
        misses = [(fixed_s + unit_s * p.size) / p.seconds - 1 for p in points]
        weights = huber_weights(misses)
        fixed_s, unit_s = _weighted(points, weights)
    return fixed_s, unit_s


def _weighted(points: Sequence[Point], weights: Sequence[float]) -> tuple[float, float]:
    """Minimise the sum of w * ((a + b x) / t - 1)**2 over a, b >= 0.

    With u = 1 / t and v = x / t the problem is linear: w * (a u + b v - 1)**2. Both columns are
    scaled, since sizes are bytes or operations in thousands of millions.
    """
    most_u = max(1 / p.seconds for p in points)
    most_v = max(p.size / p.seconds for p in points) or 1.0
    u = [1 / p.seconds / most_u for p in points]
    v = [p.size / p.seconds / most_v for p in points]

    def total(value: Callable[[float, float], float]) -> float:
        return sum(w * value(a, b) for w, a, b in zip(weights, u, v, strict=True))

    uu, uv, vv = total(lambda a, b: a * a), total(lambda a, b: a * b), total(lambda a, b: b * b)
    su, sv = total(lambda a, b: a), total(lambda a, b: b)
    determinant = uu * vv - uv * uv
    if determinant > 1e-12 * uu * vv:
        fixed, unit = (su * vv - sv * uv) / determinant, (sv * uu - su * uv) / determinant
        if fixed >= 0 and unit >= 0:
            return fixed / most_u, unit / most_v
    # The best with one of them zero; the sum of squares left over is sum(w) - s * s / q.
    through_zero = vv > 0 and sv * sv / vv >= su * su / uu
    return (0.0, sv / vv / most_v) if through_zero else (su / uu / most_u, 0.0)


@dataclass(frozen=True, slots=True)
class RateCurve:
    """A rate that rises with the size and saturates.

    The same curve in seconds is a line, (size + half) / peak, which is how it is fitted: small
    operations pay `half / peak` seconds whatever they do, large ones run at the peak.
    """

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


#: Knees that are tried, spread evenly on the logarithmic axis.
_KNEES = 128
#: The steepest slope that is believed.
_STEEPEST = 1.5
_LINK_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class LinkCurve:
    """Seconds of a message over its bytes.

    The form that dPRO fits to its communication measurements (Hu et al., MLSys 2022): up to a knee
    a message takes the latency whatever its bytes, beyond it a power of its bytes, close to the
    first.
    """

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
    for _ in range(_LINK_ROUNDS if len(found) > 4 else 1):
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


@dataclass(frozen=True, slots=True)
class TableFit:
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


def fit_table(points: Iterable[Point]) -> TableFit:
    """Return the rising curve that is closest to the points.

    Raises:
        ValueError: there is no point of a size above 0.
    """
    found = usable(p for p in points if p.size > 0)
    logs = rising([math.log(p.seconds) for p in found], [1.0] * len(found))
    values = tuple(math.exp(value) for value in logs)
    return TableFit(tuple(p.size for p in found), values, noise_of(found, values))
