"""What Npgsql and Power BI send when they connect, sent by psycopg and read in binary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.bi.conftest import Shop

Cursor = psycopg.Cursor[dict[str, Any]]

#: Npgsql asks which types there are, with what their arrays and ranges hold.
TYPES = """
SELECT n.nspname, t.typname, t.oid, t.typbasetype,
    CASE WHEN p.proname = 'array_recv' THEN 'a' ELSE t.typtype END AS kind,
    CASE WHEN p.proname = 'array_recv' THEN t.typelem WHEN t.typtype = 'r' THEN r.rngsubtype ELSE 0
    END AS element
FROM pg_type AS t
INNER JOIN pg_namespace AS n ON n.oid = t.typnamespace
INNER JOIN pg_proc AS p ON p.oid = t.typreceive
LEFT JOIN pg_class AS c ON c.oid = t.typrelid
LEFT JOIN pg_range AS r ON r.rngtypid = t.oid
WHERE t.typtype IN ('b', 'r', 'e', 'd') OR (t.typtype = 'c' AND c.relkind = 'c')
ORDER BY kind
"""
LABELS = """
SELECT t.oid, e.enumlabel FROM pg_enum AS e INNER JOIN pg_type AS t ON t.oid = e.enumtypid
ORDER BY t.oid, e.enumsortorder
"""
FIELDS = """
SELECT t.oid, a.attname, a.atttypid FROM pg_type AS t
INNER JOIN pg_namespace AS n ON n.oid = t.typnamespace
INNER JOIN pg_class AS c ON c.oid = t.typrelid
INNER JOIN pg_attribute AS a ON a.attrelid = t.typrelid
WHERE t.typtype = 'c' AND c.relkind = 'c' AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY t.oid, a.attnum
"""
#: The navigator of Power BI.
TABLES = """
SELECT table_schema, table_name, table_type FROM information_schema.tables
WHERE table_schema NOT IN ('information_schema', 'pg_catalog') ORDER BY table_schema, table_name
"""
COLUMNS = """
SELECT column_name, ordinal_position, is_nullable, data_type FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
INDEXES = """
SELECT c.constraint_name, k.column_name, k.ordinal_position, c.constraint_type
FROM information_schema.table_constraints AS c
INNER JOIN information_schema.key_column_usage AS k
    ON k.constraint_schema = c.constraint_schema AND k.constraint_name = c.constraint_name
WHERE c.table_schema = %s AND c.table_name = %s AND c.constraint_type IN ('PRIMARY KEY', 'UNIQUE')
"""
RELATED = """
SELECT p.column_name AS key, f.table_schema, f.table_name, f.column_name
FROM information_schema.referential_constraints AS r
INNER JOIN information_schema.key_column_usage AS f
    ON f.constraint_schema = r.constraint_schema AND f.constraint_name = r.constraint_name
INNER JOIN information_schema.key_column_usage AS p
    ON p.constraint_schema = r.unique_constraint_schema
    AND p.constraint_name = r.unique_constraint_name
WHERE p.table_schema = %s AND p.table_name = %s
"""


@pytest.fixture
def cursor(shop: Shop) -> Iterator[Cursor]:
    """Yield a cursor of the reader that reads binary values, as Npgsql does."""
    with psycopg.connect(shop.reader_url, autocommit=True) as connection:
        with connection.cursor(binary=True, row_factory=dict_row) as opened:
            yield opened


def test_npgsql_loads_its_types(cursor: Cursor) -> None:
    kinds = {row["typname"]: row["kind"] for row in cursor.execute(TYPES)}
    assert {kinds[name] for name in ("jsonb", "timestamptz", "float8")} == {"b"}
    assert kinds["_int4"] == "a" and kinds["int8range"] == "r"
    cursor.execute(LABELS)
    assert {row["attname"] for row in cursor.execute(FIELDS)} > {"part_id", "candidate_id"}


def test_the_navigator_shows_what_may_be_read(cursor: Cursor) -> None:
    shown = [row for row in cursor.execute(TABLES).fetchall() if row["table_schema"] == "mmdb"]
    assert {row["table_type"] for row in shown} == {"VIEW"}
    assert {"leaderboard", "model_overview", "run_progress"} <= {r["table_name"] for r in shown}


def test_every_view_loads_page_by_page(cursor: Cursor) -> None:
    views = [r["table_name"] for r in cursor.execute(TABLES) if r["table_schema"] == "mmdb"]
    for view in views:
        columns = [r["column_name"] for r in cursor.execute(COLUMNS, ("mmdb", view))]
        assert cursor.execute(INDEXES, ("mmdb", view)).fetchall() == []
        assert cursor.execute(RELATED, ("mmdb", view)).fetchall() == []
        selected = ", ".join(f'"$Table"."{name}" AS "{name}"' for name in columns)
        page = f'SELECT {selected} FROM "mmdb"."{view}" AS "$Table" LIMIT 1000 OFFSET 0'
        for row in cursor.execute(page):
            assert list(row) == columns


def test_values_come_in_their_types_in_binary(cursor: Cursor) -> None:
    row = cursor.execute(
        "SELECT rank, config, accuracy, error FROM mmdb.leaderboard"
        " WHERE run = 'search' ORDER BY rank"
    ).fetchone()
    assert row and row["rank"] == 1 and isinstance(row["config"], dict) and row["error"] is None
    hop = cursor.execute("SELECT min(started_at) AS at FROM mmdb.hop_timeline").fetchone()
    assert hop and hop["at"].tzinfo is not None


def test_a_connection_that_goes_back_to_the_pool_stays_read_only(cursor: Cursor) -> None:
    cursor.execute("SET default_transaction_read_only = off")
    cursor.execute("DISCARD ALL")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        cursor.execute("CREATE TEMP TABLE scratch (a integer)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        cursor.execute("SELECT * FROM mmdb.tensor_chunk")
