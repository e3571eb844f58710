"""Rows between engines: batches of a bounded size for an INSERT, and PostgreSQL's binary rows."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, NoReturn, cast

import numpy as np

from mmdb.db.connection import Batch, Kind, NullFound, RaggedFound

if TYPE_CHECKING:
    import pyarrow as pa


#: A batch ends with the row that reaches one of these.
_ROWS, _BYTES = 50_000, 16 << 20


def arrow_batches(
    types: Mapping[str, str], rows: Iterable[Mapping[str, object]]
) -> Iterator[pa.Table]:
    """Yield rows as tables.

    Args:
        types: SQL type of each column, by name.
    """
    import pyarrow as pa  # which PostgreSQL's sessions need not load for this

    schema = pa.schema([(name, _arrow_types()[kind]) for name, kind in types.items()])
    for columns in column_batches(types, rows, most_rows=_ROWS, most_bytes=_BYTES):
        arrays = [pa.array(columns[field.name], field.type) for field in schema]
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
Framing = Literal["copy", "record"]
Field = tuple[str, Kind]

_COUNT = {"copy": ">i2", "record": ">i4"}
_SCALARS = {"real": (">f4", "<f4"), "bigint": (">i8", "<i8")}  # on the wire, in the batch
_INT = struct.Struct(">i")
#: Kinds whose values may be NULL; a row that has one of them is of no fixed length.
NULLABLE = ("number", "nullable_text", "files")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What the first row says about one field."""

    kind: Kind
    size: int  # bytes of its data
    dims: tuple[int, ...] = ()  # of an array


class RowParser:
    """Parses the rows of one scan; its first row fixes the length of every field but text."""

    def __init__(self, fields: Sequence[Field], framing: Framing) -> None:
        """Take the fields in their order on the wire, text last."""
        order = [kind == "text" for _, kind in fields]
        assert order == sorted(order), "text comes last"
        self._fixed = [field for field in fields if field[1] != "text"]
        self._texts = [name for name, kind in fields if kind == "text"]
        self._fields = list(fields)
        self._count = _COUNT[framing]
        self._prefix = 4 if framing == "record" else 0  # the field's type, before its length
        self._shapes: list[_Shape] = []
        self._groups: list[tuple[_Shape, list[str]]] = []
        self._dtype = np.dtype([])

    def parse(self, rows: Sequence[bytes | memoryview]) -> Batch:
        """Return the columns of some rows; see `Kind` for dtypes and shapes.

        Raises:
            NullFound: a field, or an element of an array, is NULL.
            RaggedFound: an array or byte string is not as long as the first row's.
        """
        if not self._shapes:
            self._learn(bytes(rows[0]))
        table = self._table(rows)
        batch: Batch = {}
        for index, (shape, names) in enumerate(self._groups):
            field = table[f"g{index}"]
            if not self._is_uniform(shape, field):
                self._blame(rows)
            _add_columns(batch, shape, names, field["data"])
        if self._texts:
            batch |= self._parse_texts(rows)
        return batch

    def _learn(self, row: bytes) -> None:
        position = np.dtype(self._count).itemsize
        for name, kind in self._fixed:
            position += self._prefix
            shape = _shape_of(name, kind, row, position)
            self._shapes.append(shape)
            position += 4 + shape.size
        for shape, (name, _) in zip(self._shapes, self._fixed, strict=True):
            if not self._groups or self._groups[-1][0] != shape:
                self._groups.append((shape, []))
            self._groups[-1][1].append(name)
        self._dtype = np.dtype(
            [("count", self._count)]
            + [
                (f"g{index}", self._field_dtype(shape), (len(names),))
                for index, (shape, names) in enumerate(self._groups)
            ]
        )

    def _field_dtype(self, shape: _Shape) -> np.dtype[np.void]:
        length: list[tuple[str, str]] = [("length", ">i4")]
        oid = [("oid", ">i4")] if self._prefix else []
        return np.dtype([*oid, *length, ("data", _data_dtype(shape))])

    def _table(self, rows: Sequence[bytes | memoryview]) -> np.ndarray:
        size = self._dtype.itemsize
        joined = b"".join([row[:size] for row in rows] if self._texts else rows)
        if len(joined) != size * len(rows):
            self._blame(rows)
        table = np.frombuffer(joined, self._dtype)
        if (table["count"] != len(self._fields)).any():
            self._blame(rows)
        return table

    def _is_uniform(self, shape: _Shape, field: np.ndarray) -> bool:
        """Return whether a group's fields are all as the first row's, NULLs inside aside."""
        if (field["length"] != shape.size).any():
            return False
        if shape.kind != "reals":
            return True
        data = field["data"]
        return bool(
            (data["ndim"] == len(shape.dims)).all()
            and (data["dims"]["n"] == shape.dims).all()
            and (data["items"]["length"] == 4).all()
        )

    def _parse_texts(self, rows: Sequence[bytes | memoryview]) -> dict[str, list[str]]:
        columns: dict[str, list[str]] = {name: [] for name in self._texts}
        start, prefix, unpack = self._dtype.itemsize, self._prefix, _INT.unpack_from
        for row in rows:
            position = start
            for name, column in columns.items():
                position += prefix + 4
                (length,) = unpack(row, position - 4)
                if length < 0:
                    raise NullFound(name)
                column.append(str(row[position : position + length], "utf-8"))
                position += length
            if position != len(row):
                raise ValueError("A binary row has another length than its fields add up to.")
        return columns

    def _blame(self, rows: Sequence[bytes | memoryview]) -> NoReturn:
        """Raise for the first field that differs from the first row's."""
        for row in rows:
            position = np.dtype(self._count).itemsize
            for (name, kind), shape in zip(self._fixed, self._shapes, strict=True):
                position += self._prefix
                found = _shape_of(name, kind, row, position)
                if found != shape:
                    raise RaggedFound(name)
                position += 4 + shape.size
        raise ValueError("The binary rows are not as PostgreSQL's manual describes them.")


