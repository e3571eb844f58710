"""PostgreSQL's binary rows, made by hand here, become columns."""

import math
import struct
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mmdb.db.connection import Kind, NullFound, RaggedFound
from mmdb.db.row_formats import NULL_BITS, Field, Framing, row_parser


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
    batch = row_parser(fields, framing).parse(rows)
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
    assert list(batch["word"]) == ["é0", "é1", "é2"]
    assert list(batch["more"]) == ["", "", ""]


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
        row_parser(fields, framing).parse(rows)


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
        row_parser([("a", "real"), ("v", "reals")], framing).parse(rows)
    assert raised.value.column == "v"


def test_byte_strings_of_other_lengths_that_add_up_are_found() -> None:
    rows = [row("copy", data, b"xy") for data in (b"ab", b"a", b"abc")]
    with pytest.raises(RaggedFound) as raised:
        row_parser([("raw", "bytes"), ("other", "bytes")], "copy").parse(rows)
    assert raised.value.column == "raw"


def arrays(*arrays: tuple[str, Sequence[Any]]) -> bytes:
    """Return one row of arrays as PostgreSQL has them in memory: struct's formats, and elements."""
    row = b""
    for kind, values in arrays:
        known = [value for value in values if value is not None]
        bits = np.packbits([value is not None for value in values], bitorder="little").tobytes()
        begin = 24 if len(known) == len(values) else 24 + -(-len(bits) // 8) * 8
        row += struct.pack("=iiiii", 1, begin if len(known) < len(values) else 0, 0, len(values), 1)
        row += bits.ljust(begin - 24, b"\0") if begin > 24 else b""
        for value in known:
            if kind == "text":
                data = value.encode()
                size = 4 + len(data)
                row += struct.pack("=I", size << 2 if sys.byteorder == "little" else size)
                row += data.ljust(len(data) + -size % 4, b"\0")
            else:
                row += struct.pack("=q" if isinstance(value, int) else f"={kind}", value)
    return row


def test_arrays_as_a_server_has_them_become_columns() -> None:
    fields: list[Field] = [
        ("word", "nullable_text"),
        ("a", "number"),
        ("n", "bigint"),
        ("key", "text"),
        ("b", "number"),
        ("x", "real"),
    ]
    numbers = [(1.5, -0.0), (NULL_BITS, 2.0), (math.nan, NULL_BITS)]
    words = [("é", "k"), (None, ""), ("", "long enough to be read")]
    rows = [
        arrays(("d", pair), ("f", [0.5]), ("q", [-place]), ("text", some))
        for place, (pair, some) in enumerate(zip(numbers, words, strict=True))
    ]
    batch = row_parser(fields, "arrays").parse(rows)
    assert list(batch["word"]) == ["é", None, ""]
    assert list(batch["key"]) == ["k", "", "long enough to be read"]
    np.testing.assert_array_equal(batch["a"], [1.5, math.nan, math.inf])  # NaN is refused later
    np.testing.assert_array_equal(batch["b"], [0.0, 2.0, math.nan])
    np.testing.assert_array_equal(batch["n"], [0, -1, -2])
    np.testing.assert_array_equal(batch["x"], np.full(3, 0.5))


@pytest.mark.parametrize("kind", ["text", "bigint"])
def test_a_null_in_an_array_names_its_column(kind: Kind) -> None:
    value: dict[Kind, Any] = {"text": "a", "bigint": 7}
    form = "text" if kind == "text" else "q"
    rows = [arrays((form, [value[kind], value[kind]])), arrays((form, [value[kind], None]))]
    with pytest.raises(NullFound) as raised:
        row_parser([("whole", kind), ("broken", kind)], "arrays").parse(rows)
    assert raised.value.column == "broken"


def test_the_first_batch_fixes_the_lengths_of_later_ones() -> None:
    parser = row_parser([("raw", "bytes")], "copy")
    parser.parse([row("copy", b"ab")])
    with pytest.raises(RaggedFound):
        parser.parse([row("copy", b"abc")])
