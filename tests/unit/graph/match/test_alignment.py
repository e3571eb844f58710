"""The dynamic program against a search through all alignments."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import log2, prod

import pytest
from hypothesis import assume, given

from mmdb.graph.match import alignment
from mmdb.graph.match.alignment import align
from mmdb.graph.match.pack import BranchPart, pack
from mmdb.graph.ops.skeleton import ADD, CONCAT, MULTIPLY, LayerSkeleton, SkeletonLayer
from tests.unit.graph.match.outlines import (
    QUICK,
    keeps_all_orders,
    outline,
    outlines,
    residual,
    weight,
)


def all_orders(part: BranchPart) -> Iterator[list[int]]:
    spelt = []
    for item in part.items:
        if isinstance(item, int):
            spelt.append([[item]])
            continue
        inner = [list(all_orders(branch)) for branch in item.parts]
        spelt.append(
            [
                [layer for piece in pieces for layer in piece]
                for order in permutations(inner)
                for pieces in product(*order)
            ]
        )
    for pieces in product(*spelt):
        yield [layer for piece in pieces for layer in piece]


def all_pairings(
    child: Sequence[SkeletonLayer], parent: Sequence[SkeletonLayer]
) -> Iterator[list[tuple[SkeletonLayer, SkeletonLayer]]]:
    if not child or not parent:
        yield []
        return
    yield from all_pairings(child[1:], parent)
    for place, other in enumerate(parent):
        if (child[0].kind, len(child[0].shape)) == (other.kind, len(other.shape)):
            for rest in all_pairings(child[1:], parent[place + 1 :]):
                yield [(child[0], other), *rest]


def count(one: SkeletonLayer) -> float:
    return 0.25 if one.kind in (ADD, CONCAT, MULTIPLY) else 1.0


def value(
    one: SkeletonLayer, other: SkeletonLayer, child: LayerSkeleton, parent: LayerSkeleton
) -> float:
    """The formula of score.py, from the products themselves."""
    sizes = list(zip(one.shape, other.shape, strict=True))
    ratio = prod(min(pair) / max(pair) for pair in sizes)
    if ratio <= 1 / 256:
        return 0.0
    alike = (1 + log2(ratio) / 8) * count(one) / max(weight(child), weight(parent))
    if not child.parameters and not parent.parameters:
        return alike
    inner = prod(min(pair) for pair in sizes) / min(prod(one.shape), prod(other.shape))
    shared = min(one.parameters, other.parameters) * inner
    return (shared / max(child.parameters, parent.parameters) + alike) / 2


def best_by_search(child: LayerSkeleton, parent: LayerSkeleton) -> float:
    second = [parent.layers[number] for number in pack(parent).order]
    best = (0.0, 0.0)
    for order in all_orders(pack(child).branches):
        first = [child.layers[number] for number in order]
        for pairs in all_pairings(first, second):
            found = (
                sum(count(one) for one, _ in pairs),
                sum(value(one, other, child, parent) for one, other in pairs),
            )
            best = max(best, (found[0], round(found[1], 12)))
    return best[1]


@QUICK
@given(outlines(most=6, sizes=(3, 16, 24)), outlines(most=6, sizes=(3, 16, 24)))
def test_the_program_finds_the_best_of_all_alignments(
    child: LayerSkeleton, parent: LayerSkeleton
) -> None:
    assume(keeps_all_orders(child))
    assert align(pack(child), pack(parent)).score == pytest.approx(
        best_by_search(child, parent), abs=1e-9
    )


@QUICK
@given(outlines(), outlines())
def test_the_traced_pairs_are_worth_the_score(child: LayerSkeleton, parent: LayerSkeleton) -> None:
    found = align(pack(child), pack(parent))
    pairs = [(child.layers[i], parent.layers[j]) for i, j in found.pairs]
    total = sum(value(one, other, child, parent) for one, other in pairs)
    assert total == pytest.approx(found.score, abs=1e-9)


@QUICK
@given(outlines(), outlines())
def test_tables_filled_piece_by_piece_give_the_same_pairs(
    child: LayerSkeleton, parent: LayerSkeleton
) -> None:
    whole = align(pack(child), pack(parent))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "_ROOM_BYTES", 6 * len(parent.layers))
        assert align(pack(child), pack(parent)) == whole


def test_an_empty_outline_is_like_itself_and_like_nothing_else() -> None:
    empty, other = pack(LayerSkeleton(layers=(), inputs=())), pack(outline(("linear", (4, 4), [])))
    assert align(empty, empty).score == 1
    assert align(empty, other).score == align(other, empty).score == 0
    assert align(other, empty).pairs == ()


def test_tied_layers_without_parameters_of_their_own_match() -> None:
    layers = (
        SkeletonLayer(ordinal=0, kind="embedding", shape=(100, 8), parameters=800),
        SkeletonLayer(ordinal=1, kind="linear", shape=(100, 8), parameters=0),
    )
    tied = pack(LayerSkeleton(layers=layers, inputs=((-1,), (0,))))
    assert align(tied, tied).score == 1


def test_groups_are_a_size() -> None:
    def conv(groups: int) -> LayerSkeleton:
        shape = (64, 64 // groups, 3, 3)
        found = SkeletonLayer(
            ordinal=0, kind="conv2d", shape=shape, groups=groups, parameters=prod(shape)
        )
        return LayerSkeleton(layers=(found,), inputs=((-1,),))

    assert align(pack(conv(32)), pack(conv(1))).pairs == ()
    assert 0 < align(pack(conv(2)), pack(conv(1))).coverage < 1


def test_five_thousand_layers_each_take_little_memory_and_time() -> None:
    child, parent = pack(residual(1000, 24)), pack(residual(999))
    align(pack(residual(2)), pack(residual(1)))  # compiles
    tracemalloc.start()
    started = time.process_time()
    found = align(child, parent)
    seconds, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.pairs) == 5 * 999 + 2
    assert peak < 200e6
    assert seconds < 20
