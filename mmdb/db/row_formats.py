"""Rows between engines: batches of a bounded size for an INSERT, and PostgreSQL's binary rows."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from mmdb.db.connection import Batch, Kind, NullFound, RaggedFound, Texts

if TYPE_CHECKING:
    import pyarrow as pa


#: A batch ends with the row that reaches one of these.
_ROWS, _BYTES = 50_000, 2 << 20


def arrow_batches(
    types: Mapping[str, str], rows: Iterable[Mapping[str, object]]
) -> Iterator[pa.Table]:
    """Yield rows as tables.

    Args:
        types: SQL type of each column, by name.
    """
    import pyarrow as pa  # which PostgreSQL's sessions need not load for this

    from mmdb.db.arrow import to_array

    schema = pa.schema([(name, _arrow_types()[kind]) for name, kind in types.items()])
    for columns in column_batches(types, rows, most_rows=_ROWS, most_bytes=_BYTES):
        arrays = [to_array(columns[field.name], field.type) for field in schema]
        yield pa.Table.from_arrays(arrays, schema=schema)


def column_batches(
    types: Mapping[str, str],
    rows: Iterable[Mapping[str, object]],
    *,
    most_rows: int = 1_000,
    most_bytes: int = 256 << 10,
) -> Iterator[dict[str, list[object]]]:
    """Yield rows as the values of each column; the row that reaches a bound is a batch's last.

    Args:
        types: SQL type of each column, by name.
        most_bytes: of the values of type bytea.
    """
    blobs = [name for name, kind in types.items() if kind == "bytea"]
    batch: list[Mapping[str, object]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(cast("bytes", row[name] or b"")) for name in blobs)
        if len(batch) >= most_rows or size >= most_bytes:
            yield {name: [one[name] for one in batch] for name in types}
            batch, size = [], 0
    if batch:
        yield {name: [one[name] for one in batch] for name in types}


@cache
def _arrow_types() -> dict[str, pa.DataType]:
    """Return Arrow's type for each SQL type of a parameter."""
    import pyarrow as pa

    return {
        "bigint": pa.int64(),
        "bigint[]": pa.list_(pa.int64()),
        "boolean": pa.bool_(),
        "bytea": pa.binary(),
        "double precision": pa.float64(),
        "integer": pa.int32(),
        "integer[]": pa.list_(pa.int32()),
        "jsonb": pa.string(),
        "text": pa.string(),
        "text[]": pa.list_(pa.string()),
        "timestamptz": pa.timestamp("us", tz="UTC"),
    }


#: "copy": a field count of 16 bits, then length and data of each field.
#: "record": a field count of 32 bits, then type, length and data of each field.
#: "arrays": the arrays of `in_arrays`, one after the other, as PostgreSQL has them in memory.
Framing = Literal["copy", "record", "arrays"]
Field = tuple[str, Kind]

#: Kinds of numbers: as they are on the wire, and PostgreSQL's name of the type.
_NUMBERS = {
    "number": (">f8", "float8"),
    "double": (">f8", "float8"),
    "real": (">f4", "float4"),
    "bigint": (">i8", "int8"),
}
_TEXTS = ("text", "nullable_text")
#: Kinds whose values may be NULL.
NULLABLE = ("number", "nullable_text", "files")
#: The bits of a NULL among an array's numbers: of a NaN that no arithmetic makes.
NULL_BITS = 0x7FF8_6D6D_6462_0000
#: Bytes of an array before its data: dimensions, place of the data, type, length, lower bound.
_HEAD = 20
#: Rows whose columns are read or written in turn: they stay in the processor's cache.
TILE = 512


def in_arrays(fields: Sequence[Field]) -> list[list[Field]]:
    """Return fields by the array that they come in, texts last; none where some fit no array."""
    kinds: list[tuple[str, ...]] = [*((kind,) for kind in _NUMBERS), _TEXTS]
    found = [[field for field in fields if field[1] in some] for some in kinds]
    return [some for some in found if some] if sum(map(len, found)) == len(fields) else []


def row_parser(fields: Sequence[Field], framing: Framing) -> RowParser | ArrayParser:
    """Return what parses the rows of a scan of these fields, given in their order on the wire."""
    return ArrayParser(fields) if framing == "arrays" else RowParser(fields, framing)


