"""A hop that never ends is ended by the run's limit, and takes nothing else along."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.plan import auto_strategy


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with mmdb.connect(database_url) as database:
        database.sql(
            "CREATE TABLE points AS SELECT (i % 7 - 3)::real AS a, (i % 2)::integer AS y "
            "FROM generate_series(1, 80) AS g (i)"
        )
        database.create_dataset("d", "SELECT * FROM points", partitions=2)
        database.register_factory("waits", "tests.slow:waits")
        yield database


def test_a_factory_that_never_returns_ends_its_candidate_alone(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_strategy, "LIMIT_S", 1.0)
    monkeypatch.setattr(auto_strategy, "LOAD_S", 2.0)
    flag = Path(tempfile.gettempdir()) / f"mmdb-flag-{id(db)}"  # the server's user can see it
    search = {"space": {"architecture.flag": [str(flag), f"{flag}-none"]}}
    run = db.create_run(
        "r", dataset="d", architecture="waits", search=search, options={"hop_limit_s": 1.5}
    )
    flag.touch()
    try:
        with pytest.warns(errors.MmdbWarning, match="not planned: .* takes more than 3 seconds"):
            summary = run.train(workers=1)
    finally:
        flag.unlink()
    assert (summary.candidates, summary.failed) == (2, 1)
    good, bad = run.leaderboard()
    assert good["hops"] == 2 and good["error"] is None
    assert "longer than 1.5 s" in bad["error"]
    (event,) = db.sql("SELECT sqlstate FROM mmdb.candidate_event")
    assert event["sqlstate"] == errors.HopTimedOut.sqlstate


def test_a_limit_that_is_no_time_is_refused(duckdb_url: str) -> None:
    with mmdb.connect(duckdb_url) as db:
        db.sql("CREATE TABLE points AS SELECT i AS a, i % 2 AS y FROM range(40) AS g (i)")
        db.create_dataset("d", "SELECT * FROM points", partitions=2)
        for limit in (0, -1, "long", True):
            with pytest.raises(errors.InvalidOption, match="hop_limit_s"):
                db.create_run(
                    "r", dataset="d", architecture="linear", options={"hop_limit_s": limit}
                )
