"""Worker processes at work: runs submitted, shared, cancelled, taken over, stopped in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.train.drive.slot_registry import live_workers
from tests.worker_process import WorkerCommand, until

SEARCH = {"space": {"optimizer": ["sgd"], "lr": [0.1, 0.01]}}


@pytest.fixture
def db(postgres_url: str) -> Iterator[Database]:
    with mmdb.connect(postgres_url) as database:
        database.sql(
            "CREATE TABLE points AS SELECT (i % 7 - 3)::real AS a, (i % 11 - 5)::real AS b, "
            "(i % 2)::integer AS y FROM generate_series(1, 240) AS g (i)"
        )
        database.create_dataset("d", "SELECT * FROM points", partitions=2, seed=1)
        database.register_factory("slow", "tests.slow:slow")
        yield database


def create(db: Database, name: str, *, seconds: float = 0.0, epochs: int = 2) -> mmdb.Run:
    """Create a run of two candidates, each step of which takes so long (4 steps a hop)."""
    return db.create_run(
        name,
        dataset="d",
        architecture=f"slow(seconds={seconds})",
        search={"space": SEARCH["space"] | {"batch_size": [24]}},
        epochs=epochs,
    )


def logged(db: Database, run: str) -> list[tuple[Any, ...]]:
    """Return every hop of a run in each candidate's order, with the state it left."""
    rows = db.sql(
        "SELECT c.ordinal AS candidate, h.epoch, h.part_id, h.loss, h.state_in, h.state_out "
        "FROM mmdb.hop AS h JOIN mmdb.candidate AS c USING (candidate_id) "
        "JOIN mmdb.run AS r USING (run_id) WHERE r.name = %(run)s ORDER BY 1, h.ordinal",
        {"run": run},
    )
    return [tuple(row.values()) for row in rows]


def hops(db: Database) -> int:
    return int(db.sql("SELECT count(*) AS n FROM mmdb.hop")[0]["n"])


def states(db: Database) -> list[str]:
    """Return the states of all slots that there ever were."""
    rows = db.sql("SELECT state FROM mmdb.worker_status ORDER BY worker_id")
    return [row["state"] for row in rows]


def test_submitted_runs_are_trained_side_by_side_with_the_bits_of_train(
    db: Database, postgres_url: str
) -> None:
    create(db, "here").train(workers=1)
    runs = [create(db, name) for name in ("a", "b")]
    db.register_factory("fails", "tests.broken:fails")
    bad = db.create_run("bad", dataset="d", architecture="fails(when='training')")
    grouped = db.create_run(
        "grouped",
        dataset="d",
        architecture="mlp",
        strategy="data_parallel",
        options={"group": 2},
    )
    for run in (*runs, bad, grouped):
        run.submit()
    with WorkerCommand(postgres_url, "--slots", "2", "--name", "pool", "--once") as process:
        assert process.ends() == 0, process.said
    for run in runs:
        assert run.wait(timeout_s=0)
        assert logged(db, run.name) == logged(db, "here")
        assert run.leaderboard()[0]["accuracy"] is not None
    names = db.sql("SELECT DISTINCT worker FROM mmdb.hop_timeline WHERE run <> 'here' ORDER BY 1")
    assert [row["worker"] for row in names] == ["mmdb pool 0", "mmdb pool 1"]
    assert states(db) == ["stopped", "stopped"]
    first = db.sql("SELECT min(started_at) AS at FROM mmdb.hop_timeline WHERE run = 'b'")
    last = db.sql("SELECT max(finished_at) AS at FROM mmdb.hop_timeline WHERE run = 'a'")
    assert first[0]["at"] < last[0]["at"]  # neither waited for the other's end
    assert grouped.wait(timeout_s=0)
    rows = db.sql("SELECT group_size FROM mmdb.hop_timeline WHERE run = 'grouped' ORDER BY ordinal")
    assert [row["group_size"] for row in rows] == [2, 2, None]  # two partitions, then validation
    with pytest.raises(errors.RunFailed, match="'bad'"):
        bad.wait()
    (event,) = db.sql("SELECT sqlstate, message, trace FROM mmdb.candidate_event")
    assert event["sqlstate"] == errors.TrainingFailed.sqlstate and "lost" in event["message"]
    assert "broken.py" in event["trace"]


def test_a_run_is_cancelled_and_resumed_and_a_stopped_process_ends_its_hops(
    db: Database, postgres_url: str
) -> None:
    run = create(db, "r", seconds=0.3, epochs=1)
    run.submit()
    with WorkerCommand(postgres_url, "--slots", "1") as process:
        until(lambda: hops(db) > 0 and states(db) == ["hopping"])
        with pytest.raises(errors.RunBusy):
            run.train(workers=1)
        run.cancel()
        until(lambda: db.sql("SELECT 1 FROM mmdb.assignment WHERE sqlstate IS NOT NULL"))
        with pytest.raises(errors.Cancelled):
            run.wait()
        until(lambda: states(db) == ["idle"])
        done = logged(db, "r")
        run.resume()
        until(lambda: len(logged(db, "r")) > len(done) and states(db) == ["hopping"])
        before = hops(db)
        process.signal(signal.SIGTERM)
        assert process.ends() == 0, process.said
    # What was under way was finished, and no other was begun; one may have ended before the signal.
    assert before < hops(db) <= before + 2
    assert states(db) == ["stopped"] and live_workers(db.connection) == []
    run.train(workers=1)  # by hand, where the service left off
    assert len({row[:3] for row in logged(db, "r")}) == hops(db) == 2 * 3


def test_another_process_takes_over_from_a_dispatcher_that_was_killed(
    db: Database, postgres_url: str
) -> None:
    run = create(db, "r", seconds=0.2)
    with WorkerCommand(postgres_url, "--slots", "1", "--name", "first") as first:
        first.says("dispatches")
        options = ("--slots", "1", "--name", "second", "--mode", "client")
        with WorkerCommand(postgres_url, *options) as second:
            second.says("serves")
            run.submit()
            until(lambda: states(db) == ["hopping", "hopping"])
            first.signal(signal.SIGKILL)
            second.says("dispatches")
            assert run.wait(timeout_s=300)
            assert [row["process"] for row in live_workers(db.connection)] == ["second"]
            places = [row[:3] for row in logged(db, "r")]
            assert len(places) == len(set(places)) == 2 * 2 * 3

            create(db, "endless", seconds=60.0).submit()
            until(lambda: states(db)[1] == "hopping")
            # The first lets the hop go on, the second does not; two of one kind may become one.
            second.signal(signal.SIGTERM)
            second.signal(signal.SIGINT)
            assert second.ends() == 0, second.said
    assert logged(db, "endless") == [] and states(db)[1] == "stopped"


def test_the_procedure_hands_a_run_to_the_worker_processes_where_it_has_no_login(
    db: Database, postgres_url: str
) -> None:
    create(db, "called")
    with pytest.raises(errors.NoWorkerLogin):
        db.sql("CALL mmdb.train('called')")
    with WorkerCommand(postgres_url, "--name", "pool") as process:
        until(lambda: live_workers(db.connection), lambda: str(process.said))
        (row,) = db.sql("CALL mmdb.train('called')")
    assert (row["candidates"], row["failed"], row["hops"]) == (2, 0, 12)
    assert row["model"] == "called@1"
