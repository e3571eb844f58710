"""The views of runs and workers, over rows that are written here; the same on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import mmdb
from mmdb.api import Database
from mmdb.db.queries import sql_directory
from mmdb.train.drive.slot_registry import LEASE_S
from tests.cluster import Cluster
from tests.run_rows import START, Writer, add_run, ids, insert

RUNS = {  # name: metric, maximize, epochs, strategy
    "more": ("accuracy", True, 2, "mop"),
    "less": ("rmse", False, 2, "mop"),
    "blind": (None, None, 1, "model_average"),
}


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a database with two datasets, one with a validation slice, and runs without rows."""
    if request.param == "duckdb":
        url, drop = f"duckdb:///{tmp_path_factory.mktemp('views') / 'zoo.duckdb'}", None
    else:
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.create_database("mmdb_views", request.getfixturevalue("template"))
        drop = cluster
    with mmdb.connect(url) as opened:
        _fill(opened)
        yield opened
    if drop is not None:
        drop.drop_database("mmdb_views")


def _fill(db: Database) -> None:
    query = "SELECT i * 1.0 AS a, i * 2.5 AS y FROM generate_series(1, 40) AS g (i)"
    db.create_dataset("two", query, partitions=2)
    db.create_dataset("none", query, partitions=2, validation=0.0)
    datasets = ids(db, "dataset", "dataset_id")
    for name, (metric, maximize, epochs, strategy) in RUNS.items():
        add_run(
            db,
            name,
            datasets[name == "blind"],
            metric=metric,
            maximize=maximize,
            epochs=epochs,
            strategy=strategy,
        )


def board(db: Database, run: str, *columns: str) -> list[tuple[Any, ...]]:
    rows = db.sql(f"SELECT * FROM mmdb.leaderboard WHERE run = '{run}' ORDER BY rank")
    return [tuple(row[c] for c in columns) for row in rows]


def progress(db: Database, run: str) -> Any:
    (row,) = db.sql(f"SELECT * FROM mmdb.run_progress WHERE run = '{run}'")
    return row


@pytest.fixture(scope="module")
def more(db: Database) -> Writer:
    """Write a run whose metric is to be high, with a candidate in each state."""
    writer = Writer(db, "more")
    for ordinal in range(6):
        writer.candidate({"lr": ordinal})
    for epoch, values in enumerate([(0.5, 0.7, 0.6, 0.9), (0.8, 0.7)]):
        for candidate, value in enumerate(values):
            writer.epoch(candidate, epoch, value, hop_s=2.0)
    writer.hop(4, 0, writer.parts[0]["part_id"], None, 1.0)
    insert(
        db,
        "candidate_event",
        candidate_id=writer.candidates[3],
        event="failed",
        sqlstate="MM204",
        message="nan",
        trace="Traceback …",
        happened_at=START,
    )
    writer.decide(  # a start's place says which candidate it is; one that names it agrees
        *[("start", None, 2)] * 2,
        ("want", None, None),
        ("start", 2, 1),
        *[("start", None, 2)] * 3,
        ("report", 4, 1),
        ("stop", 4, None),
        ("stop", 5, None),
        ("goal", 5, 2),
    )
    for event, time in (("started", START), ("replanned", START + timedelta(seconds=9))):
        insert(db, "run_event", run_id=writer.run_id, happened_at=time, event=event, workers=2)
    return writer


def test_the_leaderboard_goes_by_the_objective_and_says_how_each_candidate_stands(
    db: Database, more: Writer
) -> None:
    found = board(db, "more", "rank", "candidate", "objective", "best_epoch", "status", "error")
    assert found == [
        (1, 0, 0.8, 1, "trained", None),
        (2, 1, 0.7, 0, "trained", None),  # the earliest of equals
        (3, 2, 0.6, 0, "resting", None),
        (4, 4, None, None, "stopped", None),
        (5, 5, None, None, "training", None),
        (6, 3, 0.9, 0, "failed", "nan"),
    ]
    assert board(db, "more", "metric", "accuracy", "rmse", "hops", "epochs", "total_s")[0] == (
        ("accuracy", 0.8, None, 4, 2, 8.0)
    )


def test_a_metric_that_is_to_be_low_is(db: Database) -> None:
    writer = Writer(db, "less")
    for values in [(3.0, float("nan")), (2.0, 4.0), (5.0, 1.0)]:
        candidate = writer.candidate({"lr": 1})
        for epoch, value in enumerate(values):
            writer.epoch(candidate, epoch, value)
    found = board(db, "less", "candidate", "objective", "best_epoch", "status")
    assert found == [(2, 1.0, 1, "trained"), (1, 2.0, 0, "trained"), (0, 3.0, 0, "trained")]
    assert progress(db, "less")["best_value"] == 1.0


def test_where_nothing_is_validated_the_last_training_loss_ranks(db: Database) -> None:
    writer = Writer(db, "blind")
    for candidate in range(2):
        writer.candidate({"lr": 1})
        writer.epoch(candidate, 0, None)
    found = board(db, "blind", "candidate", "objective", "training_loss", "status")
    assert found == [(1, None, 0.5, "trained"), (0, None, 1.0, "trained")]
    row = progress(db, "blind")
    assert (row["metric"], row["best_value"], row["best_candidate_id"]) == (None, None, None)
    assert (row["hops_done"], row["hops_total"]) == (4, 4)


