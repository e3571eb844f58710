from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, cast
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mmdb.graph.match.pack import HEADER, MOST_LAYERS, PackedSkeleton, pack
from mmdb.graph.match.packed_zoo import PackedZoo, stack, unpack
from mmdb.graph.match.score import FEATURES, KINDS
from mmdb.graph.ops.skeleton import LayerSkeleton
from tests.bench.match.families import draw, mutated
from tests.unit.graph.match.outlines import QUICK, outline, outlines, residual

EMPTY = pack(LayerSkeleton(layers=(), inputs=()))
PAIR = pack(outline(("linear", (4, 4), []), ("linear", (4, 4), [0])))


def equal(one: PackedSkeleton, other: PackedSkeleton) -> bool:
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name))
        and getattr(one, field.name).dtype == getattr(other, field.name).dtype
        for field in fields(PackedSkeleton)
    )


def read(rows: list[bytes]) -> dict[int, PackedSkeleton]:
    numbers, found = unpack(rows)
    assert len(found) == len(numbers)
    return {number: found[place] for place, number in enumerate(numbers.tolist())}


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<I", crc32(body))


@QUICK
@given(st.lists(outlines(), max_size=6))
def test_bytes_bring_back_the_same_arrays(given: list[LayerSkeleton]) -> None:
    packed = [pack(one) for one in given]
    again = read([one.to_bytes() for one in packed])
    assert list(again) == list(range(len(given)))
    for number, one in enumerate(given):
        assert equal(again[number], packed[number])
        assert again[number].inputs == [[r for r in reads if r >= 0] for reads in one.inputs]


def test_an_empty_outline_has_bytes_too() -> None:
    again = read([EMPTY.to_bytes(), PAIR.to_bytes(), EMPTY.to_bytes()])
    assert equal(again[0], EMPTY) and equal(again[1], PAIR) and equal(again[2], EMPTY)
    assert (again[2].inputs, again[2].distinct) == ([], [])


@QUICK
@given(outlines(), st.integers(0, 10_000), st.integers(1, 255))
def test_any_changed_byte_is_noticed(found: LayerSkeleton, place: int, change: int) -> None:
    data = bytearray(pack(found).to_bytes())
    data[place % len(data)] ^= change
    assert read([bytes(data)]) == {}


@QUICK
@given(outlines(), st.integers(0, 10_000))
def test_missing_and_further_bytes_are_noticed(found: LayerSkeleton, place: int) -> None:
    data = pack(found).to_bytes()
    assert read([data[: place % len(data)], data + b"\0", data + data]) == {}


@QUICK
@given(outlines(), st.integers(0, 10_000), st.integers(0, 8), st.binary(max_size=9))
def test_what_was_written_wrongly_is_left_out_or_sound(
    found: LayerSkeleton, place: int, gone: int, new: bytes
) -> None:
    body = pack(found).to_bytes()[:-4]
    place %= len(body)
    again = read([PAIR.to_bytes(), sealed(body[:place] + new + body[place + gone :])])
    assert equal(again[0], PAIR)
    assert again.keys() <= {0, 1}


@pytest.mark.parametrize("body", [b"", HEADER, HEADER + b"\xff" * 4, b"\0" * 60, HEADER * 9])
def test_bytes_of_something_else_are_left_out(body: bytes) -> None:
    again = read([PAIR.to_bytes(), sealed(body), body, PAIR.to_bytes(), sealed(body)])
    assert list(again) == [0, 3]
    assert equal(again[0], PAIR) and equal(again[3], PAIR)


@pytest.mark.parametrize(
    "field, wrong",
    [
        ("label", [9, 9]),
        ("label", [0] * (MOST_LAYERS + 1)),
        ("order", [0, 0]),
        ("order", [0, 2]),
        ("sources", [1]),
        ("fan_in", [1, 0]),
        ("fan_in", [0, 2]),
        ("fan_in", [65_535, 65_535]),
        ("kind", [len(KINDS)]),
        ("kind", [-1]),
        ("rank", [3]),
        ("shape", [4, -4]),
        ("groups", []),
        ("parameters", [-1]),
        ("feature", [65_535]),
        ("mass", [np.nan]),
        ("crossing", []),
    ],
)
def test_arrays_that_do_not_fit_together_are_left_out(field: str, wrong: list[float]) -> None:
    arrays = {item.name: getattr(PAIR, item.name) for item in fields(PackedSkeleton)}
    arrays[field] = np.array(wrong, arrays[field].dtype)
    data = PackedSkeleton(**arrays).to_bytes()
    good = pack(residual(3))
    again = read([good.to_bytes(), data, PAIR.to_bytes(), data])
    assert list(again) == [0, 2]
    assert equal(again[0], good) and equal(again[2], PAIR)


def test_a_zoo_is_the_same_whether_outlines_are_added_singly_or_at_once() -> None:
    source = np.random.default_rng(3)
    drawn = list(draw(source, 30))
    packed = [pack(one) for one in [*drawn, *(mutated(one, source) for one in drawn)]]
    packed[7:7] = [EMPTY, PAIR, EMPTY]
    keys = [b"%d" % number for number in range(len(packed))]
    one_by_one, at_once, apart = PackedZoo(), PackedZoo(), PackedZoo()
    for key, one in zip(keys, packed, strict=True):
        one_by_one.add(key, one)
    at_once.extend(keys, unpack([one.to_bytes() for one in packed])[1])
    apart.add(keys[0], packed[0])
    apart.extend(keys[1:40], stack(packed[1:40]))
    apart.extend([], stack([]))
    apart.extend(keys[40:], stack(packed[40:]))
    for zoo in (at_once, apart):
        assert zoo.keys == one_by_one.keys
        for own, other in zip(arrays_of(zoo), arrays_of(one_by_one), strict=True):
            assert np.array_equal(own, other) and own.dtype == other.dtype
        for number, one in enumerate(packed):
            assert np.array_equal(zoo.order(number), one.order)
            assert np.array_equal(zoo.crossing(number), one.crossing)


def arrays_of(zoo: PackedZoo) -> Iterator[NDArray[Any]]:
    """Yield all that is searched, with zeros for the features that no outline has."""
    *arrays, labels = zoo.sequences
    yield from cast("list[NDArray[Any]]", arrays)
    yield from labels
    for feature in range(FEATURES):
        column = zoo.column(feature)
        yield np.zeros(len(zoo), np.float32) if column is None else column
