from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmdb.graph.match.alignment import align
from mmdb.graph.match.pack import PackedSkeleton, pack
from mmdb.graph.match.packed_zoo import PackedZoo
from mmdb.graph.match.zoo_search import explore, search, upper_bounds
from mmdb.graph.ops.skeleton import LayerSkeleton
from tests.bench.match.all_scores import score_all
from tests.bench.match.families import draw, mutated
from tests.unit.graph.match.outlines import QUICK, outlines, residual


def zoo_of(packed: list[PackedSkeleton]) -> PackedZoo:
    zoo = PackedZoo()
    for number, item in enumerate(packed):
        assert zoo.add(b"%d" % number, item) == number
    return zoo


@pytest.fixture(scope="module")
def families() -> list[PackedSkeleton]:
    source = np.random.default_rng(1)
    drawn = list(draw(source, 40))
    return [pack(found) for found in [*drawn, *(mutated(found, source) for found in drawn)]]


@QUICK
@given(outlines(), st.lists(outlines(), min_size=1, max_size=8))
def test_no_score_exceeds_its_bound(child: LayerSkeleton, parents: list[LayerSkeleton]) -> None:
    zoo = zoo_of([pack(parent) for parent in parents])
    assert np.all(score_all(pack(child), zoo) <= upper_bounds(pack(child), zoo))


def test_no_score_of_the_families_exceeds_its_bound(families: list[PackedSkeleton]) -> None:
    zoo = zoo_of(families)
    for child in families[::3]:
        scores, bounds = score_all(child, zoo), upper_bounds(child, zoo)
        assert np.all(scores <= bounds)
        assert np.mean(bounds) < 0.75  # and they do say something


@QUICK
@given(outlines(), st.lists(outlines(most=6), max_size=12), st.integers(0, 5))
def test_a_search_finds_what_all_scores_show(
    child: LayerSkeleton, parents: list[LayerSkeleton], k: int
) -> None:
    zoo = zoo_of([pack(parent) for parent in parents])
    packed = pack(child)
    scores = [align(packed, pack(parent)).score for parent in parents]
    order = sorted(range(len(parents)), key=lambda number: (-scores[number], number))
    found = search(packed, zoo, k)
    assert [(match.number, match.score) for match in found] == [(n, scores[n]) for n in order[:k]]
    for match in found:
        assert match.alignment == align(packed, pack(parents[match.number]))


def test_a_search_of_the_families_is_exact_and_looks_at_few(families: list[PackedSkeleton]) -> None:
    zoo = zoo_of(families)
    looked_at = 0
    for child in families:
        scores = score_all(child, zoo)
        order = sorted(range(len(zoo)), key=lambda number: (-scores[number], number))
        found = explore(child, zoo, 3)
        assert [match.number for match in found.matches] == order[:3]
        assert found.matches[0].score == 1
        looked_at += found.looked_at
    assert looked_at < 0.5 * len(zoo) ** 2


def test_the_outline_with_the_same_key_comes_first(families: list[PackedSkeleton]) -> None:
    zoo = zoo_of([families[0], *families])
    found = search(families[0], zoo, 3, key=b"1")
    assert [(match.number, match.is_same) for match in found[:2]] == [(1, True), (0, False)]
    assert search(families[0], zoo, 1, key=b"1")[0].score == 1
    assert explore(families[0], zoo, 1, key=b"1").looked_at == 0
    assert not search(families[0], zoo, 1, key=b"unknown")[0].is_same


def test_a_search_looks_only_where_it_is_told(families: list[PackedSkeleton]) -> None:
    zoo = zoo_of(families)
    among = np.zeros(len(zoo), np.bool_)
    assert search(families[3], zoo, 3, among=among, key=b"3") == []
    among[5:7] = True
    assert {match.number for match in search(families[3], zoo, 3, among=among, key=b"3")} == {5, 6}
    assert among.sum() == 2


def test_a_key_is_added_once_and_a_zoo_can_grow_between_searches(
    families: list[PackedSkeleton],
) -> None:
    zoo = PackedZoo()
    assert search(families[0], zoo, 3) == []
    for number, packed in enumerate(families):
        assert zoo.add(b"%d" % number, packed) == zoo.add(b"%d" % number, families[0]) == number
        assert search(packed, zoo, 1)[0].score == 1
    assert len(zoo) == len(families)
    assert zoo.size_bytes < 20_000 * len(zoo)


def test_the_nearest_depth_and_width_are_found() -> None:
    zoo = zoo_of([pack(residual(depth, width)) for depth in (3, 9, 27) for width in (8, 16, 64)])
    assert search(pack(residual(10, 15)), zoo, 1)[0].number == 4
    assert search(pack(residual(26, 60)), zoo, 1)[0].number == 8
