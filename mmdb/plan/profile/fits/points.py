"""Measured points, as fits take them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
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
