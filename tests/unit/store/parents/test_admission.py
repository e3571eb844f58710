from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmdb.store.parents.rules import (
    are_near,
    chance_limit,
    counts_of,
    is_maximized,
    is_worse,
    outlier_limit,
)

GOOD = [0.91, 0.93, 0.94, 0.92, 0.95, 0.93]


def test_a_value_far_below_the_others_is_an_outlier() -> None:
    limit = outlier_limit([*GOOD, 0.4], maximize=True)
    assert limit is not None
    assert is_worse(0.4, limit, maximize=True)
    assert not any(is_worse(value, limit, maximize=True) for value in GOOD)


def test_a_value_far_better_than_the_others_is_none() -> None:
    limit = outlier_limit([0.4, 0.41, 0.42, 0.41, 0.4, 0.99], maximize=True)
    assert limit is not None
    assert not is_worse(0.99, limit, maximize=True)


def test_of_a_loss_more_is_worse() -> None:
    limit = outlier_limit([0.1, 0.12, 0.11, 0.13, 0.1, 4.0], maximize=False)
    assert limit is not None
    assert is_worse(4.0, limit, maximize=False)
    assert not is_worse(0.01, limit, maximize=False)


def test_the_limit_is_that_of_the_modified_z_score() -> None:
    # The median is 20, and that of the distances to it 5.
    limit = outlier_limit([0.0, 15.0, 20.0, 25.0, 30.0], maximize=True)
    assert limit == pytest.approx(20 - 3.5 * 5 / 0.6745)


def test_where_most_values_are_equal_the_mean_distance_counts() -> None:
    limit = outlier_limit([0.9, 0.9, 0.9, 0.9, 0.5], maximize=True)
    assert limit == pytest.approx(0.9 - 3.5 * 1.2533 * 0.08)


def test_values_that_are_nearly_equal_hold_no_outlier() -> None:
    limit = outlier_limit([0.97] * 9 + [0.96], maximize=True)
    assert limit is not None
    assert not is_worse(0.96, limit, maximize=True)


@pytest.mark.parametrize("values", [[], [0.9], [0.9, 0.91, 0.92, 0.1], [math.nan] * 9])
def test_few_values_say_nothing(values: list[float]) -> None:
    assert outlier_limit(values, maximize=True) is None


def test_a_value_that_is_no_number_is_worse_than_any() -> None:
    assert is_worse(math.nan, 0.0, maximize=True)
    assert is_worse(math.nan, 0.0, maximize=False)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=30),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_the_limit_ignores_the_order_and_never_refuses_the_median(
    values: list[float], maximize: bool, random: object
) -> None:
    limit = outlier_limit(values, maximize=maximize)
    assert limit is not None
    assert outlier_limit(values[::-1], maximize=maximize) == limit
    middle = sorted(values)[len(values) // 2 if maximize else (len(values) - 1) // 2]
    assert not is_worse(middle, limit, maximize=maximize)


def test_chance_is_the_most_frequent_class_and_three_standard_errors() -> None:
    assert chance_limit("accuracy", [25, 75], 400) == pytest.approx(
        0.75 + 3 * math.sqrt(0.75 * 0.25) / 20
    )
    assert chance_limit("digit.accuracy", [10] * 10, None) == pytest.approx(0.1)
    assert chance_limit("balanced_accuracy", [25, 75], None) == pytest.approx(0.5)
    assert chance_limit("r2", None, 100) == 0.0


def test_a_few_validation_rows_do_not_make_every_model_one_of_chance() -> None:
    assert chance_limit("accuracy", [50, 50], 4) == 0.75


@pytest.mark.parametrize(
    ("metric", "counts"), [("rmse", None), ("accuracy", None), ("accuracy", [0, 0]), ("f1", [1, 2])]
)
def test_of_other_metrics_chance_is_not_known(metric: str, counts: list[int] | None) -> None:
    assert chance_limit(metric, counts, 100) is None


def test_a_metric_is_of_the_label_in_its_name_or_of_the_first() -> None:
    counts = {"digit": [1, 2], "parity": [3, 4]}
    assert counts_of("accuracy", "digit", counts) == [1, 2]
    assert counts_of("parity.accuracy", "digit", counts) == [3, 4]
    assert counts_of("accuracy", "digit", None) is None


@pytest.mark.parametrize(
    ("a", "b", "near"),
    [(0.95, 0.955, True), (0.95, 0.9, False), (-2.0, -2.01, True), (0.0, 0.0, True)],
)
def test_values_are_near_within_a_hundredth(a: float, b: float, near: bool) -> None:
    assert are_near(a, b) == are_near(b, a) == near


def test_metrics_are_told_by_their_names() -> None:
    assert is_maximized("f1") and is_maximized("own")
    assert not is_maximized("loss") and not is_maximized("price.rmse")
