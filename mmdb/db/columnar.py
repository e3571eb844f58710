"""The views of mmdb and what they hold, column by column, as Arrow has it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import tuple_row

from mmdb.db.arrow import to_array
from mmdb.db.duck import DuckConnection
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import sql_directory
from mmdb.db.url import AnyConnection
from mmdb.errors import DatabaseFailed

#: Rows of one batch.
_ROWS = 16_384
#: PostgreSQL's types; numeric becomes double precision, any other a text.
_TYPES = {
    "bool": pa.bool_(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "numeric": pa.float64(),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view, with the engine's name of its type."""

    name: str
    type: str
    comment: str | None


@dataclass(frozen=True, slots=True)
class ViewColumns:
    """A view of schema mmdb."""

    name: str
    comment: str | None
    columns: tuple[ViewColumn, ...]


def find_views(connection: AnyConnection) -> list[ViewColumns]:
    """Return the views of schema mmdb, in order of their names' code points."""
    file = sql_directory("sql/engines") / f"{connection.engine}_columns.sql"
    rows = connection.select(file.read_text())
    found = [
        ViewColumns(
            name,
            group[0]["view_comment"],
            tuple(
                ViewColumn(r["column_name"], r["column_type"], r["column_comment"]) for r in group
            ),
        )
        for name, part in itertools.groupby(rows, lambda row: row["view_name"])
        for group in [list(part)]
    ]
    return sorted(found, key=lambda view: view.name)


def read_view(connection: AnyConnection, name: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the columns of a view and its rows, which are read as they are taken.

    Times are in UTC, JSON is text. Until the last batch is taken, the session can do nothing else.

    Args:
        name: of `find_views`: it becomes part of the statement.
    """
    if isinstance(connection, DuckConnection):
        return _read_duckdb(connection, name)
    return _read_postgres(connection, name)


def _read_duckdb(
    connection: DuckConnection, name: str
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    try:
        relation: Any = connection.raw.sql(f'SELECT * FROM mmdb."{name}"')
        found = relation.to_arrow_reader(_ROWS)
    except duckdb.Error as error:
        raise connection.translate_error(error) from error
    schema = pa.schema([pa.field(f.name, _plain(f.type)) for f in found.schema])

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for batch in found:
                columns = [c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
        except (duckdb.Error, pa.ArrowException) as error:
            raise DatabaseFailed(f"View mmdb.{name} cannot be read: {error}") from error

    return schema, batches()


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return the type in a file: times in UTC, JSON as text, no 128-bit integers."""
    if isinstance(type_, pa.BaseExtensionType):
        return _plain(type_.storage_type)
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_decimal(type_):
        return pa.float64()
    return type_


def _read_postgres(
    connection: PostgresConnection, name: str
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    statement = sql.SQL("SELECT * FROM mmdb.{}").format(sql.Identifier(name))
    empty = connection.raw.execute(statement + sql.SQL(" LIMIT 0"))
    columns = empty.description or ()
    schema = pa.schema([pa.field(c.name, _of_postgres(c.type_code)) for c in columns])
    texts = [_text_of(c.type_code) for c in columns]

    def batches() -> Iterator[pa.RecordBatch]:
        with connection.raw.cursor(row_factory=tuple_row) as cursor:
            rows = cursor.stream(statement, binary=True)
            while chunk := list(itertools.islice(rows, _ROWS)):
                parts = [
                    to_array(values if text is None else map(text, values), field.type)
                    for values, text, field in zip(
                        zip(*chunk, strict=True), texts, schema, strict=True
                    )
                ]
                yield pa.RecordBatch.from_arrays(parts, schema=schema)

    return schema, batches()


def _of_postgres(oid: int) -> pa.DataType:
    info = psycopg.adapters.types.get(oid)
    scalar = _TYPES.get(info.name, pa.string()) if info else pa.string()
    return pa.list_(scalar) if info is not None and info.array_oid == oid else scalar


def _text_of(oid: int) -> Callable[[Any], Any] | None:
    """Return what makes psycopg's value one of Arrow's, where it is none already."""
    info = psycopg.adapters.types.get(oid)
    name = info.name if info else ""
    if name in ("json", "jsonb"):
        return lambda value: None if value is None else json.dumps(value, ensure_ascii=False)
    if name == "numeric":
        return lambda value: None if value is None else float(value)
    if name in _TYPES or name == "text":
        return None
    return lambda value: None if value is None else str(value)
