"""Equations against closed forms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmdb.plan import equations
from mmdb.plan.cost import Link
from mmdb.plan.equations import (
    Z90,
    band,
    capacity,
    deviation_of,
    leave_s,
    longest_first_s,
    merge_s,
    open_shop_s,
    slowdown_at,
    steps,
    take_s,
    train_s,
)
from mmdb.train.compute.optimizer import batches

LINK = Link(latency_s=1e-3, bytes_per_s=1e9)
amounts = st.floats(0, 1e3, allow_nan=False)


@given(st.integers(1, 300), st.integers(1, 80))
def test_steps_are_those_of_a_hop(rows: int, batch_size: int) -> None:
    assert steps(rows, batch_size) == len(batches(torch.arange(rows), batch_size))


def test_a_pass_is_its_steps_and_its_rows() -> None:
    assert train_s(130, 64, 0.5, 0.01) == pytest.approx(3 * 0.5 + 130 * 0.01)


def test_a_hops_way_is_linear_in_the_state() -> None:
    assert take_s(1e6, 0.5, 1e-6) == pytest.approx(1.5)
    assert leave_s(1e6, 0.5, 2e-6) == pytest.approx(2.5)
    assert merge_s(4, 1e6, 0.5, 1e-6, 1e-6) == pytest.approx(0.5 + 4 * 2.0)


def test_a_ring_moves_two_parts_of_each_byte() -> None:
    assert equations.ring_s(1e9, 4, LINK, 0.1) == pytest.approx(0.1 + 6e-3 + 1.5)


def test_a_tree_goes_up_and_down() -> None:
    assert equations.tree_s(1e9, 5, LINK, 0.1) == pytest.approx(0.1 + 6 * (1e-3 + 1.0))


def test_one_worker_exchanges_nothing() -> None:
    for exchange in (equations.ring_s, equations.direct_s, equations.tree_s):
        assert exchange(1e9, 1, LINK, 0.1) == 0


def test_three_workers_meet_before_they_exchange() -> None:
    two, three = (equations.direct_s(1e6, g, LINK, 0.1) for g in (2, 3))
    assert two == equations.ring_s(1e6, 2, LINK, 0.1)
    assert three == pytest.approx(equations.ring_s(1e6, 3, LINK, 0.1) + 0.1)


def exposed_s(ready_s: Sequence[float], exchange_s: Sequence[float], backward_s: float) -> float:
    """Return the seconds of exchanging that a backward pass does not hide, bucket by bucket.

    end_k = max(end_{k-1}, ready_k) + exchange_k; exposed = max(end, backward) - backward.
    Source: NeuSight (ASPLOS 2025), its recursion over buckets.

    Args:
        ready_s: when each bucket's gradients are there, since the backward pass began; ascending.
        exchange_s: what exchanging each bucket takes.
    """
    end = 0.0
    for ready, seconds in zip(ready_s, exchange_s, strict=True):
        end = max(end, ready) + seconds
    return max(end, backward_s) - backward_s


def test_what_is_sent_early_is_hidden() -> None:
    assert exposed_s([1.0, 2.0], [0.5, 0.5], 2.0) == pytest.approx(0.5)
    assert exposed_s([1.0, 2.0], [3.0, 0.5], 2.0) == pytest.approx(2.5)


@given(st.floats(1, 1e9), st.integers(2, 16), st.floats(1e-6, 10))
def test_buckets_in_closed_form_are_the_recursion(
    gradient_bytes: float, workers: int, step_s: float
) -> None:
    count = max(1, math.ceil(gradient_bytes / equations.BUCKET_BYTES))
    backward = step_s * equations.BACKWARD_SHARE
    each = float(equations.ring_s(gradient_bytes / count, workers, LINK, 1e-3))
    ready = [backward * (k + 1) / count for k in range(count)]
    expected = exposed_s(ready, [each] * count, backward)
    found = equations.overlapped_s(gradient_bytes, workers, LINK, 1e-3, step_s)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert found <= equations.ring_s(gradient_bytes, workers, LINK, 1e-3) * count * (1 + 1e-9)


def test_the_slowest_of_many_is_slower() -> None:
    factors = [float(equations.straggler(g, 0.1)) for g in (1, 2, 4, 8, 100)]
    assert factors[0] == 1
    assert factors == sorted(factors)
    assert factors[1] == pytest.approx(1 + 0.1 / math.sqrt(math.pi), abs=0.005)


def test_a_server_shares_its_link_among_workers() -> None:
    one = equations.synchronous_s(1e9, 1, 1, LINK, 0.0)
    assert one == pytest.approx(2e-3 + 2.0)
    assert equations.synchronous_s(1e9, 4, 1, LINK, 0.0) == pytest.approx(2e-3 + 8.0)
    assert equations.synchronous_s(1e9, 4, 4, LINK, 0.0) == pytest.approx(2e-3 + 2.0)
    assert equations.synchronous_s(1e9, 4, 4, LINK, 1e-9) == pytest.approx(2e-3 + 3.0)


def test_asynchronous_workers_are_limited_by_the_slowest_part() -> None:
    rate = equations.asynchronous_rate
    assert rate(1.0, 0.0, 4, 1, LINK, 0.0) == pytest.approx(4 / 1.002)
    assert rate(1e-6, 1e9, 100, 1, LINK, 0.0) == pytest.approx(0.5)
    assert rate(1e-6, 1e9, 100, 1, LINK, 1e-8) == pytest.approx(0.1)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=30), st.integers(1, 12))
def test_longest_first_lies_within_grahams_limit(pieces: list[float], workers: int) -> None:
    seconds = np.array(pieces)
    bound = max(seconds.max(), seconds.sum() / workers)
    found = longest_first_s(seconds, workers)
    assert bound * (1 - 1e-9) <= found <= bound * (2 - 1 / workers) * (1 + 1e-9)
    assert longest_first_s(seconds, 1) == pytest.approx(seconds.sum())


def test_one_worker_takes_the_sum() -> None:
    assert open_shop_s(3.0, np.array([10.0]), np.array([1.0]), 5.0) == pytest.approx(10.0)


def test_workers_that_slow_each_other_down_are_worth_less() -> None:
    assert capacity((1.0, 1.0), 2) == 2
    assert capacity((1.0, 4.0), 2) == 1, "a second worker would only disturb"
    assert capacity((1.0, 1.6), 2) == pytest.approx(1.25)
    assert slowdown_at((1.0, 1.5), 7) == 1.5
    assert slowdown_at((1.0, 1.5), 1.75) == pytest.approx(4 / 3), "3 s of 4 were beside another"


@given(st.floats(0.01, 1e5), st.floats(0, 0.5))
def test_the_band_holds_four_fifths(median: float, deviation: float) -> None:
    low, middle, high = band(median, deviation)
    assert low <= middle <= high
    assert high / middle == pytest.approx(middle / low)
    assert math.log(high / middle) == pytest.approx(
        Z90 * math.sqrt(math.log(1 + deviation**2)), abs=1e-7
    )


def test_hops_average_out_and_their_costs_error_does_not() -> None:
    assert deviation_of(0.1, 100, 1, 0.0, 0.0) == pytest.approx(0.01)
    assert deviation_of(0.1, 1e9, 1, 0.03, 0.04) == pytest.approx(0.05, rel=1e-3)
