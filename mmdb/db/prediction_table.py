"""A table of predictions: found by its name, made, and added to.

This module imports no driver, so that the server loads none: sessions come as arguments, and
their errors are told apart by SQLSTATE.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mmdb import errors
from mmdb.db.queries import load
from mmdb.db.target import COLUMNS, Table, Target, check_schema, quote_name

if TYPE_CHECKING:  # the server loads it only where rows are written
    from mmdb.db.connection import Connection


def create_statement(table: Table, select: str, key: str) -> str:
    """Return the statement that makes a table; the key has the type that the SELECT gives it."""
    others = ", ".join(
        f"CAST(NULL AS {types[table.catalog is not None]}) AS {name}"
        for name, types in COLUMNS.items()
    )
    return (
        f"CREATE TABLE {table.sql} AS SELECT q.{quote_name(key)}, {others} "
        f"FROM ({select}\n) AS q WITH NO DATA"
    )


# -- PostgreSQL, both ways ----------------------------------------------------


def find_postgres(connection: Connection, target: Target) -> Table:
    """Return a target's table, or the place for it.

    Raises:
        TargetMismatch: there is no such schema, or it is not for tables of users.
    """
    query = load("catalog").find_target
    rows = connection.rows(query, name=target.sql, schema=target.schema)
    first = rows[0]
    schema = _existing(target, first["schema_name"])
    if first["table_name"] is None:
        return Table(schema=schema, name=target.table, exists=False)
    return Table(
        schema=schema,
        name=first["table_name"],
        is_base=first["is_base"],
        columns=tuple((r["column_name"], r["type"]) for r in rows if r["column_name"] is not None),
        key_cast=first["key_cast"] or "",
    )


def _existing(target: Target, schema: str | None) -> str:
    """Return the schema that a target is in, or would be made in."""
    if schema is None:
        wanted = "in which to make a table" if target.schema is None else target.schema
        raise errors.TargetMismatch(
            f"There is no schema {wanted}.", hint="Name one that exists: schema.table."
        )
    check_schema(schema)
    return schema


def key_type_postgres(select: str, key: str) -> str:
    """Return the query for the type of a SELECT's column; it runs nothing of the SELECT."""
    inner = f"SELECT q.{quote_name(key)} FROM ({select}\n) AS q LIMIT 0"
    return f"SELECT pg_catalog.pg_typeof(({inner}))::text AS type"


def insert_postgres(table: Table, marks: Sequence[str], percent: str = "%") -> str:
    """Return the INSERT of one batch.

    Args:
        marks: placeholders of the model, the keys, predictions and probabilities.
        percent: what stands for a percent sign in a name.
    """
    model, keys, predictions, probabilities = marks
    into, key, cast = (
        text.replace("%", percent)
        for text in (table.sql, quote_name(table.columns[0][0]), table.key_cast)
    )
    return (
        f"INSERT INTO {into} (model, {key}, prediction, probability, predicted_at) "
        f"SELECT {model}::text, u.k::{cast}, u.p, u.q, pg_catalog.now() FROM ROWS FROM ("
        f"pg_catalog.unnest({keys}::text[]), pg_catalog.unnest({predictions}::text[]), "
        f"pg_catalog.unnest({probabilities}::double precision[])) AS u (k, p, q)"
    )


@contextmanager
def made_once() -> Iterator[None]:
    """Raise WriteConflict where another session made the table first.

    PostgreSQL says duplicate_table, or, if that session had still to commit, unique_violation of
    its own catalog.
    """
    try:
        yield
    except Exception as error:
        if getattr(error, "sqlstate", None) in ("42P07", "23505"):
            raise errors.WriteConflict("Another session has just made the table.") from error
        raise


# -- DuckDB -------------------------------------------------------------------

#: DuckDB's functions have no counterpart on PostgreSQL, so these are no named queries.
_FIND_DUCKDB = """
SELECT t.schema_name, t.table_name, t.is_base, c.column_name, c.data_type
FROM (
    SELECT database_name, schema_name, table_name, true AS is_base FROM duckdb_tables()
    UNION ALL
    SELECT database_name, schema_name, view_name, false FROM duckdb_views()
) AS t
LEFT JOIN duckdb_columns() AS c
    ON c.database_name = t.database_name AND c.schema_name = t.schema_name
    AND c.table_name = t.table_name
WHERE t.database_name = $catalog AND lower(t.schema_name) = lower($schema)
    AND lower(t.table_name) = lower($name)
ORDER BY c.column_index
"""
_SCHEMA_DUCKDB = """
SELECT current_database(), s.schema_name
FROM duckdb_schemas() AS s
WHERE s.database_name = current_database()
    AND lower(s.schema_name) = lower(coalesce($schema, current_schema()))
"""


def find_duckdb(session: Any, target: Target) -> Table:
    """Return a target's table in the file that the session has open, or the place for it.

    Raises:
        TargetMismatch: there is no such schema, or it is not for tables of users.
    """
    place = session.execute(_SCHEMA_DUCKDB, {"schema": target.schema}).fetchone()
    catalog, schema = (None, None) if place is None else place
    schema = _existing(target, schema)
    where = {"catalog": catalog, "schema": schema, "name": target.table}
    rows = session.execute(_FIND_DUCKDB, where).fetchall()
    if not rows:
        return Table(catalog=catalog, schema=schema, name=target.table, exists=False)
    columns = tuple((name, kind) for *_, name, kind in rows if name is not None)
    _, name, is_base, *_ = rows[0]
    return Table(catalog=catalog, schema=schema, name=name, is_base=is_base, columns=columns)


def key_type_duckdb(session: Any, select: str, key: str) -> str:
    """Return the type of a SELECT's column."""
    rows = session.execute(f"DESCRIBE SELECT q.{quote_name(key)} FROM ({select}\n) AS q").fetchall()
    return str(rows[0][1])


def insert_duckdb(table: Table, batch: str) -> str:
    """Return the statement that adds the predictions of a table named `batch`, by `$model`."""
    key = quote_name(table.columns[0][0])
    return (
        f"INSERT INTO {table.sql} ({key}, prediction, probability, model, predicted_at) "
        f"SELECT key, prediction, probability, $model, now() FROM {batch}"
    )
