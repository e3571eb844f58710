"""Relations of DuckDB, found as a query would find them; PostgreSQL's have their test elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from mmdb.db.connection import Relation, TableName, find_duckdb


@pytest.fixture
def session() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(
            """
            CREATE SCHEMA shop;
            CREATE TABLE t (a integer, "B" text);
            CREATE TABLE shop.t (c integer);
            CREATE TABLE shop.own (c integer);
            CREATE VIEW shop.v (x) AS SELECT c FROM t;
            ATTACH ':memory:' AS other;
            CREATE TABLE other.main.far (d integer);
            CREATE TABLE other.main.t (e integer);
            """
        )
        yield connection


def found(session: duckdb.DuckDBPyConnection, *parts: str) -> str | None:
    """Return where a name leads to; the parts are given from the outside in."""
    *around, name = parts
    schema = around[-1] if around else None
    database = around[-2] if len(around) > 1 else None
    relation = find_duckdb(session, TableName(name, schema, database), None)
    return None if relation is None else f"{relation.shown_schema}.{relation.name}"


def test_a_name_leads_to_the_first_schema_of_the_path(session: duckdb.DuckDBPyConnection) -> None:
    assert found(session, "t") == "main.t"
    assert found(session, "own") is None
    session.execute("SET search_path = 'shop'")
    assert (found(session, "t"), found(session, "T"), found(session, "own")) == (
        *("shop.t", "shop.t", "shop.own"),
    )
    session.execute("CREATE TEMP TABLE t (f integer)")
    assert found(session, "t") == "temp.main.t"


@pytest.mark.parametrize("schema", ["my.shop", "my, shop", 'my "shop"'])
def test_schemas_of_the_path_may_have_any_name(
    session: duckdb.DuckDBPyConnection, schema: str
) -> None:
    quoted = '"' + schema.replace('"', '""') + '"'
    session.execute(f"CREATE SCHEMA {quoted}; CREATE TABLE {quoted}.t (g integer)")
    session.execute("CREATE SCHEMA empty")
    for place in (quoted, f"memory.{quoted}"):
        session.execute(f"SET search_path = 'empty,{place}'")
        assert found(session, "t") == f"{schema}.t"
        (row,) = session.execute("DESCRIBE SELECT * FROM t").fetchall()
        assert row[0] == "g"  # what DuckDB itself finds


def test_a_name_with_parts_is_taken_by_them(session: duckdb.DuckDBPyConnection) -> None:
    assert found(session, "shop", "t") == "shop.t"
    assert found(session, "other", "far") == "other.main.far"
    assert found(session, "main", "t") == "main.t"
    assert found(session, "other", "main", "t") == "other.main.t"
    assert found(session, "nowhere", "t") is None
    session.execute("USE other")
    assert (found(session, "t"), found(session, "memory", "t")) == ("main.t", "memory.main.t")


def test_a_name_in_a_view_is_looked_for_in_its_schema_first(
    session: duckdb.DuckDBPyConnection,
) -> None:
    view = find_duckdb(session, TableName("v", "shop"), None)
    assert view is not None
    assert (view.kind, view.columns) == ("view", (("x", "INTEGER"),))
    assert view.definition is not None and "SELECT c FROM t" in view.definition
    inside = find_duckdb(session, TableName("t"), view)
    assert inside == Relation(
        schema="shop", name="t", kind="table", columns=(("c", "INTEGER"),), database="memory"
    )


def test_columns_are_spelled_as_they_were_made(session: duckdb.DuckDBPyConnection) -> None:
    relation = find_duckdb(session, TableName("t"), None)
    assert relation is not None and [name for name, _ in relation.columns] == ["a", "B"]
    system = find_duckdb(session, TableName("columns", "information_schema"), None)
    assert system is not None and (system.kind, system.definition) == ("other", None)
