"""Contiguous cuts against every way to cut."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmdb.plan.cost import Link
from mmdb.plan.equations import cut, pipeline_step_s, stage_shares, way_s
from mmdb.plan.step import LayerCost

FREE = Link(latency_s=0.0, bytes_per_s=float("inf"))
LINK = Link(latency_s=0.1, bytes_per_s=10.0)
layers = st.lists(
    st.builds(LayerCost, st.floats(0.001, 5), st.floats(0, 20), st.floats(0, 9)),
    min_size=2,
    max_size=7,
)


def slowest_s(some: tuple[LayerCost, ...], ends: tuple[int, ...], rows: float, link: Link) -> float:
    found = []
    for low, high in pairwise((0, *ends)):
        seconds = sum(3 * rows * layer.forward_row_s for layer in some[low:high])
        found.append(seconds + (way_s(some[high - 1], rows, link) if high < len(some) else 0.0))
    return max(found)


@given(layers, st.integers(2, 4), st.sampled_from([FREE, LINK]))
def test_no_other_cut_is_faster(some: list[LayerCost], stages: int, link: Link) -> None:
    stages, given_layers = min(stages, len(some)), tuple(some)
    ends = cut(given_layers, stages, 2.0, link)
    ways = combinations(range(1, len(some)), stages - 1)
    best = min(slowest_s(given_layers, (*way, len(some)), 2.0, link) for way in ways)
    assert len(ends) == stages
    assert list(ends) == sorted(set(ends))
    assert slowest_s(given_layers, ends, 2.0, link) == pytest.approx(best)


def test_equal_layers_are_cut_into_equal_stages() -> None:
    some = (LayerCost(1.0, 0.0, 2.0),) * 8
    assert cut(some, 4, 1.0, FREE) == (2, 4, 6, 8)
    seconds, counts, weights = stage_shares(some, (2, 4, 6, 8))
    assert seconds.tolist() == counts.tolist() == weights.tolist() == [0.25] * 4


@given(st.integers(1, 8), st.integers(1, 32), st.floats(0.1, 10))
def test_an_even_pipeline_in_closed_form(stages: int, micro: int, whole_s: float) -> None:
    each = whole_s / stages / micro
    found = pipeline_step_s([each] * stages, micro)
    assert found == pytest.approx(whole_s * (stages + micro - 1) / (stages * micro))


def test_one_micro_batch_gains_nothing() -> None:
    assert pipeline_step_s([1.0, 2.0, 3.0], 1) == 6.0
