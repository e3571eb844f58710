"""Tables and views of the user, found by name as a query of the session would find them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from mmdb.db.queries import load

if TYPE_CHECKING:
    from mmdb.db.connection import Connection, Row

RelationKind = Literal["table", "view", "other"]


@dataclass(frozen=True, slots=True)
class TableName:
    """A name in FROM, its parts as the engine compares them: PostgreSQL folds what is unquoted."""

    name: str
    schema: str | None = None
    database: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table or view with its columns."""

    schema: str
    name: str
    kind: RelationKind  # other: a view of the system, whose definition says nothing
    columns: tuple[tuple[str, str], ...]  # name and type, in order
    definition: str | None = None  # a view's SELECT, or DuckDB's CREATE VIEW
    database: str | None = None  # DuckDB's; None on PostgreSQL
    is_attached: bool = False  # it is not in the session's own database

    @property
    def shown_schema(self) -> str:
        """The schema, with the database before it where that is another one."""
        return f"{self.database}.{self.schema}" if self.is_attached else self.schema


# -- PostgreSQL ---------------------------------------------------------------


def find_postgres(connection: Connection, name: TableName) -> Relation | None:
    """Return the relation of a name, looked up along the session's search_path.

    No right is needed on it: a view may read what its reader may not name.
    """
    rows = connection.rows(load("catalog").find_relation, name=name.name, schema=name.schema)
    if not rows:
        return None
    row = rows[0]
    return Relation(
        schema=row["schema_name"],
        name=row["name"],
        kind=row["kind"],
        columns=tuple(zip(row["column_names"], row["column_types"], strict=True)),
        definition=row["definition"],
    )


# -- DuckDB -------------------------------------------------------------------

#: Both kinds by their names in lower case; the system's own last. DuckDB's functions have no
#: counterpart on PostgreSQL, so this is no named query.
_CANDIDATES = """
SELECT database_name, schema_name, table_name AS name, 'table' AS kind, NULL AS sql, internal
FROM duckdb_tables() WHERE lower(table_name) = $name
UNION ALL
SELECT database_name, schema_name, view_name, if(internal, 'other', 'view'), sql, internal
FROM duckdb_views() WHERE lower(view_name) = $name
"""
_COLUMNS = """
SELECT column_name, data_type FROM duckdb_columns()
WHERE database_name = $database AND schema_name = $schema AND table_name = $name
ORDER BY column_index
"""
_PATH = """
SELECT
    current_database() AS database,
    current_schema() AS schema,
    current_setting('search_path') AS search_path
"""
#: An entry of the search_path, and a part of it: `shop`, `zoo.shop`, `"my, own.shop"`.
_ENTRY = re.compile(r'(?:"(?:[^"]|"")*"|[^",])+')
_PART = re.compile(r'"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^".]+)')


def find_duckdb(session: Any, name: TableName, beside: Relation | None) -> Relation | None:
    """Return the relation of a name, or None where none or several could be meant.

    Args:
        session: anything with DuckDB's `execute`.
        beside: the view in whose definition the name stands: DuckDB looks into its schema first.
    """
    candidates = _fetch(session, _CANDIDATES, {"name": name.name.lower()})
    if not candidates:
        return None
    (path,) = _fetch(session, _PATH, {})
    found = _choose(candidates, name, _places(path, beside), path["database"])
    if found is None:
        return None
    key = {"database": found["database_name"], "schema": found["schema_name"]}
    columns = _fetch(session, _COLUMNS, key | {"name": found["name"]})
    return Relation(
        schema=found["schema_name"],
        name=found["name"],
        kind=found["kind"],
        columns=tuple((row["column_name"], row["data_type"]) for row in columns),
        definition=found["sql"] if found["kind"] == "view" else None,
        database=found["database_name"],
        is_attached=found["database_name"] not in (path["database"], "system"),
    )


def _fetch(session: Any, sql: str, parameters: dict[str, str]) -> list[Row]:
    cursor = session.execute(sql, parameters or None)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _choose(
    candidates: Sequence[Row],
    name: TableName,
    places: Sequence[tuple[str, str]],
    database: str,
) -> Row | None:
    """Return what a name means; None: nothing, or one of several."""
    if name.schema is None:
        by_place = {_place(row): row for row in candidates}
        return next((by_place[place] for place in places if place in by_place), None)
    fitting = [row for row in candidates if _fits(row, name.schema.lower(), name.database)]
    if name.database is None:  # a schema of the session's database goes before other databases
        fitting = [row for row in fitting if row["database_name"] == database] or fitting
    return fitting[0] if len(fitting) == 1 else None


def _fits(row: Row, schema: str, database: str | None) -> bool:
    if database is not None:
        return _place(row) == (database.lower(), schema)
    return schema in (row["schema_name"].lower(), row["database_name"].lower()) and (
        row["schema_name"].lower() in (schema, "main")
    )


def _place(row: Row) -> tuple[str, str]:
    return row["database_name"].lower(), row["schema_name"].lower()


def _places(path: Row, beside: Relation | None) -> list[tuple[str, str]]:
    """Return the schemas in which a name without one is looked up, in order."""
    database, schema = path["database"].lower(), path["schema"].lower()
    view = [(beside.database.lower(), beside.schema.lower())] if beside and beside.database else []
    rest = [_entry(entry, database) for entry in _ENTRY.findall(path["search_path"] or "")[1:]]
    last = [(database, "main"), ("system", "main"), ("system", "pg_catalog")]
    return [("temp", "main"), *view, (database, schema), *rest, *last]


def _entry(entry: str, database: str) -> tuple[str, str]:
    parts = [m["plain"] or m["quoted"].replace('""', '"') for m in _PART.finditer(entry)]
    *around, schema = (part.lower() for part in parts)
    return (around[-1] if around else database), schema
