"""A driver takes the totals of runs that have finished; what goes on loses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mmdb.api import Database, connect
from mmdb.db import totals
from mmdb.train.drive.candidate_creation import clone_candidate

VIEWS = ("leaderboard", "candidate_progress", "run_progress", "run_time", "hops_per_hour")


@pytest.fixture
def db(monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """Yield a database with a dataset, where the second finished run is worth totals."""
    monkeypatch.setattr(totals, "RUNS", 2)
    with connect("duckdb:///:memory:") as opened:
        query = "SELECT i * 1.0 AS a, i % 2 AS y FROM generate_series(1, 64) AS g (i)"
        opened.create_dataset("points", query, partitions=2)
        yield opened


def train(db: Database, name: str) -> None:
    search = {"space": {"lr": [0.1, 0.01], "batch_size": 16}}
    db.create_run(name, dataset="points", architecture="mlp", search=search, epochs=1).train(
        workers=1
    )


def sealed(db: Database) -> list[str]:
    rows = db.sql(
        "SELECT r.name FROM mmdb.run_total AS t INNER JOIN mmdb.run AS r ON t.run_id = r.run_id"
        " ORDER BY r.name"
    )
    return [row["name"] for row in rows]


def said(db: Database, run: str) -> dict[str, Any]:
    return {
        view: sorted(map(str, db.sql(f"SELECT * FROM mmdb.{view} WHERE run = '{run}'")))
        for view in VIEWS
    }


def test_the_driver_takes_totals_and_a_clone_ends_them(db: Database) -> None:
    train(db, "first")
    assert sealed(db) == []  # one small run is not worth it
    before = said(db, "first")
    train(db, "second")
    assert sealed(db) == ["first", "second"]
    assert said(db, "first") == before
    (best,) = db.sql("SELECT candidate_id FROM mmdb.leaderboard WHERE run = 'first' AND rank = 1")
    clone_candidate(db.connection, best["candidate_id"], {"lr": 0.05})
    assert sealed(db) == ["second"]
    assert len(said(db, "first")["leaderboard"]) == 3
    db.run("first").train(workers=1)
    assert sealed(db) == ["second"]
    assert said(db, "first")["run_progress"][0].count("'finished'") == 1
    assert totals.seal_finished(db.connection) == 1
    assert sealed(db) == ["first", "second"]
    assert len(said(db, "first")["leaderboard"]) == 3
