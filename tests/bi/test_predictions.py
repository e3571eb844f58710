"""A million predictions into a table, and the memory that they take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mmdb
from mmdb.graph.factories import linear

ROWS = 1_000_000
#: Bytes by which a process may grow meanwhile.
GROWTH = 200 << 20


def memory(pid: int, field: str) -> int:
    """Return a field of a process's memory in bytes."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10


def test_a_million_rows_take_the_memory_of_a_batch(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        db.sql(
            "CREATE TABLE t AS SELECT i AS id, i::real AS x, i % 2 AS y "
            f"FROM generate_series(1, {ROWS}) AS g (i)"
        )
        db.create_dataset("d", "SELECT x, y FROM t WHERE id <= 20", partitions=1)
        db.save("m", linear((1,), 2), architecture="linear", dataset="d")
        db.predict_into("m", "SELECT id, x FROM t WHERE id <= 1000", "first")  # torch is loaded
        (row,) = db.sql("SELECT pg_backend_pid() AS pid")
        before = memory(row["pid"], "VmRSS")
        try:
            Path(f"/proc/{row['pid']}/clear_refs").write_text("5")  # its peak begins here
        except PermissionError:
            pytest.skip("only root and the server's user may look at its memory")
        assert db.predict_into("m", "SELECT id, x FROM t", "million") == ROWS
        assert memory(row["pid"], "VmHWM") - before < GROWTH
        assert db.sql("SELECT count(DISTINCT id) AS n FROM million") == [{"n": ROWS}]