class _Rows:
    """The bytes of some rows, with eight more, so that a number can be read from any place."""

    def __init__(self, rows: Sequence[bytes | memoryview]) -> None:
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        self.ends = np.cumsum(sizes)
        self.begins = self.ends - sizes
        self.joined = b"".join(rows) + bytes(8)

    def read(self, at: np.ndarray, dtype: str | np.dtype[Any]) -> np.ndarray:
        """Return what lies at some places, one value of a type at each."""
        count = len(self.joined) - np.dtype(dtype).itemsize + 1
        every: np.ndarray = np.ndarray((count,), dtype, self.joined, strides=(1,))
        return every[at]  # type: ignore[no-any-return]

    def texts(self, at: np.ndarray, length: np.ndarray) -> Texts:
        """Return the texts at ascending places; one of a length below 0 is NULL."""
        import pyarrow as pa

        from mmdb.db.arrow import to_arrow

        bounds = np.stack([at, at + np.maximum(length, 0)], axis=1)
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self.joined)]
        array = pa.Array.from_buffers(pa.large_string(), bounds.size - 1, buffers)
        every_other = to_arrow(np.arange(0, bounds.size, 2), missing=length < 0)
        return to_texts(array.take(every_other))


def to_texts(array: pa.Array) -> Texts:
    """Return an array of strings with each different one once."""
    from mmdb.db.arrow import to_numpy

    found = array.dictionary_encode("encode")
    return Texts(found.dictionary.to_pylist(), to_numpy(found.indices))


_NO_ROWS = "The binary rows are not as PostgreSQL's manual describes them."


class RowParser:
    """Parses the rows of one scan, a field of all rows at a time; the first row fixes lengths."""

    def __init__(self, fields: Sequence[Field], framing: Framing) -> None:
        """Take the fields in their order on the wire."""
        self._fields = fields
        self._count, self._prefix = (2, 0) if framing == "copy" else (4, 4)
        self._shapes: dict[str, tuple[int, tuple[int, ...]]] = {}

    def parse(self, rows: Sequence[bytes | memoryview]) -> Batch:
        """Return the columns of some rows; see `Kind` for dtypes and shapes.

        Raises:
            NullFound: a field, or an element of an array, is NULL, and its kind takes none.
            RaggedFound: an array or byte string is not as long as the first row's.
        """
        given = _Rows(rows)
        at = given.begins + self._count
        batch: Batch = {}
        for name, kind in self._fields:
            at += self._prefix + 4
            length = given.read(at - 4, ">i4").astype(np.int64)
            if (at + np.maximum(length, 0) > given.ends).any():
                raise ValueError(_NO_ROWS)
            if kind not in NULLABLE and length.min() < 0:
                raise NullFound(name)
            batch[name] = self._column(name, kind, given, at, length)
            at += np.maximum(length, 0)
        if (at != given.ends).any():
            raise ValueError(_NO_ROWS)
        return batch

    def _column(
        self, name: str, kind: Kind, given: _Rows, at: np.ndarray, length: np.ndarray
    ) -> np.ndarray | Sequence[Any]:
        if kind in _NUMBERS:
            dtype = np.dtype(_NUMBERS[kind][0])
            numbers = given.read(at, dtype).astype(dtype.newbyteorder("<"))
            return nullable_numbers(numbers, length < 0) if kind == "number" else numbers
        if kind in _TEXTS:
            return given.texts(at, length)
        if kind == "files":
            spans = zip(at.tolist(), length.tolist(), strict=True)
            return [given.joined[i : i + n] if n >= 0 else None for i, n in spans]
        if name not in self._shapes:
            self._shapes[name] = _shape_of(name, kind, given.joined, int(at[0]))
        size, dims = self._shapes[name]
        for place in at[length != size].tolist():
            _shape_of(name, kind, given.joined, place)  # a NULL inside makes an array shorter
            raise RaggedFound(name)
        if kind == "bytes":
            return given.read(at, f"V{max(size, 1)}").view("u1").reshape(len(at), -1)[:, :size]
        return _elements(name, dims, given.read(at, _array_dtype(dims)))


