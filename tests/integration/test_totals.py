"""Views over a filled database say the same with totals and without them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mmdb.api import Database, connect
from mmdb.db import totals
from mmdb.db.postgres import PostgresConnection
from mmdb.train.ledger.ledger import Ledger
from mmdb.train.values.spec import HopResult, HopStep
from tests.bench.bi.fill import Size, fill
from tests.cluster import Cluster

SIZE = Size(
    runs=22,
    candidates=5,
    epochs=2,
    datasets=3,
    models=6,
    families=2,
    versions=3,
    tensors=14,
    metrics=20,
    assignments=60,
)
TOTALS = ("run_total", "candidate_total", "epoch_total", "hour_total")


@dataclass
class Filled:
    """A filled database, and its primary keys by view."""

    db: Database
    keys: dict[str, str]

    def rows(self, view: str, columns: str = "*", schema: str = "mmdb") -> list[list[Any]]:
        """Return the rows in the order of the view's key, numbers rounded to 9 digits."""
        found = self.db.sql(f"SELECT {columns} FROM {schema}.{view} ORDER BY {self.keys[view]}")
        return [[rounded(value) for value in row.values()] for row in found]

    def count(self, table: str) -> int:
        """Return how many rows a table or view has."""
        return int(self.db.sql(f"SELECT count(*) AS n FROM mmdb.{table}")[0]["n"])


def rounded(value: Any) -> Any:
    """Return a number without what the order of adding up leaves; NaN is equal to itself."""
    if isinstance(value, float):
        return "NaN" if value != value else float(f"{value:.9g}")
    return value


def primary_keys(db: Database) -> dict[str, str]:
    """Return the columns of the primary key of each view that has one."""
    found: dict[str, list[str]] = {}
    for row in db.sql(
        "SELECT view_name, column_name FROM mmdb.view_key WHERE kind = 'primary'"
        " ORDER BY view_name, ordinal"
    ):
        found.setdefault(row["view_name"], []).append(row["column_name"])
    return {view: ", ".join(columns) for view, columns in found.items()}


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def filled(request: pytest.FixtureRequest) -> Iterator[Filled]:
    """Yield a filled database whose finished runs have totals."""
    if request.param == "duckdb":
        with connect("duckdb:///:memory:") as db:
            fill(db, SIZE)
            yield Filled(db, primary_keys(db))
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    url = cluster.create_database("mmdb_totals", request.getfixturevalue("template"))
    with connect(url) as db:
        fill(db, SIZE)
        yield Filled(db, primary_keys(db))
    cluster.drop_database("mmdb_totals")


def test_totals_change_nothing_that_views_say(filled: Filled) -> None:
    assert filled.count("run_total") == SIZE.runs and filled.count("open_run") == 0
    parts = {"open_run", "open_candidate", "server_metric"}  # the last is of the server, and moves
    views = [view for view in filled.keys if view not in parts]
    sealed = {view: filled.rows(view) for view in views}
    for run in range(SIZE.runs):
        totals.unseal(filled.db.connection, run + 1)
    assert [filled.count(table) for table in TOTALS] == [0, 0, 0, 0]
    assert filled.count("open_run") == SIZE.runs
    for view in views:
        assert filled.rows(view) == sealed[view], view
    assert totals.seal_finished(filled.db.connection) == SIZE.runs
    assert totals.seal_finished(filled.db.connection) == 0
    assert filled.rows("leaderboard") == sealed["leaderboard"]


def test_keys_are_unique_and_refer_to_rows_that_are_there(filled: Filled) -> None:
    keys: dict[tuple[str, int], list[Any]] = {}
    for row in filled.db.sql("SELECT * FROM mmdb.view_key ORDER BY view_name, key, ordinal"):
        keys.setdefault((row["view_name"], row["key"]), []).append(row)
    with_rows = {view for view, _ in keys if filled.count(view)}
    empty = {"open_run", "open_candidate", "prediction_overview", "origin_overview"}
    empty |= {"feature_overview", "run_features", "evaluation_overview", "evaluation_figures"}
    empty |= {"retraining_overview", "forgetting_overview", "schedule_overview", "schedule_history"}
    empty |= {"scoring_overview", "scoring_failures", "drift_overview"}
    empty |= {"group_overview"}
    assert {view for view, _ in keys} - with_rows <= empty
    for (view, _), columns in keys.items():
        names = [c["column_name"] for c in columns]
        listed = ", ".join(names)
        if columns[0]["kind"] != "foreign":
            doubles = f"SELECT {listed} FROM mmdb.{view} GROUP BY {listed} HAVING count(*) > 1"
            assert filled.db.sql(doubles) == [], (view, listed)
            continue
        other = columns[0]["refers_to"]
        same = " AND ".join(f"o.{c['refers_column']} = v.{c['column_name']}" for c in columns)
        given = " AND ".join(f"v.{name} IS NOT NULL" for name in names)
        lost = filled.db.sql(
            f"SELECT v.* FROM mmdb.{view} AS v WHERE {given}"
            f" AND NOT EXISTS (SELECT 1 FROM mmdb.{other} AS o WHERE {same}) LIMIT 1"
        )
        assert lost == [], (view, listed)


