"""Finished runs on a cluster: shown by their totals, by few queries, and while a node is down."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import mmdb
from mmdb.api import Database
from mmdb.cli import main
from mmdb.db import totals
from mmdb.db.doctor import examine
from mmdb.db.postgres import PostgresConnection
from mmdb.errors import InvalidOption, NodeLost
from tests.citus_cluster import CitusCluster

pytestmark = pytest.mark.citus

VIEWS = (
    "leaderboard",
    "candidate_overview",
    "run_progress",
    "candidate_progress",
    "metric_history",
    "run_time",
    "hops_per_hour",
    "warm_start_overview",
)
QUERY = (
    "SELECT i % 7 / 7.0 AS a, i % 11 / 11.0 AS b, i % 2 AS y FROM generate_series(1, 300) AS g (i)"
)
SEARCH = {"space": {"lr": [0.05, 0.02]}}


@pytest.fixture(scope="module")
def db(new_citus_database: Callable[[str], str]) -> Iterator[Database]:
    """Yield a database with two finished runs, one with a parent, and one that nobody trained."""
    with mmdb.connect(new_citus_database("finished")) as db:
        db.create_dataset("d", QUERY, partitions=3, seed=3)
        create(db, "done").train(workers=2)
        create(db, "warm", warm_start="done").train(workers=2)
        create(db, "untouched")
        yield db


def create(db: Database, name: str, **options: Any) -> Any:
    given: dict[str, Any] = {"epochs": 2, "seed": 7, "search": SEARCH} | options
    return db.create_run(name, dataset="d", architecture="mlp(hidden=[8])", **given)


def url_of(db: Database) -> str:
    assert isinstance(db.connection, PostgresConnection)
    return db.connection.url


def said(db: Database, run: str) -> dict[str, list[tuple[object, ...]]]:
    """Return what views say of a run; nodes answer in any order, which moves the last digits."""
    return {
        view: sorted(
            (
                tuple(
                    float(f"{value:.9g}") if isinstance(value, float) else str(value)
                    for value in row.values()
                )
                for row in db.sql(f"SELECT * FROM mmdb.{view} WHERE run = '{run}'")
            ),
            key=str,
        )
        for view in VIEWS
    }


def asked(db: Database, statement: str) -> int:
    """Return how many statements a query sends to nodes."""
    sent: list[str] = []
    with psycopg.connect(url_of(db), autocommit=True) as session:
        session.execute("SET client_min_messages = log")
        session.execute("SET citus.log_remote_commands = on")
        session.add_notice_handler(lambda notice: sent.append(notice.message_primary or ""))
        session.execute(statement.encode()).fetchall()
    return sum(text.startswith("issuing ") for text in sent)


@pytest.mark.parametrize("run", ["done", "warm"])
def test_totals_are_taken_as_a_run_ends_and_say_what_its_hops_say(db: Database, run: str) -> None:
    sealed = {row["name"]: row["run_id"] for row in db.sql(
        "SELECT r.name, r.run_id FROM mmdb.run_total AS t INNER JOIN mmdb.run AS r USING (run_id)"
    )}  # fmt: skip
    assert sorted(sealed) == ["done", "warm"]
    before = said(db, run)
    assert [len(before[view]) for view in VIEWS[:4]] == [2, 2, 1, 4]
    assert len(before["warm_start_overview"]) == 2 * (run == "warm")
    totals.unseal(db.connection, sealed[run])
    assert asked(db, f"SELECT * FROM mmdb.run_progress WHERE run = '{run}'") > 2
    assert said(db, run) == before
    totals.seal_some(db.connection)
    assert said(db, run) == before


def test_steps_to_a_parents_goal_are_those_of_the_hops(db: Database) -> None:
    hops = db.sql(
        "SELECT h.candidate_id, h.epoch, h.objective, h.steps, w.candidate_id AS warm,"
        " r.maximize FROM mmdb.hop AS h INNER JOIN mmdb.candidate AS c"
        " ON h.candidate_id = c.candidate_id INNER JOIN mmdb.run AS r ON c.run_id = r.run_id"
        " LEFT JOIN mmdb.warm_start AS w ON c.candidate_id = w.candidate_id"
    )
    best = max if hops[0]["maximize"] else min
    cold = [h for h in hops if h["warm"] is None and h["objective"] is not None]
    target = best(h["objective"] for h in cold)
    shown = db.sql("SELECT candidate_id, target, steps_to_target FROM mmdb.warm_start_overview")
    for row in shown:
        own = [h for h in hops if h["candidate_id"] == row["candidate_id"]]
        hits = [
            h["epoch"]
            for h in own
            if h["objective"] is not None and best(h["objective"], target) == h["objective"]
        ]
        steps = sum(h["steps"] for h in own if h["epoch"] <= min(hits)) if hits else None
        assert math.isclose(row["target"], target) and row["steps_to_target"] == steps
    assert len(shown) == 2


def test_a_finished_run_is_shown_without_a_query_of_a_node(db: Database) -> None:
    create(db, "beside", strategy="mop")  # one that has hops as far as anybody can tell
    counts = {
        view: asked(db, f"SELECT * FROM mmdb.{view} WHERE run = 'done'")
        for view in VIEWS
        if view not in ("leaderboard", "warm_start_overview")
    }
    assert set(counts.values()) == {0}, counts
    db.sql("UPDATE mmdb.run SET strategy = 'auto' WHERE name = 'beside'")
    for view in VIEWS:
        assert asked(db, f"SELECT * FROM mmdb.{view} WHERE run = 'done'") <= 2, view


def test_finished_runs_are_shown_while_a_node_is_down(citus: CitusCluster, db: Database) -> None:
    before = said(db, "done")
    all_runs = db.sql("SELECT * FROM mmdb.leaderboard ORDER BY run, rank")
    node = citus.nodes[0]
    node.halt()
    try:
        assert said(db, "done") == before
        assert db.sql("SELECT * FROM mmdb.leaderboard ORDER BY run, rank") == all_runs
        assert len(db.sql("SELECT * FROM mmdb.run_progress")) >= 3
        names = {row["name"] for row in db.sql("SELECT name FROM mmdb.metric")}
        assert "mmdb_hops_total" in names and "mmdb_checkpoint_bytes" not in names
        with pytest.raises(NodeLost):
            db.sql("SELECT * FROM mmdb.hop_timeline")
        with psycopg.connect(url_of(db), autocommit=True) as session:
            with pytest.raises(psycopg.DatabaseError) as raised:
                session.execute("SELECT * FROM mmdb.create_run('later', 'd', 'mlp')")
        assert raised.value.sqlstate == NodeLost.sqlstate
        assert raised.value.diag.message_hint == NodeLost.default_hint
    finally:
        node.start()
    names = {row["name"] for row in db.sql("SELECT name FROM mmdb.metric")}
    assert "mmdb_checkpoint_bytes" in names


# -- how a run is trained there ----------------------------------------------------


def test_auto_is_mop_on_a_cluster(db: Database) -> None:
    with pytest.raises(InvalidOption, match="on Citus auto is mop"):
        create(db, "refused", options={"strategies": ["task", "model_average"]})
    assert not db.sql("SELECT FROM mmdb.run WHERE name = 'refused'")
    create(db, "some", options={"strategies": ["mop", "data_parallel"]})


def test_a_plan_says_so(db: Database) -> None:
    rows = db.sql("SELECT * FROM mmdb.explain_train('untouched')")
    feasible = {row["strategy"]: row["feasible"] for row in rows if row["strategy"]}
    assert {name for name, is_it in feasible.items() if is_it} == {"mop"}
    assert {row["strategy"] for row in rows if row["chosen"]} == {"mop"}
    why = {row["why_not"] for row in rows if row["strategy"] == "model_average"}
    assert why == {"on the nodes of this cluster auto is mop"}


# -- a database that was there before its nodes --------------------------------------


def test_an_install_that_does_not_spread_says_how_to(
    citus: CitusCluster, db: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = citus.create_database("before_nodes")
    for arguments, says_so in (
        (["install", "--engine", "postgres", alone], False),
        (["install", alone], True),
        (["install", url_of(db)], False),
    ):
        assert main(arguments) == 0
        assert (
            "`mmdb install --engine citus URL` spreads them" in capsys.readouterr().out
        ) is says_so
    checks = {check.name: check.detail for check in examine(alone)}
    assert "--engine citus" in checks["citus"]