class NullableParser:
    """Parses the rows of one scan in which values may be NULL, a field of all rows at a time."""

    def __init__(self, fields: Sequence[Field], framing: Framing) -> None:
        """Take the fields in their order on the wire."""
        self._fields = fields
        self._count = np.dtype(_COUNT[framing]).itemsize
        self._prefix = 4 if framing == "record" else 0
        self._shapes: dict[str, _Shape] = {}

    def parse(self, rows: Sequence[bytes | memoryview]) -> Batch:
        """Return the columns of some rows; see `Kind` for dtypes and shapes.

        Raises:
            NullFound, RaggedFound: of the kinds that take no NULL, as `RowParser.parse`.
        """
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        ends = np.cumsum(sizes)
        joined = b"".join(rows) + bytes(8)  # so that eight bytes can be read from any place
        at = ends - sizes + self._count
        lengths = np.ndarray((len(joined) - 3,), ">i4", joined, strides=(1,))
        batch: Batch = {}
        for name, kind in self._fields:
            at += self._prefix
            length = lengths[at]
            at += 4
            batch |= self._column(name, kind, joined, at, length)
            at += np.maximum(length, 0)
        if (at != ends).any():
            raise ValueError("The binary rows are not as PostgreSQL's manual describes them.")
        return batch

    def _column(
        self, name: str, kind: Kind, joined: bytes, at: np.ndarray, length: np.ndarray
    ) -> Batch:
        if kind == "number":
            numbers = np.ndarray((len(joined) - 7,), ">f8", joined, strides=(1,))[at]
            return {name: nullable_numbers(numbers.astype("<f8"), length < 0)}
        if kind not in NULLABLE and length.min() < 0:
            raise NullFound(name)
        if kind in ("text", "nullable_text", "files"):
            spans = zip(at.tolist(), length.tolist(), strict=True)
            if kind == "files":
                return {name: [joined[i : i + n] if n >= 0 else None for i, n in spans]}
            return {name: [str(joined[i : i + n], "utf-8") if n >= 0 else None for i, n in spans]}
        shape = self._shapes.get(name)
        if shape is None:
            shape = self._shapes[name] = _shape_of(name, kind, joined, int(at[0]) - 4)
        if (length != shape.size).any():
            for place in at[length != shape.size].tolist():
                _shape_of(name, kind, joined, place - 4)  # a NULL inside makes an array shorter
            raise RaggedFound(name)
        found = np.frombuffer(joined, np.uint8)[at[:, None] + np.arange(shape.size)]
        if kind == "bytes":
            return {name: found}
        data = np.ascontiguousarray(found).view(_data_dtype(shape))  # (n, 1)
        if kind == "reals":
            self._check_array(name, shape, data)
        columns: Batch = {}
        _add_columns(columns, shape, [name], data)
        return columns

    def _check_array(self, name: str, shape: _Shape, data: np.ndarray) -> None:
        if (data["items"]["length"] != 4).any():
            raise NullFound(name)
        if (data["dims"]["n"] != shape.dims).any():
            raise RaggedFound(name)


def row_parser(fields: Sequence[Field], framing: Framing) -> RowParser | NullableParser:
    """Return what parses the rows of a scan of these fields, given in their order on the wire."""
    nullable = any(kind in NULLABLE for _, kind in fields)
    return (NullableParser if nullable else RowParser)(fields, framing)


def nullable_numbers(values: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return numbers with NaN for NULL alone: what is NaN becomes infinite, which is as refused."""
    values[np.isnan(values)] = np.inf
    values[missing] = np.nan
    return values


def _shape_of(name: str, kind: Kind, row: bytes | memoryview, position: int) -> _Shape:
    (size,) = _INT.unpack_from(row, position)
    if size < 0:
        raise NullFound(name)
    if kind in _SCALARS:
        size = np.dtype(_SCALARS[kind][0]).itemsize
    if kind != "reals":
        return _Shape(kind=kind, size=size)
    (ndim,) = _INT.unpack_from(row, position + 4)
    dims = [_INT.unpack_from(row, position + 16 + 8 * axis)[0] for axis in range(ndim)]
    count = int(np.prod(dims)) if dims else 0
    if size != 12 + 8 * ndim + 8 * count:  # an element shorter than 8 bytes: a NULL
        raise NullFound(name)
    return _Shape(kind=kind, size=size, dims=tuple(dims))


def _data_dtype(shape: _Shape) -> np.dtype[np.generic]:
    if shape.kind in _SCALARS:
        return np.dtype(_SCALARS[shape.kind][0])
    if shape.kind == "bytes":
        return np.dtype(("u1", (shape.size,)))
    count = int(np.prod(shape.dims)) if shape.dims else 0
    return np.dtype(
        [
            ("ndim", ">i4"),
            ("flags", ">i4"),
            ("oid", ">i4"),
            ("dims", [("n", ">i4"), ("low", ">i4")], (len(shape.dims),)),
            ("items", [("length", ">i4"), ("value", ">f4")], (count,)),
        ]
    )


def _add_columns(batch: Batch, shape: _Shape, names: list[str], data: np.ndarray) -> None:
    if shape.kind in _SCALARS:
        block = data.astype(_SCALARS[shape.kind][1])  # (n, columns)
    elif shape.kind == "bytes":
        block = data  # (n, columns, bytes)
    else:
        block = data["items"]["value"].astype("<f4")  # (n, columns, elements)
    for index, name in enumerate(names):
        batch[name] = block[:, index]
