"""PostgreSQL's binary rows, made by hand here, become columns."""

import struct
from collections.abc import Sequence

import numpy as np
import pytest

from mmdb.db.connection import NullFound, RaggedFound
from mmdb.db.row_formats import Field, Framing, RowParser


def real(value: float) -> bytes:
    return struct.pack(">f", value)


def bigint(value: int) -> bytes:
    return struct.pack(">q", value)


def reals(values: Sequence[float | None], dims: Sequence[int] | None = None) -> bytes:
    shape = [len(values)] if dims is None else dims
    head = struct.pack(">iii", len(shape), int(None in values), 700)
    head += b"".join(struct.pack(">ii", size, 1) for size in shape)
    return head + b"".join(field(None if v is None else real(v)) for v in values)


def field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def row(framing: Framing, *fields: bytes | None) -> bytes:
    if framing == "copy":
        return struct.pack(">h", len(fields)) + b"".join(map(field, fields))
    return struct.pack(">i", len(fields)) + b"".join(b"\0\0\2\xbc" + field(f) for f in fields)


@pytest.mark.parametrize("framing", ["copy", "record"])
def test_every_kind_arrives_with_its_dtype_and_shape(framing: Framing) -> None:
    fields: list[Field] = [
        ("a", "real"),
        ("b", "real"),
        ("n", "bigint"),
        ("v", "reals"),
        ("m", "reals"),
        ("raw", "bytes"),
        ("word", "text"),
        ("more", "text"),
    ]
    rows = [
        row(
            framing,
            real(i),
            real(-i),
            bigint(2**40 + i),
            reals([i, 0.5]),
            reals([1, 2, 3, i], [2, 2]),
            bytes([i, 7, 255]),
            f"é{i}".encode(),
            b"",
        )
        for i in range(3)
    ]
    batch = RowParser(fields, framing).parse(rows)
    expected = {
        "a": np.array([0, 1, 2], "<f4"),
        "b": np.array([0, -1, -2], "<f4"),
        "n": 2**40 + np.arange(3),
        "v": np.array([[0, 0.5], [1, 0.5], [2, 0.5]], "<f4"),
        "m": np.array([[1, 2, 3, i] for i in range(3)], "<f4"),
        "raw": np.array([[i, 7, 255] for i in range(3)], "u1"),
    }
    for name, values in expected.items():
        found = batch[name]
        assert isinstance(found, np.ndarray)
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values)
    assert batch["word"] == ["é0", "é1", "é2"]
    assert batch["more"] == ["", "", ""]


@pytest.mark.parametrize("framing", ["copy", "record"])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("fields", "whole", "broken"),
    [
        ([("a", "real"), ("n", "bigint")], (real(1), bigint(1)), (None, bigint(1))),
        ([("a", "real"), ("n", "bigint")], (real(1), bigint(1)), (real(1), None)),
        ([("v", "reals")], (reals([1, 2]),), (None,)),
        ([("v", "reals")], (reals([1, 2]),), (reals([1, None]),)),
        ([("raw", "bytes")], (b"ab",), (None,)),
        ([("a", "real"), ("w", "text")], (real(1), b"ab"), (real(1), None)),
        ([("a", "real"), ("w", "text")], (real(1), b"ab"), (None, b"ab")),
    ],
)
def test_a_null_is_found_wherever_it_is(
    framing: Framing,
    place: int,
    fields: list[Field],
    whole: tuple[bytes | None, ...],
    broken: tuple[bytes | None, ...],
) -> None:
    rows = [row(framing, *whole)] * 3
    rows[place] = row(framing, *broken)
    with pytest.raises(NullFound):
        RowParser(fields, framing).parse(rows)


@pytest.mark.parametrize("framing", ["copy", "record"])
@pytest.mark.parametrize(
    ("first", "others"),
    [
        (reals([1, 2]), [reals([1, 2, 3])]),
        (reals([1, 2]), [reals([])]),
        (reals([1, 2]), [reals([1]), reals([1, 2, 3])]),  # the sum of lengths is as expected
        (reals([1, 2, 3, 4, 5, 6], [2, 3]), [reals([1, 2, 3, 4, 5, 6], [3, 2])]),
    ],
)
def test_an_array_of_another_length_names_its_column(
    framing: Framing, first: bytes, others: list[bytes]
) -> None:
    rows = [row(framing, real(0), data) for data in [first, *others]]
    with pytest.raises(RaggedFound) as raised:
        RowParser([("a", "real"), ("v", "reals")], framing).parse(rows)
    assert raised.value.column == "v"


def test_byte_strings_of_other_lengths_that_add_up_are_found() -> None:
    rows = [row("copy", data, b"xy") for data in (b"ab", b"a", b"abc")]
    with pytest.raises(RaggedFound) as raised:
        RowParser([("raw", "bytes"), ("other", "bytes")], "copy").parse(rows)
    assert raised.value.column == "raw"


def test_the_first_batch_fixes_the_lengths_of_later_ones() -> None:
    parser = RowParser([("raw", "bytes")], "copy")
    parser.parse([row("copy", b"ab")])
    with pytest.raises(RaggedFound):
        parser.parse([row("copy", b"abc")])
