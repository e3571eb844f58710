"""Checkpoints of a DuckDB file: what they write again, and what they merge."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.db import duck
from mmdb.db.duck import DuckConnection
from mmdb.db.space import used_bytes

BYTES = 1 << 20


def _row_groups(db: Database) -> int:
    (row,) = db.sql("SELECT count(DISTINCT row_group_id) AS n FROM pragma_storage_info('blobs')")
    return int(row["n"])


def _add(db: Database, *numbers: int) -> None:
    """Add rows to a table with a key, as those of states are, each in a checkpoint of its own."""
    db.sql("CREATE TABLE IF NOT EXISTS blobs (number integer PRIMARY KEY, data blob)")
    for number in numbers:
        values = {"number": number, "data": os.urandom(BYTES)}
        db.sql("INSERT INTO blobs VALUES ($number, $data)", values)
        db.sql("CHECKPOINT")


def _numbers(db: Database) -> list[int]:
    return [row["number"] for row in db.sql("SELECT number FROM blobs ORDER BY number")]


def _merge(db: Database) -> None:
    assert isinstance(db.connection, DuckConnection)
    db.connection.merge()


def test_a_checkpoint_leaves_alone_what_earlier_ones_wrote(tmp_path: Path) -> None:
    with mmdb.connect(f"duckdb:///{tmp_path}/zoo.duckdb") as db:
        _add(db, *range(5))
        assert _row_groups(db) == 5
        _merge(db)
        assert _row_groups(db) == 1
        _add(db, 5, 6)
        assert _row_groups(db) == 3


def test_merging_frees_what_was_deleted_beside_what_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duck, "_MERGED_BYTES", 0)
    url = f"duckdb:///{tmp_path}/zoo.duckdb"
    with mmdb.connect(url) as db:
        _add(db)
        for half in (range(4), range(4, 8)):
            with db.connection.transaction():
                for number in half:
                    values = {"number": number, "data": os.urandom(BYTES)}
                    db.sql("INSERT INTO blobs VALUES ($number, $data)", values)
            db.sql("CHECKPOINT")
        db.sql("DELETE FROM blobs WHERE number % 4 <> 0")
        db.sql("CHECKPOINT")
        before = used_bytes(db.connection)
    with mmdb.connect(url) as db:  # in which nothing has touched the table
        _merge(db)
        assert used_bytes(db.connection) < before - 4 * BYTES
        assert _numbers(db) == [0, 4]
        _add(db, 1)
        with pytest.raises(errors.DatabaseFailed):
            _add(db, 4)


@pytest.mark.parametrize("name", ["zoo", "mmdb"])
@pytest.mark.parametrize(("most", "row_groups"), [(256 << 20, 1), (0, 3)])
def test_a_small_file_is_merged_when_it_is_closed_and_a_large_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int, row_groups: int
) -> None:
    monkeypatch.setattr(duck, "_MERGED_BYTES", most)
    url = f"duckdb:///{tmp_path}/{name}.duckdb"
    for number in range(3):
        with mmdb.connect(url) as db:
            _add(db)
            values = {"number": number, "data": os.urandom(BYTES)}
            db.sql("INSERT INTO blobs VALUES ($number, $data)", values)
    with mmdb.connect(url) as db:
        assert _row_groups(db) == row_groups
        assert _numbers(db) == [0, 1, 2]


def test_a_file_is_merged_by_garbage_collection_that_finds_nothing(tmp_path: Path) -> None:
    with mmdb.connect(f"duckdb:///{tmp_path}/zoo.duckdb") as db:
        _add(db, 1, 2)
        db.gc(dry_run=True)
        assert _row_groups(db) == 2
        db.gc(dry_run=False)
        assert _row_groups(db) == 1


def test_a_file_whose_transaction_has_failed_is_closed(tmp_path: Path) -> None:
    url = f"duckdb:///{tmp_path}/zoo.duckdb"
    with mmdb.connect(url) as db:
        _add(db, 1)
        db.sql("BEGIN")
        db.sql("DELETE FROM blobs")
        with pytest.raises(errors.DatabaseFailed):
            db.sql("SELECT error('no')")
    with mmdb.connect(url) as db:
        assert _numbers(db) == [1]


def test_a_connection_is_closed_twice_and_without_its_file(tmp_path: Path) -> None:
    path = tmp_path / "zoo.duckdb"
    with closing(DuckConnection(str(path))) as connection:
        path.unlink()
        connection.close()
