"""seconds = fixed_s + unit_s * size: a step's cost over its rows, an update's over its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mmdb.plan.profile.fits.points import Noise, Point, huber_weights, noise_of, usable

#: Rounds of reweighting, after which outliers count little.
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Line:
    """A cost that grows in proportion, from a fixed part on; neither is negative."""

    fixed_s: float
    unit_s: float  # seconds of one more unit of size
    noise: Noise

    def seconds(self, size: float) -> float:
        """Return the cost at a size."""
        return self.fixed_s + self.unit_s * max(0.0, size)


def fit_line(points: Iterable[Point]) -> Line:
    """Return the line with the least relative errors, outliers counting less.

    Raises:
        ValueError: there is no point.
    """
    found = usable(points)
    fixed_s, unit_s = _reweighted(found)
    fitted = [fixed_s + unit_s * p.size for p in found]
    return Line(fixed_s, unit_s, noise_of(found, fitted))


def fit_constant(points: Iterable[Point]) -> Line:
    """Return a cost that no size changes: the median.

    Raises:
        ValueError: there is no point.
    """
    found = usable(p._replace(size=0.0) for p in points)
    return Line(found[0].seconds, 0.0, noise_of(found, [found[0].seconds]))


def _reweighted(points: Sequence[Point]) -> tuple[float, float]:
    weights = [1.0] * len(points)
    fixed_s, unit_s = _weighted(points, weights)
    for _ in range(_ROUNDS if len(points) > 3 else 0):
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
