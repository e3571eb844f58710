"""Rows for an INSERT, in batches of a bounded size: as Arrow tables, or as a list a column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, cast

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