def test_the_progress_of_a_run(db: Database, more: Writer) -> None:
    row = progress(db, "more")
    names = ("candidates", "training", "resting", "trained", "stopped", "failed")
    assert [row[name] for name in names] == [6, 1, 1, 2, 1, 1]
    assert (row["status"], row["strategy"], row["metric"]) == ("started", "mop", "accuracy")
    assert row["best_candidate_id"] == more.candidates[0] and row["best_value"] == 0.8
    # what is stopped, failed or at rest has nothing left; candidate 5 has all
    assert (row["hops_done"], row["hops_total"]) == (19, 25)
    assert row["hops_per_s"] == pytest.approx(1.0)
    assert row["seconds_left"] == pytest.approx(6 * 37 / 19)  # one candidate: no second worker
    insert(db, "run_event", run_id=more.run_id, event="finished", workers=2)
    assert progress(db, "more")["seconds_left"] is None


def test_the_learning_curves(db: Database, more: Writer) -> None:
    rows = db.sql(
        "SELECT epoch, hops, row_count, steps, training_loss, validation_loss, metric, objective,"
        " compute_s, total_s FROM mmdb.candidate_progress WHERE run = 'more' AND candidate = 1"
        " ORDER BY epoch"
    )
    assert [tuple(row.values()) for row in rows] == [
        (0, 2, 20, 4, 0.5, 0.5, "accuracy", 0.7, 3.0, 4.0),
        (1, 2, 20, 4, 1.5, 1.5, "accuracy", 0.7, 3.0, 4.0),
    ]
    (open_epoch,) = db.sql(
        "SELECT hops, objective FROM mmdb.candidate_progress WHERE run = 'more' AND candidate = 4"
    )
    assert tuple(open_epoch.values()) == (1, None)


def test_failures_come_with_their_traceback(db: Database, more: Writer) -> None:
    (row,) = db.sql("SELECT * FROM mmdb.candidate_failures WHERE run = 'more'")
    assert (row["candidate"], row["sqlstate"], row["message"]) == (3, "MM204", "nan")
    assert row["trace"] == "Traceback …" and row["happened_at"] == START


def test_the_timeline_shows_overhead_and_objective(db: Database, more: Writer) -> None:
    rows = db.sql(
        "SELECT role, overhead_s, metric, objective, group_size, peak_bytes FROM mmdb.hop_timeline"
        " WHERE run = 'more' AND candidate = 0 AND epoch = 1 ORDER BY ordinal"
    )
    train = ("train", 0.5, "accuracy", None, None, None)
    validation = ("validation", 0.5, "accuracy", 0.8, None, None)
    assert [tuple(row.values()) for row in rows] == [train, train, validation]


# -- workers ------------------------------------------------------------------


def test_the_status_of_workers(db: Database, more: Writer) -> None:
    now = datetime.now(UTC)
    slots = {  # name: started, beat, stopped: seconds ago
        "idle": (1000, 1, None),
        "hopping": (100, 1, None),
        "lost": (5000, LEASE_S + 2, None),
        "stopped": (500, 60, 50),
    }
    for name, ages in slots.items():
        started, beat, stopped = (a and now - timedelta(seconds=a) for a in ages)
        about = {"name": name, "process": "p", "node": "here", "device": "cpu", "mode": "server"}
        insert(db, "worker", **about, started_at=started)
        worker_id = ids(db, "worker", "worker_id")[-1]
        insert(db, "worker_beat", worker_id=worker_id, beat_at=beat, stopped_at=stopped)

    def assign(name: str, taken: float, finished: float | None, **more_of_it: Any) -> None:
        insert(
            db,
            "assignment",
            worker_id=by_name[name],
            part_id=more.parts[0]["part_id"],
            candidate_id=more.candidates[5],
            epoch=0,
            detail="{}",
            taken_at=now - timedelta(seconds=taken),
            finished_at=None if finished is None else now - timedelta(seconds=finished),
            **more_of_it,
        )

    by_name = {r["name"]: r["worker_id"] for r in db.sql("SELECT * FROM mmdb.worker")}
    assign("idle", 800, 400)
    assign("idle", 400, 300, sqlstate="MM201")
    assign("idle", 8000, 7000)  # longer ago than is looked back
    assign("hopping", 30, None)
    assign("lost", 90, None)  # it died at it
    found = {r["worker"]: r for r in db.sql("SELECT * FROM mmdb.worker_status")}
    assert {name: row["state"] for name, row in found.items()} == {name: name for name in slots}
    hopping, idle = found["hopping"], found["idle"]
    at = ("run", "candidate_id", "epoch", "role", "partition")
    assert [hopping[c] for c in at] == ["more", more.candidates[5], 0, "train", 0]
    assert all(found[name][c] is None for name in ("idle", "lost", "stopped") for c in at)
    assert (idle["hops"], hopping["hops"], found["lost"]["hops"]) == (1, 0, 0)
    assert idle["busy_share"] == pytest.approx(0.5, abs=0.02)
    since = {name: round((now - row["since"]).total_seconds()) for name, row in found.items()}
    assert since == {"idle": 300, "hopping": 30, "lost": LEASE_S + 2, "stopped": 50}


def test_a_slot_is_lost_when_its_lease_has_ended() -> None:
    view = (sql_directory("sql/views") / "04_workers.sql").read_text()
    assert f"'{LEASE_S:g} seconds'" in view