def _shape_of(name: str, kind: Kind, row: bytes, at: int) -> tuple[int, tuple[int, ...]]:
    """Return the bytes of the data of an array or byte string, and an array's dimensions."""
    size, *_ = _INT.unpack_from(row, at - 4)
    if kind == "bytes":
        return size, ()
    ndim, *_ = _INT.unpack_from(row, at)
    dims = tuple(_INT.unpack_from(row, at + 12 + 8 * axis)[0] for axis in range(ndim))
    if size != _array_dtype(dims).itemsize:  # an element shorter than 8 bytes: a NULL
        raise NullFound(name)
    return size, dims


_INT = struct.Struct(">i")


def _array_dtype(dims: tuple[int, ...]) -> np.dtype[np.void]:
    count = math.prod(dims) if dims else 0
    return np.dtype(
        [
            ("head", ">i4", (3,)),  # number of dimensions, whether there are NULLs, type
            ("dims", [("n", ">i4"), ("low", ">i4")], (len(dims),)),
            ("items", [("length", ">i4"), ("value", ">f4")], (count,)),
        ]
    )


def _elements(name: str, dims: tuple[int, ...], data: np.ndarray) -> np.ndarray:
    if (data["items"]["length"] != 4).any():
        raise NullFound(name)
    if (data["head"][:, 0] != len(dims)).any() or (data["dims"]["n"] != dims).any():
        raise RaggedFound(name)
    return data["items"]["value"].astype("<f4")


class ArrayParser:
    """Parses rows of arrays as PostgreSQL has them in memory, on the machine that made them.

    Source: PostgreSQL, src/include/utils/array.h: after its head an array with NULLs has a bitmap
    of the elements that are there; the others take no room.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        """Take the fields in any order."""
        self._arrays = in_arrays(fields)

    def parse(self, rows: Sequence[bytes | memoryview]) -> Batch:
        """Return the columns of some rows; see `Kind` for dtypes and shapes.

        Raises:
            NullFound: of a kind that takes no NULL.
        """
        given = _Rows(rows)
        at = given.begins
        batch: Batch = {}
        for fields in self._arrays:
            at, known = _begins(fields, given, at)
            kind = fields[0][1]
            if kind in _TEXTS:
                return batch | _text_columns(fields, given, at, known)
            dtype = np.dtype(_NUMBERS[kind][0]).newbyteorder("=")
            size = dtype.itemsize * len(fields)
            values = columns_of(given.read(at, f"V{size}").view(dtype).reshape(len(at), -1))
            if kind == "number":
                values = nullable_numbers(values, values.view(np.int64) == NULL_BITS)
            batch |= {name: column for (name, _), column in zip(fields, values, strict=True)}
            at = at + size
        return batch


def _begins(fields: Sequence[Field], given: _Rows, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the data of each array begins, and which elements are there, (n, fields)."""
    start = given.read(at + 4, "=i4").astype(np.int64)
    known = np.ones((len(at), len(fields)), bool)
    some = start > 0
    if some.any():
        bitmap = given.read(at[some] + _HEAD, f"V{-(-len(fields) // 8)}").view(np.uint8)
        bits = np.unpackbits(bitmap.reshape(some.sum(), -1), axis=1, bitorder="little")
        known[some] = bits[:, : len(fields)]
        for place in np.flatnonzero(~known.all(axis=0)).tolist():
            if fields[place][1] not in NULLABLE:
                raise NullFound(fields[place][0])
    return at + np.where(some, start - 4, _HEAD), known


def _text_columns(
    fields: Sequence[Field], given: _Rows, at: np.ndarray, known: np.ndarray
) -> Batch:
    """Return the columns of arrays of texts, each behind its size, at multiples of four bytes."""
    columns: Batch = {}
    start, at = at, at.copy()
    for place, (name, _) in enumerate(fields):
        size = given.read(at, "=u4") >> (2 if sys.byteorder == "little" else 0)
        size = np.where(known[:, place], size, 0).astype(np.int64)
        columns[name] = given.texts(at + 4, size - 4)
        at += size + (start - at - size) % 4
    return columns


def columns_of(rows: np.ndarray) -> np.ndarray:
    """Return (n, k) as (k, n)."""
    columns = np.empty(rows.shape[::-1], rows.dtype)
    for first in range(0, len(rows), TILE):
        columns[:, first : first + TILE] = rows[first : first + TILE].T
    return columns


def nullable_numbers(values: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return numbers with NaN for NULL alone: what is NaN becomes infinite, which is as refused."""
    values[np.isnan(values)] = np.inf
    values[missing] = np.nan
    return values
