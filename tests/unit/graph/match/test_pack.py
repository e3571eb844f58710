from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmdb.errors import ArchitectureError
from mmdb.graph.flow.outline import Layer, Outline
from mmdb.graph.match.kinds import KINDS, SLOTS, is_number, number_of, slot_of
from mmdb.graph.match.pack import MOST_LAYERS, Packed, from_bytes, pack
from tests.unit.graph.match.outlines import QUICK, outline, outlines, residual


def equal(one: Packed, other: Packed) -> bool:
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name))
        and getattr(one, field.name).dtype == getattr(other, field.name).dtype
        for field in fields(Packed)
    )


@QUICK
@given(outlines())
def test_bytes_bring_back_the_same_arrays(found: Outline) -> None:
    packed = pack(found)
    again = from_bytes(packed.to_bytes())
    assert equal(again, packed)
    assert again.inputs == [[read for read in reads if read >= 0] for reads in found.inputs]


def test_an_empty_outline_has_bytes_too() -> None:
    packed = pack(Outline(layers=(), inputs=()))
    assert equal(from_bytes(packed.to_bytes()), packed)
    assert (packed.inputs, packed.distinct) == ([], [])


@QUICK
@given(outlines(), st.integers(0, 10_000), st.integers(1, 255))
def test_any_changed_byte_is_noticed(found: Outline, place: int, change: int) -> None:
    data = bytearray(pack(found).to_bytes())
    data[place % len(data)] ^= change
    with pytest.raises(ValueError, match="packed outline"):
        from_bytes(bytes(data))


@QUICK
@given(outlines(), st.integers(0, 10_000))
def test_missing_and_further_bytes_are_noticed(found: Outline, place: int) -> None:
    data = pack(found).to_bytes()
    for wrong in (data[: place % len(data)], data + b"\0"):
        with pytest.raises(ValueError, match="packed outline"):
            from_bytes(wrong)


@pytest.mark.parametrize(
    "field, wrong",
    [
        ("label", [9, 9]),
        ("order", [0, 0]),
        ("sources", [1]),
        ("fan_in", [1, 0]),
        ("kind", [len(KINDS)]),
        ("rank", [3]),
        ("shape", [4, -4]),
        ("parameters", [-1]),
        ("feature", [65_535]),
        ("mass", [np.nan]),
        ("crossing", []),
    ],
)
def test_arrays_that_do_not_fit_together_are_noticed(field: str, wrong: list[float]) -> None:
    packed = pack(outline(("linear", (4, 4), []), ("linear", (4, 4), [0])))
    arrays = {item.name: getattr(packed, item.name) for item in fields(Packed)}
    arrays[field] = np.array(wrong, arrays[field].dtype)
    with pytest.raises(ValueError, match="packed outline"):
        from_bytes(Packed(**arrays).to_bytes())


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
        pack(Outline(layers=(Layer(**made),), inputs=inputs))  # type: ignore[arg-type]


def test_too_many_layers_are_refused() -> None:
    layers = (Layer(ordinal=0, kind="linear"),) * (MOST_LAYERS + 1)
    with pytest.raises(ArchitectureError, match="at most"):
        pack(Outline(layers=layers, inputs=((),) * len(layers)))


def test_kinds_have_fixed_numbers() -> None:
    # Stored: these must never change.
    assert [number_of(kind) for kind in ("add", "conv2d", "linear", "prelu")] == [0, 4, 12, 31]
    assert number_of("a kind of its own") == number_of("a kind of its own") == 1_283_714_665
    assert all(is_number(number_of(kind)) for kind in (*KINDS, "a", "b", ""))
    assert all(slot_of(number_of(kind)) < SLOTS for kind in (*KINDS, "a", "b", ""))
    assert len({slot_of(number_of(kind)) for kind in KINDS}) == len(KINDS)


def test_a_hundred_blocks_take_few_bytes() -> None:
    assert len(pack(residual(100)).to_bytes()) < 12 * 502
