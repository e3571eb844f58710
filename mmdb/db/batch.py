"""Rows for an INSERT, as Arrow tables of a bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import pyarrow as pa

#: A batch ends with the row that reaches one of these.
_ROWS, _BYTES = 50_000, 16 << 20

_TYPES = {
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


def arrow_batches(
    types: Mapping[str, str], rows: Iterable[Mapping[str, object]]
) -> Iterator[pa.Table]:
    """Yield rows as tables.

    Args:
        types: SQL type of each column, by name.
    """
    schema = pa.schema([(name, _TYPES[kind]) for name, kind in types.items()])
    blobs = [name for name, kind in types.items() if kind == "bytea"]
    batch: list[Mapping[str, object]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(cast("bytes", row[name] or b"")) for name in blobs)
        if len(batch) >= _ROWS or size >= _BYTES:
            yield _table(schema, batch)
            batch, size = [], 0
    if batch:
        yield _table(schema, batch)


def _table(schema: pa.Schema, rows: list[Mapping[str, object]]) -> pa.Table:
    columns = [[row[field.name] for row in rows] for field in schema]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
