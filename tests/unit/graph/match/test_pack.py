from __future__ import annotations

import numpy as np
import pytest

from mmdb.errors import ArchitectureError
from mmdb.graph.match.pack import MOST_LAYERS, pack
from mmdb.graph.match.score import KINDS, SLOTS, are_numbers, number_of, slot_of
from mmdb.graph.ops.skeleton import LayerSkeleton, SkeletonLayer
from tests.unit.graph.match.outlines import residual


@pytest.mark.parametrize(
    "inputs, change",
    [
        (((0,),), {}),
        (((-2,),), {}),
        (((-1,), (0,)), {}),
        (((-1,),), {"shape": (-1, 4)}),
        (((-1,),), {"parameters": -1}),
        (((-1,),), {"shape": (1 << 62,)}),
    ],
)
def test_impossible_outlines_are_refused(
    inputs: tuple[tuple[int, ...], ...], change: dict[str, object]
) -> None:
    made = {"ordinal": 0, "kind": "linear", "shape": (4, 4), "parameters": 16} | change
    with pytest.raises(ArchitectureError):
        pack(LayerSkeleton(layers=(SkeletonLayer(**made),), inputs=inputs))  # type: ignore[arg-type]


def test_too_many_layers_are_refused() -> None:
    layers = (SkeletonLayer(ordinal=0, kind="linear"),) * (MOST_LAYERS + 1)
    with pytest.raises(ArchitectureError, match="at most"):
        pack(LayerSkeleton(layers=layers, inputs=((),) * len(layers)))


def test_kinds_have_fixed_numbers() -> None:
    # Stored: these must never change.
    assert [number_of(kind) for kind in ("add", "conv2d", "linear", "prelu")] == [0, 4, 12, 31]
    assert number_of("a kind of its own") == number_of("a kind of its own") == 1_283_714_665
    numbers = np.array([number_of(kind) for kind in (*KINDS, "a", "b", "")], np.int32)
    assert are_numbers(numbers).all()
    assert all(slot_of(number_of(kind)) < SLOTS for kind in (*KINDS, "a", "b", ""))
    assert len({slot_of(number_of(kind)) for kind in KINDS}) == len(KINDS)


def test_a_hundred_blocks_take_few_bytes() -> None:
    assert len(pack(residual(100)).to_bytes()) < 12 * 502
