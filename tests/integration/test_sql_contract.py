"""What a user sees of training, on both engines: candidates that fail, and runs that go on."""

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
from tests.points import NOW, Acting, at, fill, logged


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMDB_CACHE_DIR", str(tmp_path / "cache"))


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


def test_a_candidate_whose_loss_is_no_number_fails_and_the_others_go_on(db: Database) -> None:
    search = {"space": {"optimizer": ["sgd"], "lr": [1e30, 0.01]}}
    run = db.create_run("r", dataset="d", architecture="mlp", search=search, epochs=2)
    summary = run.train(workers=2)
    assert (summary.candidates, summary.failed) == (2, 1)
    good, bad = run.leaderboard()
    assert good["config"]["lr"] == 0.01 and good["error"] is None and good["hops"] == 4
    assert float(bad["config"]["lr"]) == 1e30 and "nan" in bad["error"] and bad["rank"] == 2
    (event,) = db.sql("SELECT sqlstate FROM mmdb.candidate_event")
    assert event["sqlstate"] == errors.NotANumber.sqlstate
    (part, *_) = db.sql("SELECT part_id FROM mmdb.partition_overview ORDER BY part_id DESC")
    hop = f"SELECT * FROM mmdb.train_hop({part['part_id']}, {bad['candidate_id']}, 1)"
    with pytest.raises(errors.CandidateStopped, match="nan"):
        db.sql(hop)


def test_a_module_that_raises_is_marked_failed_and_the_others_go_on(db: Database) -> None:
    db.register_factory("fails", "tests.broken:fails")
    search = {"space": {"architecture.when": ["training", "validation", "never"]}}
    run = db.create_run("r", dataset="d", architecture="fails", search=search)
    watch = Acting()
    assert run.train(workers=2, watch=watch).failed == 2
    assert watch.failures == {0: 2, 1: 2}  # tried twice
    assert [row["error"] is None for row in run.leaderboard()] == [True, False, False]
    events = db.sql(
        "SELECT e.sqlstate, e.message FROM mmdb.candidate_event AS e "
        "JOIN mmdb.candidate AS c ON e.candidate_id = c.candidate_id ORDER BY c.ordinal"
    )
    assert [event["sqlstate"] for event in events] == 2 * [errors.TrainingFailed.sqlstate]
    assert "KeyError" in events[0]["message"] and "AssertionError" in events[1]["message"]


def test_a_hop_that_raised_once_is_done_again_by_a_fresh_session(
    db: Database, open_folder: Path
) -> None:
    notes = open_folder / "notes"
    notes.touch()
    os.chmod(notes, 0o666)
    db.register_factory("flaky", "tests.broken:flaky")
    for name, file in (("r", notes), ("calm", open_folder / "none")):
        search = {"space": {"architecture.notes": [str(file)]}}
        run = db.create_run(name, dataset="d", architecture="flaky", search=search)
        assert run.train(workers=1).failed == 0
    first, second = notes.read_text().split()
    assert first != second
    assert logged(db, "r") == logged(db, "calm")


@pytest.mark.parametrize("when", ["exit", "interrupt"])
def test_a_module_that_would_end_its_process_fails_alone(db: Database, when: str) -> None:
    db.register_factory("fails", "tests.broken:fails")
    search = {"space": {"architecture.when": [when, "never"]}}
    run = db.create_run("r", dataset="d", architecture="fails", search=search)
    assert run.train(workers=1).failed == 1
    (event,) = db.sql("SELECT sqlstate, message, trace FROM mmdb.candidate_event")
    assert event["sqlstate"] == errors.TrainingFailed.sqlstate
    assert event["message"].endswith(("SystemExit: enough", "KeyboardInterrupt: enough"))
    assert "in forward" in event["trace"] and "broken.py" in event["trace"]


def test_a_run_all_of_whose_candidates_fail_is_failed(db: Database) -> None:
    search = {"space": {"optimizer": ["sgd"], "lr": [1e30, 2e30]}}
    run = db.create_run("r", dataset="d", architecture="mlp", search=search, epochs=2)
    for _ in range(2):
        with pytest.raises(errors.RunFailed, match="'r'"):
            run.train(workers=1)
    assert all(row["error"] for row in run.leaderboard())
    assert db.sql("SELECT model FROM mmdb.model_overview") == []


# -- again, interrupted, twice ------------------------------------------------


def test_training_a_finished_run_again_does_nothing_and_returns_the_same_model(
    db: Database,
) -> None:
    run = db.create_run("r", dataset="d", architecture="linear", search=NOW)
    first, before = run.train(workers=2), logged(db, "r")
    again = run.train(workers=2)
    assert (again.model, again.version, again.hops) == (first.model, first.version, 0)
    assert logged(db, "r") == before
    assert len(db.sql("SELECT model FROM mmdb.model_overview")) == 1


def test_an_interrupted_run_goes_on_in_another_session_with_the_same_bits(
    database_url: str,
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with mmdb.connect(database_url) as db:
        fill(db)
        for name in ("calm", "r"):
            db.create_run(name, dataset="d", architecture="mlp(dropout=0.2)", search=NOW, epochs=2)
        db.run("calm").train(workers=1)
    for hops in (1, 5, 11):
        with mmdb.connect(database_url) as db:
            assert len(logged(db, "r")) < hops
            with pytest.raises(KeyboardInterrupt):
                db.run("r").train(workers=2, watch=at(hops, interrupt))
            (row,) = db.sql("SELECT status FROM mmdb.run_progress WHERE run = 'r'")
            assert row["status"] == "interrupted"
            assert hops <= len(logged(db, "r")) < 18
    with mmdb.connect(database_url) as db:
        summary = db.run("r").train(workers=1)
        assert summary.hops < 18 and summary.failed == 0
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
    with mmdb.connect(database_url) as db:
        fill(db)
        db.create_run("r", dataset="d", architecture="linear")
    with mmdb.connect(database_url) as db:
        assert db.run("r").train(workers=1).hops == 3
    with mmdb.connect(database_url) as db:
        assert [row["error"] for row in db.run("r").leaderboard()] == [None]
        assert len(db.predict("r", [1.0, 2.0])) == 2


def test_a_file_is_opened_once_in_a_process(duckdb_url: str) -> None:
    with mmdb.connect(duckdb_url):
        with pytest.raises(errors.DatabaseLocked, match="this process") as raised:
            mmdb.connect(duckdb_url)
        assert "close" in raised.value.hint
    mmdb.connect(duckdb_url).close()
    with mmdb.connect("duckdb://"), mmdb.connect("duckdb://"):
        pass
