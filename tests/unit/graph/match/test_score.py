"""The properties that a score must have, over generated graphs."""

from __future__ import annotations

from itertools import pairwise
from math import log2, prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mmdb.graph.match.alignment import Alignment, align
from mmdb.graph.match.pack import pack
from mmdb.graph.ops.skeleton import ADD, LayerSkeleton
from tests.unit.graph.match.outlines import (
    QUICK,
    blocks,
    keeps_all_orders,
    outline,
    outlines,
    renumbered,
    residual,
    resized,
    weight,
    with_blocks,
)


def aligned(child: LayerSkeleton, parent: LayerSkeleton) -> Alignment:
    return align(pack(child), pack(parent))


def score(child: LayerSkeleton, parent: LayerSkeleton) -> float:
    return aligned(child, parent).score


@QUICK
@given(outlines(), outlines())
def test_a_score_lies_between_0_and_1_and_each_layer_is_in_one_pair_at_most(
    child: LayerSkeleton, parent: LayerSkeleton
) -> None:
    found = aligned(child, parent)
    assert 0 <= found.score <= 1
    assert 0 <= found.coverage <= 1
    for side, of in zip(zip(*found.pairs, strict=True), (child, parent), strict=False):
        assert len(set(side)) == len(side) <= len(of.layers)
    for i, j in found.pairs:
        assert child.layers[i].kind == parent.layers[j].kind


@QUICK
@given(outlines())
def test_an_outline_scores_exactly_1_with_itself_and_is_covered_whole(found: LayerSkeleton) -> None:
    same = aligned(found, found)
    assert same.score == 1
    assert same.coverage == 1
    assert len(same.pairs) == len(found.layers)


@QUICK
@given(outlines(), outlines(), st.integers(0, 999))
def test_names_numbers_and_the_order_of_what_is_added_change_nothing(
    child: LayerSkeleton, parent: LayerSkeleton, seed: int
) -> None:
    plain = aligned(child, parent)
    assert score(renumbered(child, seed), parent) == plain.score
    assert score(child, renumbered(parent, seed)) == plain.score
    assert score(renumbered(child, seed), child) == 1


@QUICK
@given(outlines(), st.lists(blocks(), min_size=1, max_size=4))
def test_every_block_put_into_an_edge_lowers_the_score_by_its_share(
    parent: LayerSkeleton, put: list[tuple[int, int, list[str], bool]]
) -> None:
    grown = [with_blocks(parent, put[:count]) for count in range(len(put) + 1)]
    assume(all(keeps_all_orders(child) for child in grown))
    scores = [score(child, parent) for child in grown]
    for child, found in zip(grown, scores, strict=True):
        assert found == pytest.approx(share_of(parent, child), abs=1e-8)
    assert all(before > after for before, after in pairwise(scores))


@QUICK
@given(outlines(), st.lists(blocks(), min_size=1, max_size=4))
def test_every_block_that_is_missing_lowers_the_score_by_its_share(
    child: LayerSkeleton, put: list[tuple[int, int, list[str], bool]]
) -> None:
    grown = [with_blocks(child, put[:count]) for count in range(len(put) + 1)]
    assume(keeps_all_orders(child))
    scores = [score(child, parent) for parent in grown]
    assert all(before > after for before, after in pairwise(scores))
    for parent, found in zip(grown, scores, strict=True):
        assert found == pytest.approx(share_of(child, parent), abs=1e-8)
        assert aligned(child, parent).coverage == pytest.approx(1)


def share_of(part: LayerSkeleton, whole: LayerSkeleton) -> float:
    """The formula's value where all of one is in the other, unchanged."""
    by_count = weight(part) / weight(whole)
    if not whole.parameters:
        return by_count
    return (part.parameters / whole.parameters + by_count) / 2


@st.composite
def widenings(draw: st.DrawFn) -> tuple[LayerSkeleton, list[LayerSkeleton]]:
    """An outline, and copies of which each has no size below that of the one before."""
    found = draw(outlines())
    factors = [[1] * len(item.shape) for item in found.layers]
    wider = []
    for _ in range(3):
        factors = [[f * draw(st.sampled_from([1, 1, 2])) for f in row] for row in factors]
        if all(sum(f.bit_length() - 1 for f in row) <= 7 for row in factors):
            wider.append(resized(found, factors))
    return found, wider


@QUICK
@given(widenings())
def test_every_gap_in_width_lowers_the_score_whichever_of_the_two_is_wider(
    drawn: tuple[LayerSkeleton, list[LayerSkeleton]],
) -> None:
    narrow, wider = drawn
    family = [narrow, *wider]
    assume(all(keeps_all_orders(found) for found in family))
    for scores in ([score(w, narrow) for w in family], [score(narrow, w) for w in family]):
        for found, reached in zip(family, scores, strict=True):
            assert reached == pytest.approx(of_widened(narrow, found), abs=1e-8)
        assert all(before >= after for before, after in pairwise(scores))


