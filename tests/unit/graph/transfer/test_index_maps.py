from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmdb.graph.transfer.index_arrays import MEAN, NEW, spread
from mmdb.graph.transfer.index_maps import taps_of
from mmdb.graph.transfer.propagate import columns, mean_total, total
from mmdb.graph.transfer.required_scale import SplitWeights


@pytest.mark.parametrize(
    ("size", "other", "pads", "steps", "expected"),
    [
        (3, 3, (1, 1), (1, 1), [0, 1, 2]),
        (5, 3, (2, 1), (1, 1), [-1, 0, 1, 2, -1]),
        (3, 1, (1, 0), (1, 1), [-1, 0, -1]),
        (4, 3, (1, 1), (1, 1), [0, 1, 2, -1]),
        (4, 3, (2, 1), (1, 1), [-1, 0, 1, 2]),
        (5, 3, (2, 2), (1, 2), [0, -1, 1, -1, 2]),
        (5, 3, (0, 1), (1, 1), None),
        (3, 3, (1, 1), (2, 1), None),
    ],
)
def test_taps_see_what_the_parents_see(
    size: int,
    other: int,
    pads: tuple[int, int],
    steps: tuple[int, int],
    expected: list[int] | None,
) -> None:
    taps = taps_of(size, other, pads, steps)
    assert (taps is None) == (expected is None)
    assert taps is None or taps.tolist() == expected


@given(n=st.integers(1, 40), m=st.integers(1, 40))
def test_units_are_spread_evenly(n: int, m: int) -> None:
    counts = np.bincount(spread(n, m), minlength=m)
    assert counts.max() - counts.min() <= 1 and len(counts) == m
    assert n < m or counts.min() > 0


@given(n=st.integers(1, 30), m=st.integers(1, 30), seed=st.integers(0, 9))
def test_shares_are_unequal_and_sum_to_one(n: int, m: int, seed: int) -> None:
    index = spread(n, m)
    shares = SplitWeights(seed).of(index, "reader")
    sums = np.bincount(index, shares)
    assert np.allclose(sums[np.bincount(index) > 0], 1.0) and (shares > 0).all()
    assert len(set(shares[index == 0].tolist())) == (index == 0).sum()
    assert np.array_equal(shares, SplitWeights(seed).of(index, "reader"))


def test_a_sum_counts_each_element_once() -> None:
    index, given = np.array([0, 1, 0, MEAN, NEW]), np.array([2.0, 1.0, 2.0, 2.0, 1.0])
    factors, free = columns(index, given, lambda key: SplitWeights(0).of(key, "x"))
    assert total(index, 2, given, factors) == pytest.approx(1.0)
    assert not free.any() and factors[3] == factors[4] == 0
    assert total(index, 2, given, np.ones(5)) is None
    assert total(index, 3, given, factors) is None


def test_what_reads_zero_is_free() -> None:
    factors, free = columns(
        np.array([0, 1, MEAN]), np.array([1.0, 1.0, 0.0]), lambda key: np.ones(len(key))
    )
    assert factors.tolist() == [1, 1, 0] and free.tolist() == [False, False, True]


def test_means_of_all_count_for_all() -> None:
    index = np.array([0, 1, MEAN])
    assert mean_total(index, 2, np.array([1.0, 1.0, 1.0])) == pytest.approx(1.5)
    assert mean_total(np.array([0, 0, 1]), 2, np.ones(3)) is None
