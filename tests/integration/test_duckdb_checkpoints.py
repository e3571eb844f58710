"""Checkpoints of a DuckDB file: what they write again, and what they merge."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.db import duck
from mmdb.db.duck import DuckConnection

BYTES = 1 << 20


def _row_groups(db: Database, table: str) -> int:
    (row,) = db.sql(
        f"SELECT count(DISTINCT row_group_id) AS many FROM pragma_storage_info('{table}')"
    )
    return int(row["many"])


def _add(db: Database, times: int) -> None:
    for _ in range(times):
        db.sql("INSERT INTO blobs VALUES ($data)", {"data": os.urandom(BYTES)})
        db.sql("CHECKPOINT")


def test_a_checkpoint_leaves_alone_what_earlier_ones_wrote(tmp_path: Path) -> None:
    with mmdb.connect(f"duckdb:///{tmp_path}/zoo.duckdb") as db:
        db.sql("CREATE TABLE blobs (data blob)")
        _add(db, 5)
        assert _row_groups(db, "blobs") == 5
        assert isinstance(db.connection, DuckConnection)
        with db.connection.merging():
            _add(db, 1)
        assert _row_groups(db, "blobs") == 1
        _add(db, 2)
        assert _row_groups(db, "blobs") == 3


@pytest.mark.parametrize(("most", "row_groups"), [(256 << 20, 1), (0, 3)])
def test_a_small_file_is_merged_when_it_is_closed_and_a_large_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, row_groups: int
) -> None:
    monkeypatch.setattr(duck, "_MERGED_BYTES", most)
    url = f"duckdb:///{tmp_path}/zoo.duckdb"
    for _ in range(3):
        with mmdb.connect(url) as db:
            db.sql("CREATE TABLE IF NOT EXISTS blobs (data blob)")
            db.sql("INSERT INTO blobs VALUES ($data)", {"data": os.urandom(BYTES)})
    with mmdb.connect(url) as db:
        assert _row_groups(db, "blobs") == row_groups
        (row,) = db.sql("SELECT count(*) AS many, sum(octet_length(data)) AS size FROM blobs")
        assert (row["many"], row["size"]) == (3, 3 * BYTES)


def test_a_file_whose_transaction_has_failed_is_closed(tmp_path: Path) -> None:
    url = f"duckdb:///{tmp_path}/zoo.duckdb"
    with mmdb.connect(url) as db:
        db.sql("BEGIN")
        with pytest.raises(errors.DatabaseFailed):
            db.sql("SELECT error('no')")
    with mmdb.connect(url) as db:
        assert db.sql("SELECT 1 AS one") == [{"one": 1}]
