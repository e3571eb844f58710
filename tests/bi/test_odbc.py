"""psqlODBC through pyodbc: what Excel, Tableau and Power BI's ODBC connector ask for."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.bi.conftest import METRICS, PASSWORD, READER, Shop
from tests.bi.environments import program

ZONES = {"UTC": 0, "Asia/Kolkata": 330, "America/St_Johns": None}


@pytest.fixture(scope="session")
def driver() -> Any:
    """Return pyodbc of the environment for BI clients, and nothing else of it."""
    python = program("bi", "python")
    found = sorted(python.parent.parent.glob("lib/python3*/site-packages/pyodbc.*.so"))
    spec = importlib.util.spec_from_file_location("pyodbc", found[0])
    assert spec and spec.loader
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.pooling = False
    return module


def connect(driver: Any, shop: Shop, **options: object) -> Any:
    """Return a connection of the reader."""
    parts = {
        "Driver": "{PostgreSQL Unicode}",
        "Server": "127.0.0.1",
        "Port": shop.port,
        "Database": shop.name,
        "Uid": READER,
        "Pwd": f"{{{PASSWORD}}}",
        "BoolsAsChar": 0,
    }
    text = ";".join(f"{name}={value}" for name, value in (parts | options).items())
    return driver.connect(text, autocommit=True)


@pytest.fixture
def cursor(driver: Any, shop: Shop) -> Iterator[Any]:
    """Yield a cursor of the reader."""
    connection = connect(driver, shop)
    yield connection.cursor()
    connection.close()


def listed(url: str) -> dict[str, list[tuple[str, str]]]:
    """Return each view's columns and types in order, as PostgreSQL itself lists them."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT c.relname::text, a.attname::text, format_type(a.atttypid, NULL)"
            " FROM pg_class AS c INNER JOIN pg_attribute AS a ON a.attrelid = c.oid"
            " WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'v' AND a.attnum > 0"
            " ORDER BY c.relname, a.attnum"
        ).fetchall()
    views: dict[str, list[tuple[str, str]]] = {}
    for view, column, kind in rows:
        views.setdefault(view, []).append((column, kind))
    return views


def test_the_catalog_lists_each_view_with_its_columns(cursor: Any, shop: Shop) -> None:
    views = listed(shop.owner_url)
    found = {row.table_name for row in cursor.tables(schema="mmdb", tableType="VIEW")}
    assert found == set(views)
    columns: dict[str, list[tuple[str, str]]] = {view: [] for view in views}
    for row in cursor.columns(schema="mmdb"):
        if row.table_name in columns:
            columns[row.table_name].append((row.column_name, row.type_name))
    for view, expected in views.items():
        assert [name for name, _ in columns[view]] == [name for name, _ in expected], view
        for (name, kind), (_, shown) in zip(expected, columns[view], strict=True):
            assert shown in SHOWN_AS[kind], f"{view}.{name}: {kind} is shown as {shown}"


#: Types as psqlODBC names them; what it has no name for, it gives as text.
SHOWN_AS = {
    "bigint": {"int8"},
    "boolean": {"bool"},
    "date": {"date"},
    "double precision": {"float8"},
    "integer": {"int4"},
    "integer[]": {"_int4"},
    "bigint[]": {"_int8"},
    "jsonb": {"jsonb"},
    "numeric": {"numeric"},
    "text": {"text"},
    "text[]": {"_text"},
    "timestamp with time zone": {"timestamptz"},
}


def test_views_have_no_keys_and_the_driver_says_so(cursor: Any) -> None:
    assert cursor.primaryKeys("leaderboard", schema="mmdb").fetchall() == []
    assert cursor.foreignKeys("leaderboard", schema="mmdb").fetchall() == []
    assert [key.column_name for key in cursor.primaryKeys("model", schema="mmdb")] == ["model_id"]


def test_every_view_can_be_scanned_as_it_is_browsed(cursor: Any, shop: Shop) -> None:
    for view, columns in listed(shop.owner_url).items():
        cursor.execute(f"SELECT * FROM mmdb.{view} LIMIT 10000")
        assert [name for name, *_ in cursor.description] == [name for name, _ in columns]
        cursor.fetchall()


def test_values_come_in_their_types(cursor: Any) -> None:
    row = cursor.execute(
        "SELECT run, rank, candidate_id, config, accuracy, error, total_s"
        " FROM mmdb.leaderboard WHERE run = 'search' AND rank = 1"
    ).fetchone()
    assert (row.run, row.rank, row.error) == ("search", 1, None)
    assert type(row.candidate_id) is int and isinstance(row.config, str)
    assert 0.8 < row.accuracy <= 1 and type(row.total_s) is float
    shown = cursor.execute("SELECT trainable FROM mmdb.tensor_storage LIMIT 1").fetchval()
    assert shown is True


@pytest.mark.parametrize("zone", ZONES)
def test_times_are_those_of_the_sessions_zone(cursor: Any, shop: Shop, zone: str) -> None:
    query = "SELECT max(finished_at) FROM mmdb.hop_timeline"
    with psycopg.connect(shop.owner_url) as connection:
        connection.execute("SELECT set_config('timezone', %s, false)", (zone,))
        (expected,) = connection.execute(query).fetchone() or (None,)
    cursor.execute(f"SET TimeZone = '{zone}'")
    found = cursor.execute(query).fetchval()  # ODBC's timestamps have no zone
    assert isinstance(expected, datetime) and found == expected.replace(tzinfo=None)
    if ZONES[zone] is not None:
        assert expected.utcoffset() == timedelta(minutes=ZONES[zone] or 0)


def test_ten_thousand_rows_are_scanned_by_a_cursor(driver: Any, shop: Shop) -> None:
    connection = connect(driver, shop, UseDeclareFetch=1, Fetch=500)
    cursor = connection.cursor()
    cursor.execute("SELECT metric, dataset, value, model, version FROM mmdb.metric_overview")
    seen: dict[str, float] = {}
    while rows := cursor.fetchmany(1000):
        seen |= {row.metric: row.value for row in rows}
    assert {f"recall {k}" for k in range(1, METRICS + 1)} <= set(seen)
    assert math.isnan(seen["recall 1"]) and abs(seen["recall 2"] - math.sin(2)) < 1e-12
    connection.close()


@pytest.mark.parametrize("run", ["search", "'; DROP TABLE mmdb.run; --", "señor", ""])
def test_parameters_are_bound(cursor: Any, run: str) -> None:
    query = "SELECT count(*) FROM mmdb.leaderboard WHERE run = ? AND rank <= ?"
    assert cursor.execute(query, run, 3).fetchval() == (3 if run == "search" else 0)


def test_a_read_only_login_changes_nothing(driver: Any, cursor: Any) -> None:
    for statement in (
        "INSERT INTO mmdb.model_note (model_id, note) VALUES (1, 'x')",
        "CALL mmdb.train('search')",
        "SELECT * FROM mmdb.tensor_chunk LIMIT 1",
        "CREATE TEMP TABLE scratch (a integer)",
    ):
        with pytest.raises(driver.Error) as refused:
            cursor.execute(statement)
        assert refused.value.args[0] in ("42501", "25006"), refused.value


def test_the_driver_is_the_one_of_the_system() -> None:
    assert list(Path("/usr/lib").glob("*/odbc/psqlodbcw.so"))