def of_widened(narrow: LayerSkeleton, wide: LayerSkeleton) -> float:
    """The formula's value where each layer is matched with itself."""
    alike = 0.0
    for one, other in zip(narrow.layers, wide.layers, strict=True):
        halvings = log2(prod(other.shape) / prod(one.shape))
        alike += (1 - halvings / 8) * weight(LayerSkeleton(layers=(one,), inputs=((),)))
    by_count = alike / weight(narrow)
    if not wide.parameters:
        return by_count
    return (narrow.parameters / wide.parameters + by_count) / 2


def test_a_pyramid_twice_as_wide_is_matched_stage_by_stage() -> None:
    def pyramid(width: int) -> LayerSkeleton:
        widths = [3, *(width << stage for stage in range(6))]
        return outline(
            *(
                ("conv2d", (out, fan_in, 3, 3), [number - 1] if number else [])
                for number, (fan_in, out) in enumerate(pairwise(widths))
            )
        )

    found = aligned(pyramid(32), pyramid(16))
    assert found.pairs == tuple((number, number) for number in range(6))
    assert score(pyramid(24), pyramid(16)) > found.score > score(pyramid(64), pyramid(16))


def test_one_and_a_half_times_the_width_is_a_good_match() -> None:
    assert score(residual(8, 24), residual(8, 16)) > 0.6
    assert score(residual(8, 17), residual(8, 16)) > 0.9


def test_kinds_must_be_equal_and_kernels_match_in_part() -> None:
    plain = outline(("conv2d", (16, 16, 3, 3), []))
    assert score(outline(("depthwise2d", (16, 16, 3, 3), [])), plain) == 0
    assert score(outline(("unheard_of", (16, 16, 3, 3), [])), plain) == 0
    assert score(outline(("unheard_of", (8,), [])), outline(("unheard_of", (8,), []))) == 1
    larger = score(outline(("conv2d", (16, 16, 5, 5), [])), plain)
    assert 0.4 < score(outline(("conv2d", (16, 16, 7, 7), [])), plain) < larger < 0.8


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 8, 16, 33, 64, 100])
def test_each_layer_counts_once_at_every_residual_depth(depth: int) -> None:
    found = aligned(residual(depth), residual(depth))
    assert found.score == 1
    assert found.pairs == tuple((number, number) for number in range(5 * depth + 2))


def test_scores_fall_with_the_difference_of_depth_from_1_to_100() -> None:
    packed = {
        depth: pack(residual(depth)) for depth in (1, 2, 3, 4, 6, 10, 18, 30, 50, 70, 99, 100)
    }
    for depth, child in packed.items():
        scores = [align(child, parent).score for parent in packed.values()]
        own = list(packed).index(depth)
        assert all(a < b for a, b in pairwise(scores[: own + 1]))
        assert all(a > b for a, b in pairwise(scores[own:]))


@pytest.mark.parametrize(("deep", "shallow"), [(2, 1), (9, 4), (40, 37), (100, 3)])
def test_whole_blocks_are_skipped(deep: int, shallow: int) -> None:
    for child, parent in ((deep, shallow), (shallow, deep)):
        pairs = aligned(residual(child), residual(parent)).pairs
        matched = {pair[child < parent] for pair in pairs}
        assert len(matched) == 5 * shallow + 2
        for block in range(deep):
            inside = [1 + 5 * block + step in matched for step in range(5)]
            assert all(inside) or not any(inside)


def test_branches_may_change_places_and_arguments_may_not() -> None:
    def net(first: str, second: str, join: str) -> LayerSkeleton:
        shapes = {"conv2d": (8, 8, 3, 3), "linear": (8, 8)}
        return outline(
            ("conv2d", (8, 3, 3, 3), []),
            (first, shapes[first], [0]),
            (second, shapes[second], [0]),
            (join, (), [1, 2]),
        )

    assert score(net("conv2d", "linear", ADD), net("linear", "conv2d", ADD)) == 1
    assert score(net("conv2d", "linear", "concat"), net("linear", "conv2d", "concat")) < 1


def test_coverage_is_the_part_that_the_parent_has_values_for() -> None:
    wide = outline(("linear", (20, 10), []))
    assert aligned(wide, outline(("linear", (10, 5), []))).coverage == pytest.approx(1 / 4)
    assert aligned(outline(("linear", (10, 5), [])), wide).coverage == 1
