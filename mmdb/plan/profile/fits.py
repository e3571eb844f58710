"""Curves through measured points: lines, rates, slowdowns, tables. Pure.

Every curve is defined on few and on noisy points, and never falls as the size grows.
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

    def seconds(self, size: float) -> float:
        """Return the cost at a size."""
        return self.fixed_s + self.unit_s * max(0.0, size)


def fit_line(points: Iterable[Point]) -> LineFit:
    """Return the line with the least relative errors, outliers counting less.

    Raises:
        ValueError: there is no point.
    """
    found = usable(points)
    fixed_s, unit_s = _weighted(found, [1.0] * len(found))
    for _ in range(_LINE_ROUNDS if len(found) > 3 else 0):
        misses = [(fixed_s + unit_s * p.size) / p.seconds - 1 for p in found]
        fixed_s, unit_s = _weighted(found, huber_weights(misses))
    return LineFit(fixed_s, unit_s)


def fit_constant(points: Iterable[Point]) -> LineFit:
    """Return a cost that no size changes: the median.

    Raises:
        ValueError: there is no point.
    """
    (found,) = usable(p._replace(size=0.0) for p in points)
    return LineFit(found.seconds, 0.0)


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


def fit_rate(points: Iterable[Point]) -> LineFit:
    """Return the seconds of a rate that rises with the size and saturates: a line, too.

    Small operations pay its fixed part whatever they do, large ones run at the peak. Where times
    do not grow with the size, the largest one is taken to reach half of the peak.

    Raises:
        ValueError: there is no point of a size above 0.
    """
    found = [p for p in points if 0 < p.size < inf]
    line = fit_line(found)
    if line.unit_s > 0:
        return line
    half_s = line.fixed_s / 2
    return LineFit(half_s, half_s / max(p.size for p in found))


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Factors of a step's time at counts of busy workers; 1 at the first count, never falling."""

    counts: tuple[float, ...]
    factors: tuple[float, ...]

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
    return Slowdown(tuple(p.size for p in found), factors)


@dataclass(frozen=True, slots=True)
class TableFit:
    """Seconds over sizes; flat before the first size, in proportion after the last."""

    sizes: tuple[float, ...]
    values: tuple[float, ...]  # seconds

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


def fit_table(points: Iterable[Point]) -> TableFit:
    """Return the rising curve that is closest to the points.

    Raises:
        ValueError: there is no point of a size above 0.
    """
    found = usable(p for p in points if p.size > 0)
    logs = rising([math.log(p.seconds) for p in found], [1.0] * len(found))
    return TableFit(tuple(p.size for p in found), tuple(map(math.exp, logs)))