def test_a_run_that_goes_on_has_no_totals(filled: Filled) -> None:
    db = filled.db
    connection = db.connection
    db.sql("INSERT INTO mmdb.run_event (run_id, event, workers) VALUES (3, 'started', 2)")
    totals.unseal(connection, 3)
    assert [r["run"] for r in db.sql("SELECT run FROM mmdb.open_run")] == ["run-2"]
    totals.seal_some(connection)  # it has not finished
    assert filled.count("run_total") == SIZE.runs - 1
    db.sql("INSERT INTO mmdb.run_event (run_id, event, workers) VALUES (3, 'finished', 2)")
    totals.seal_some(connection)  # one small run is not worth it
    assert filled.count("run_total") == SIZE.runs - 1
    if isinstance(connection, PostgresConnection):
        with connect(connection.url) as other, other.connection.transaction():
            totals.unseal(other.connection, 3)  # as by a hop that is recorded, but not committed
            assert totals.seal_finished(connection) == 0
    assert totals.seal_finished(connection) == 1
    assert filled.count("run_total") == SIZE.runs


def test_a_hop_by_hand_ends_the_totals_of_its_run(filled: Filled) -> None:
    connection = filled.db.connection
    (last,) = filled.db.sql("SELECT * FROM mmdb.hop_timeline WHERE run = 'run-5' LIMIT 1")
    ledger = Ledger(connection, "by hand")
    candidate = ledger.candidate(last["candidate_id"])
    before = filled.count("hop")
    step = HopStep(
        part_id=last["part_id"],
        partition="",
        epoch=SIZE.epochs,
        ordinal=SIZE.hops,
        seed=0,
        validates=False,
        ends_epoch=False,
    )
    result = HopResult(
        rows=10,
        steps=1,
        loss=0.5,
        metrics={},
        state_in="00",
        state_out="00",
        state_bytes=0,
        load_s=0.0,
        compute_s=1.0,
        encode_s=0.0,
        device="cpu",
        environment="test",
    )
    times = {"started": last["finished_at"].timestamp(), "read_s": 0.0, "find_s": 0.0}
    with pytest.raises(RuntimeError), connection.transaction():
        ledger.add_hop(candidate, step, result, group=1, **times)
        assert filled.count("run_total") == SIZE.runs - 1
        (row,) = filled.db.sql(
            "SELECT hops_done FROM mmdb.candidate_overview"
            f" WHERE candidate_id = {last['candidate_id']}"
        )
        assert row["hops_done"] == SIZE.hops // SIZE.candidates + 1
        raise RuntimeError
    assert (filled.count("hop"), filled.count("run_total")) == (before, SIZE.runs)


# -- figures ------------------------------------------------------------------


def test_the_best_so_far_never_gets_worse(filled: Filled) -> None:
    maximize = {r["name"]: r["maximize"] for r in filled.db.sql("SELECT * FROM mmdb.run")}
    best: dict[int, float] = {}
    rows = filled.db.sql("SELECT * FROM mmdb.metric_history ORDER BY candidate_id, epoch")
    assert len(rows) == SIZE.runs * SIZE.candidates * SIZE.epochs
    for row in rows:
        value, key = row["value"], row["candidate_id"]
        if value == value:  # no NaN
            pick = max if maximize[row["run"]] else min
            best[key] = pick(best.get(key, value), value)
        assert rounded(row["best_so_far"]) == rounded(best.get(key, float("nan")))


def test_hops_per_hour_add_up_and_begin_with_the_hour(filled: Filled) -> None:
    rows = filled.db.sql("SELECT * FROM mmdb.hops_per_hour")
    assert sum(row["hops"] for row in rows) == SIZE.runs * SIZE.hops
    assert sum(row["row_count"] for row in rows) == 1000 * SIZE.runs * SIZE.hops
    start = datetime(2026, 1, 1, tzinfo=UTC)
    hours = {row["hour"] for row in rows}
    assert hours == {start + timedelta(hours=k) for k in range(SIZE.runs // 2)}


def test_what_sharing_and_encoding_saved_adds_up(filled: Filled) -> None:
    rows = filled.db.sql("SELECT * FROM mmdb.storage_overview")
    assert len(rows) == SIZE.models * SIZE.versions - 1  # one is dropped
    for row in rows:
        parts = row["stored_bytes"] + row["shared_bytes"] + row["encoded_away_bytes"]
        assert parts == row["byte_count"] == SIZE.tensors * 262144
    assert {row["shared_bytes"] for row in rows} >= {0, (SIZE.tensors - 10) * 220000}


def test_a_run_costs_what_its_workers_do(filled: Filled) -> None:
    question = "SELECT * FROM mmdb.run_cost WHERE run = 'run-1'"
    (free,) = filled.db.sql(question)
    assert free["price_per_worker_hour"] is None and free["cost"] is None
    (timed,) = filled.db.sql(
        "SELECT sum(total_s) AS s, sum(compute_s) AS c FROM mmdb.hop_timeline WHERE run = 'run-1'"
    )
    assert free["worker_s"] == pytest.approx(timed["s"])
    assert free["overhead_s"] == pytest.approx(timed["s"] - free["compute_s"])
    filled.db.sql("INSERT INTO mmdb.setting VALUES ('price_per_worker_hour', 'about 1.5')")
    assert filled.db.sql(question) == [free]  # no number is no price
    filled.db.sql("UPDATE mmdb.setting SET value = '1.5' WHERE name = 'price_per_worker_hour'")
    (row,) = filled.db.sql(question)
    assert row["cost"] == pytest.approx(1.5 * (row["worker_s"] + row["wait_s"]) / 3600)


def test_hits_add_up_by_day(filled: Filled) -> None:
    rows = filled.db.sql("SELECT * FROM mmdb.zoo_hits ORDER BY model, version, day")
    so_far: dict[tuple[str, int], int] = {}
    for row in rows:
        key = (row["model"], row["version"])
        so_far[key] = so_far.get(key, 0) + row["hits"]
        assert row["hits_so_far"] == so_far[key]
        assert (row["day"].hour, row["day"].minute, row["day"].second) == (0, 0, 0)
    assert sum(so_far.values()) == 3 * SIZE.models * SIZE.versions
