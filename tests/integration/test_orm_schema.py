"""The mapped classes are the schema of both databases: a table, column or key without one fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import ForeignKeyConstraint, PrimaryKeyConstraint, UniqueConstraint
from sqlalchemy.schema import ColumnCollectionConstraint
from sqlalchemy.types import ARRAY, TypeEngine

import mmdb
from mmdb import orm
from mmdb.api import Database
from tests.cluster import Cluster


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Yield an empty database."""
    if request.param == "duckdb":
        with mmdb.connect("duckdb://") as opened:
            yield opened
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    url = cluster.create_database("mmdb_orm_schema", request.getfixturevalue("template"))
    with mmdb.connect(url) as opened:
        yield opened
    cluster.drop_database("mmdb_orm_schema")


def type_name(column_type: TypeEngine[Any], engine: str) -> str:
    """Return a column's type as the engine's catalog names it."""
    if isinstance(column_type, ARRAY):
        return type_name(column_type.item_type, engine) + "[]"
    names = {
        "BIGINT": ("bigint", "BIGINT"),
        "INTEGER": ("integer", "INTEGER"),
        "TEXT": ("text", "VARCHAR"),
        "DOUBLE": ("double precision", "DOUBLE"),
        "BOOLEAN": ("boolean", "BOOLEAN"),
        "DATETIME": ("timestamp with time zone", "TIMESTAMP WITH TIME ZONE"),
        "JSONB": ("jsonb", "JSON"),
        "BLOB": ("bytea", "BLOB"),
    }
    return names[str(column_type)][engine == "duckdb"]


def mapped_columns(engine: str) -> set[tuple[str, str, str, bool]]:
    """Return what the classes say: relation, column, type, and whether it may be null."""
    return {
        (t.name, c.name, type_name(c.type, engine), bool(c.nullable) or bool(t.info.get("is_view")))
        for t in orm.Base.metadata.tables.values()
        if t.info.get("engine", engine) == engine
        for c in t.columns
    }


COLUMNS = {
    "postgres": """
        SELECT c.relname::text AS t, a.attname::text AS c, format_type(a.atttypid, NULL) AS type,
               NOT a.attnotnull AS nullable
        FROM pg_attribute AS a INNER JOIN pg_class AS c ON a.attrelid = c.oid
        WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind IN ('r', 'p', 'v')
              AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped""",
    "duckdb": """
        SELECT table_name AS t, column_name AS c, data_type AS type, is_nullable AS nullable
        FROM duckdb_columns() WHERE schema_name = 'mmdb'""",
}
KEYS = {
    "postgres": """
        SELECT t.relname::text AS t, c.contype::text AS kind,
               coalesce(f.relname::text, '') AS target,
               ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY AS k (n, o)
                     INNER JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = k.n
                     ORDER BY k.o) AS columns
        FROM pg_constraint AS c INNER JOIN pg_class AS t ON c.conrelid = t.oid
        LEFT JOIN pg_class AS f ON c.confrelid = f.oid
        WHERE c.connamespace = 'mmdb'::regnamespace AND c.contype IN ('p', 'u', 'f')
              AND c.conparentid = 0""",
    "duckdb": """
        SELECT table_name AS t, lower(constraint_type[1]) AS kind, '' AS target,
               constraint_column_names AS columns
        FROM duckdb_constraints()
        WHERE schema_name = 'mmdb' AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')""",
}


def test_classes_have_every_table_view_and_column(db: Database) -> None:
    rows = db.sql(COLUMNS[db.connection.engine])
    found = {(r["t"], r["c"], r["type"], r["nullable"]) for r in rows}
    assert mapped_columns(db.connection.engine) == found


def test_columns_stand_in_the_order_of_the_tables(db: Database) -> None:
    order: dict[str, list[str]] = {}
    for row in db.sql(
        "SELECT table_name AS t, column_name AS c FROM information_schema.columns "
        "WHERE table_schema = 'mmdb' ORDER BY table_name, ordinal_position"
    ):
        order.setdefault(row["t"], []).append(row["c"])
    for table in orm.Base.metadata.tables.values():
        if table.info.get("engine", db.connection.engine) == db.connection.engine:
            assert [c.name for c in table.columns] == order[table.name], table.name


def test_classes_have_the_keys_of_the_tables(db: Database) -> None:
    engine = db.connection.engine
    kinds: dict[type[ColumnCollectionConstraint], str] = {
        PrimaryKeyConstraint: "p",
        UniqueConstraint: "u",
    }
    if engine == "postgres":  # mmdb makes no foreign keys on DuckDB: mmdb/db/ddl.py
        kinds[ForeignKeyConstraint] = "f"
    mapped = {
        (
            table.name,
            kinds[type(one)],
            one.referred_table.name if isinstance(one, ForeignKeyConstraint) else "",
            tuple(c.name for c in one.columns),
        )
        for table in orm.Base.metadata.tables.values()
        if not table.info.get("is_view") and table.info.get("engine", engine) == engine
        for one in table.constraints
        if isinstance(one, ColumnCollectionConstraint) and type(one) in kinds and len(one.columns)
    }
    rows = db.sql(KEYS[engine])
    assert mapped == {(r["t"], r["kind"], r["target"], tuple(r["columns"])) for r in rows}


def test_classes_of_views_have_the_keys_that_the_database_declares(db: Database) -> None:
    declared: dict[str, set[str]] = {}
    for row in db.sql("SELECT view_name, column_name FROM mmdb.view_key WHERE kind = 'primary'"):
        declared.setdefault(row["view_name"], set()).add(row["column_name"])
    mapped = {
        table.name: {column.name for column in table.primary_key}
        for table in orm.Base.metadata.tables.values()
        if table.name in declared
    }
    assert mapped == declared and len(declared) > 20
