from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmdb.plan.profile.fits import (
    Point,
    coefficient_of_variation,
    fit_constant,
    fit_line,
    fit_rate,
    fit_slowdown,
    fit_table,
    usable,
)

Fit = Callable[[list[Point]], Any]
FITS: list[Fit] = [fit_line, fit_constant, fit_rate, fit_table]

sizes = st.floats(1.0, 1e12)
any_points = st.lists(
    st.builds(
        Point,
        size=sizes,
        seconds=st.floats(1e-9, 1e4),
        deviation=st.floats(0.0, 3.0),
        samples=st.integers(1, 60),
    ),
    min_size=1,
    max_size=12,
)


def noisy(curve: Callable[[float], float], at: list[float], noise: float, seed: int) -> list[Point]:
    random = np.random.default_rng(seed)
    return [Point(x, curve(x) * float(np.exp(random.normal(0, noise))), noise, 9) for x in at]


@pytest.mark.parametrize("fit", FITS)
@given(points=any_points, at=st.lists(st.floats(0.0, 1e13), min_size=2, max_size=20))
def test_a_curve_is_positive_finite_and_never_falls(
    fit: Fit, points: list[Point], at: list[float]
) -> None:
    curve = fit(points)
    values = [curve.seconds(x) for x in sorted(at)]
    assert all(math.isfinite(value) and value >= 0 for value in values)
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(values))


@given(
    fixed=st.floats(0.0, 1.0), unit=st.floats(1e-9, 1e-3), count=st.integers(2, 8), data=st.data()
)
def test_a_line_is_found_again(fixed: float, unit: float, count: int, data: st.DataObject) -> None:
    at = [16.0 * 2**k for k in range(count)]
    line = fit_line([Point(x, fixed + unit * x) for x in at])
    assert [line.seconds(x) for x in at] == pytest.approx([fixed + unit * x for x in at], rel=1e-3)
    assert line.fixed_s >= 0 and line.unit_s >= 0


def test_an_outlier_bends_a_line_little() -> None:
    points = [Point(b, 1e-3 + 1e-5 * b) for b in (16, 32, 64, 128, 256, 512)]
    points[2] = points[2]._replace(seconds=0.1)
    line = fit_line(points)
    assert line.seconds(1024) == pytest.approx(1e-3 + 1e-5 * 1024, rel=0.05)


@given(peak=st.floats(1e8, 1e12), half=st.floats(1e3, 1e7), seed=st.integers(0, 99))
def test_a_saturating_rate_is_found_again(peak: float, half: float, seed: int) -> None:
    at = [1e3 * 10 ** (k * 6 / 7) for k in range(8)]
    exact = fit_rate([Point(x, (x + half) / peak) for x in at])
    assert 1 / exact.unit_s == pytest.approx(peak, rel=1e-6)
    assert exact.fixed_s / exact.unit_s == pytest.approx(half, rel=1e-4)
    found = fit_rate(noisy(lambda x: (x + half) / peak, at, 0.05, seed))
    assert found.seconds(1e8) == pytest.approx((1e8 + half) / peak, rel=0.2)


def test_a_table_meets_its_points() -> None:
    points = [Point(1e3, 1e-6), Point(1e5, 2e-6), Point(1e6, 4e-5), Point(1e8, 2e-2)]
    table = fit_table(points)
    assert [table.seconds(p.size) for p in points] == pytest.approx([p.seconds for p in points])
    assert table.seconds(1.0) == pytest.approx(1e-6)


@given(
    points=st.lists(
        st.builds(Point, size=st.integers(1, 16).map(float), seconds=st.floats(1e-6, 10.0)),
        min_size=1,
        max_size=16,
    ),
    cores=st.integers(1, 32),
)
def test_slowdown_begins_at_one_and_never_falls(points: list[Point], cores: int) -> None:
    factors = fit_slowdown(points).upto(40, cores)
    assert factors[0] == 1.0
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(factors))


def test_slowdown_between_and_beyond_what_was_measured() -> None:
    slowdown = fit_slowdown([Point(1, 1.0), Point(2, 1.2), Point(4, 2.0)])
    assert slowdown.upto(4) == pytest.approx((1.0, 1.2, 1.6, 2.0))
    assert slowdown.at(8, cores=4) == pytest.approx(4.0)
    assert slowdown.at(8, cores=8) == pytest.approx(2.0)


@pytest.mark.parametrize("fit", [*FITS, fit_slowdown])
def test_nothing_measured_is_nothing_to_fit(fit: Fit) -> None:
    for points in ([], [Point(4.0, math.nan)], [Point(4.0, 0.0)], [Point(4.0, math.inf)]):
        with pytest.raises(ValueError, match="no measured point"):
            fit(points)


def test_points_of_one_size_become_one() -> None:
    (point,) = usable([Point(4, 1.0), Point(4, 9.0, samples=3), Point(4, 2.0)])
    assert point == Point(4.0, 2.0, 0.0, 5)


def test_variation_of_few_samples() -> None:
    assert coefficient_of_variation([]) == 0.0
    assert coefficient_of_variation([1.0, 1.0]) == 0.0
    assert coefficient_of_variation([1.0, 3.0]) == pytest.approx(math.sqrt(2) / 2)
