"""pgjdbc as Metabase uses it: metadata, comments, keys, and the first rows of all it may read."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest

from tests.bi.conftest import METRICS, Shop
from tests.bi.environments import ask

LIMIT = 10_000  # rows that Metabase looks at


@pytest.fixture(scope="module")
def synced(shop: Shop) -> Any:
    """Return what a sync finds as the reader."""
    login = urlsplit(shop.reader_url)
    url = f"jdbc:postgresql://127.0.0.1:{shop.port}/{shop.name}"
    user, password = str(login.username), unquote(str(login.password))
    return ask("bi", "jdbc_scan.py", url, user, password, "mmdb")


def comments(url: str) -> dict[str, str]:
    """Return the comment of each view by its name, and of each of their columns by both names."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT c.relname || coalesce('.' || a.attname, ''), d.description"
            " FROM pg_description AS d INNER JOIN pg_class AS c ON d.objoid = c.oid"
            " LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = d.objsubid"
            "   AND a.attnum > 0"
            " WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'v'"
        ).fetchall()
    return dict(rows)


def test_a_sync_finds_the_views_and_no_tables(synced: Any) -> None:
    views = {name for name, table in synced["tables"].items() if table["kind"] == "VIEW"}
    assert set(synced["readable"]) == views


def test_remarks_are_the_comments(synced: Any, shop: Shop) -> None:
    said = comments(shop.owner_url)
    for view in synced["readable"]:
        assert synced["tables"][view]["remarks"] == said[view]
        for column in synced["columns"][view]:
            assert column["remarks"] == said.get(f"{view}.{column['name']}")


def test_every_column_of_every_view_has_a_remark(synced: Any) -> None:
    bare = [
        f"{view}.{column['name']}"
        for view in synced["readable"]
        for column in synced["columns"][view]
        if not column["remarks"]
    ]
    assert bare == []


def test_keys_are_those_of_the_tables(synced: Any) -> None:
    assert synced["primary"]["hop"] == ["part_id", "candidate_id", "epoch"]
    assert sorted(synced["imported"]["hop"]) == ["candidate", "partition"]
    assert not any(synced["primary"][view] for view in synced["readable"])


def test_first_rows_are_read_of_every_view(synced: Any) -> None:
    found = synced["fingerprints"]
    assert set(found) == set(synced["readable"])
    assert found["metric_overview"]["rows"] == LIMIT < METRICS
    assert found["leaderboard"]["rows"] == 5
    assert found["candidate_progress"]["distinct"]["epoch"] == 3


def test_no_column_is_of_bytes(synced: Any) -> None:
    kinds = {c["type"] for view in synced["readable"] for c in synced["columns"][view]}
    assert "bytea" not in kinds and "text" in kinds
