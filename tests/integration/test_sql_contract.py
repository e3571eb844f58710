"""What a user sees of training, on both engines: hops and runs that go on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from tests.integration.test_strategies import train_all
from tests.points import NOW, at, fill, logged


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with mmdb.connect(database_url) as database:
        fill(database)
        yield database


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder into which PostgreSQL's user may write."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


# -- candidates that fail -----------------------------------------------------


def test_a_hop_that_raised_once_is_done_again_by_a_fresh_session(
    db: Database, open_folder: Path
) -> None:
    notes = open_folder / "notes"
    notes.touch()
    os.chmod(notes, 0o666)
    db.register_factory("flaky", "tests.broken:flaky")
    for name, file in (("r", notes), ("calm", open_folder / "none")):
        search = {"space": {"architecture.notes": [str(file)]}}
        db.create_run(name, dataset="d", architecture="flaky", search=search)
    outcomes = train_all(db, ["r", "calm"], workers=1)
    assert outcomes["r"].failed == outcomes["calm"].failed == 0
    first, second = notes.read_text().split()
    assert first != second
    assert logged(db, "r") == logged(db, "calm")


# -- again, interrupted, twice ------------------------------------------------


def test_an_interrupted_run_goes_on_in_another_session_with_the_same_bits(
    database_url: str,
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with mmdb.connect(database_url) as db:
        fill(db)
        for name in ("calm", "r"):
            db.create_run(name, dataset="d", architecture="mlp(dropout=0.2)", search=NOW, epochs=2)
    for hops in (2, 11):
        with mmdb.connect(database_url) as db:
            assert len(logged(db, "r")) < hops
            with pytest.raises(KeyboardInterrupt):
                db.run("r").train(workers=2, watch=at(hops, interrupt))
            (row,) = db.sql("SELECT status FROM mmdb.run_progress WHERE run = 'r'")
            assert row["status"] == "interrupted"
            assert hops <= len(logged(db, "r")) < 18
    with mmdb.connect(database_url) as db:
        outcomes = train_all(db, ["calm", "r"], workers=1)
        assert outcomes["r"].hops < 18 and outcomes["r"].failed == 0
        assert logged(db, "r") == logged(db, "calm")
        (row,) = db.sql("SELECT status FROM mmdb.run_progress WHERE run = 'r'")
        assert row["status"] == "finished"


def session(db: Database, url: str) -> AbstractContextManager[Database]:
    """Return another session; a DuckDB file has one in each process."""
    return mmdb.connect(url) if db.connection.engine == "postgres" else nullcontext(db)


def test_a_second_driver_of_a_run_is_refused(db: Database, database_url: str) -> None:
    run = db.create_run("r", dataset="d", architecture="linear", epochs=2)
    refused = []

    def meddle() -> None:
        with session(db, database_url) as other:
            try:
                other.run("r").train(workers=1)
            except errors.RunBusy as error:
                refused.append(error)

    assert run.train(workers=1, watch=at(1, meddle)).hops == 6
    assert len(refused) == 1 and "'r'" in refused[0].message


def test_what_one_session_creates_another_one_sees(database_url: str) -> None:
    """A run that is finished is trained no further, and has the same model."""
    with mmdb.connect(database_url) as db:
        fill(db)
        db.create_run("r", dataset="d", architecture="linear", search=NOW)
    with mmdb.connect(database_url) as db:
        first, before = db.run("r").train(workers=1), logged(db, "r")
        assert first.hops == len(before) == 3 * 3
    with mmdb.connect(database_url) as db:
        again = db.run("r").train(workers=2)
        assert (again.model, again.version, again.hops) == (first.model, first.version, 0)
        assert logged(db, "r") == before
        assert len(db.sql("SELECT model FROM mmdb.model_overview")) == 1
        assert [row["error"] for row in db.run("r").leaderboard()] == [None] * 3
        assert len(db.predict("r", [1.0, 2.0])) == 2


def test_a_file_is_opened_once_in_a_process(duckdb_url: str) -> None:
    with mmdb.connect(duckdb_url):
        with pytest.raises(errors.DatabaseLocked, match="this process") as raised:
            mmdb.connect(duckdb_url)
        assert "close" in raised.value.hint
    mmdb.connect(duckdb_url).close()
    with mmdb.connect("duckdb://"), mmdb.connect("duckdb://"):
        pass


def test_a_session_that_only_reads_is_told_so_in_sql_and_in_python(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        db.sql(
            "CREATE TABLE things AS SELECT i AS a, i % 2 AS y FROM generate_series(1, 50) AS g (i)"
        )
        db.sql("SET default_transaction_read_only = on")
        query = "SELECT a, y FROM things"
        for write in (
            lambda: db.create_dataset("things", query, label="y"),
            lambda: db.sql(f"SELECT mmdb.create_dataset('things', '{query}', 'y')"),
            lambda: db.sql("CREATE TABLE more (i integer)"),
        ):
            with pytest.raises(errors.ReadOnly, match="read-only transaction") as caught:
                write()
            assert "target_session_attrs=read-write" in caught.value.hint
