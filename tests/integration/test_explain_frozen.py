"""Plans of runs that freeze layers, on both engines: settled first, and of what trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import mmdb
from mmdb.api import Database, Run
from mmdb.db.check import shown
from mmdb.plan.auto_strategy import decider
from mmdb.report.explanation import Explanation
from tests.cluster import Cluster

NETWORK = "mlp(hidden=[256, 256])"
SPACE = {"freeze_up_to": ["1", "3"], "head": "linear", "lr": [0.1, 0.01], "batch_size": 32}
QUERY = "SELECT i * 0.01 AS a, i % 7 AS b, i % 3 AS y FROM generate_series(1, 600) AS g (i)"


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """Return a database with a dataset."""
    folder = tmp_path_factory.mktemp("plans")
    url, name = f"duckdb:///{folder}/mmdb.duckdb", "mmdb_explain_frozen"
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.create_database(name, request.getfixturevalue("template"))
    with mmdb.connect(url) as database:
        database.create_dataset("points", QUERY, partitions=2, validation=0.2)
        yield database
    if request.param == "postgres":
        cluster.drop_database(name)


def create(db: Database, name: str, choice: str | None = "stored", **given: Any) -> Run:
    options = {"features": {"choice": choice, "reuse": 0}, "order": "free"}
    asked: dict[str, Any] = {"search": {"space": SPACE}, "epochs": 2, "options": options}
    return db.create_run(name, dataset="points", architecture=NETWORK, **(asked | given))


def told(plan: Explanation) -> list[str]:
    return [note for note in plan.notes if note.startswith("Features of")]


def mop(plan: Explanation) -> dict[str, Any]:
    return next(row for row in plan.estimates if row["strategy"] == "mop")


def kept(db: Database, run: str) -> list[dict[str, Any]]:
    """Return the plans of a run, the first one first."""
    return [
        dict(row)
        for row in db.sql(
            "SELECT p.candidates, p.measured FROM mmdb.plan AS p JOIN mmdb.run AS r "
            f"ON p.run_id = r.run_id WHERE r.name = '{run}' ORDER BY p.plan_id"
        )
    ]


def test_a_plan_settles_what_is_shared_and_is_of_what_trains(db: Database) -> None:
    run = create(db, "heads")
    plan = run.explain({"workers": 2})
    first, second, *_ = told(plan)
    assert "1 (256 numbers a row) are shared by 2 candidates: stored, 614 kB" in first
    assert "It was asked for." in first and "3 (256 numbers a row)" in second
    assert first in str(plan) and f"! {first}" not in str(plan)
    uses = db.sql("SELECT choice, candidates FROM mmdb.run_features WHERE run = 'heads'")
    assert [(row["choice"], row["candidates"]) for row in uses] == [("stored", 2)] * 2
    assert db.sql("SELECT * FROM mmdb.feature_block") == []  # nothing was computed for it
    impossible = [row for row in plan.estimates if not row["feasible"]]
    assert {"model_average", "data_parallel"} <= {row["strategy"] for row in impossible}
    assert all("frozen layers" in row["why_not"] for row in impossible)
    # What is settled a training plans without a session.
    decided = decider(say=pytest.fail)(db.connection, "heads", 1)
    assert decided is not None and decided.plan_id is not None and len(kept(db, "heads")) == 2
    for candidate in db.sql("SELECT candidate_id FROM mmdb.candidate"):
        db.sql(f"SELECT * FROM mmdb.train_hop(1, {candidate['candidate_id']})")
    again = create(db, "again").explain({"workers": 1})
    assert kept(db, "again") == [{"candidates": 4, "measured": 4}]
    # What computes its features itself was never measured, and holds the frozen network.
    streamed = create(db, "streamed", "streamed").explain({"workers": 1, "probe_s": 0})
    assert kept(db, "streamed") == [{"candidates": 4, "measured": 0}]
    assert "are for 2 candidates: computed with each batch" in told(streamed)[0]
    assert mop(streamed)["peak_memory"] > mop(again)["peak_memory"]


def test_a_training_does_not_wait_for_a_plan(db: Database) -> None:
    create(db, "open")
    decide = decider(say=pytest.fail)
    taken = decide(db.connection, "open", None)
    assert taken is not None and (taken.strategy, taken.plan_id) == ("mop", None)
    assert "settled with the first hop" in taken.reason
    create(db, "only", options={"strategies": ["task"]})
    taken = decide(db.connection, "only", 2)
    assert taken is not None and taken.strategy == "task"
    create(db, "named", strategy="mop")
    assert decide(db.connection, "named", None) is None
    assert kept(db, "open") == kept(db, "only") == kept(db, "named") == []


def test_what_cannot_be_looked_at_is_planned_whole(db: Database) -> None:
    db.save("parent", torch.nn.Linear(2, 2))
    run = create(db, "orphan", warm_start="parent")
    db.drop_model("parent@1")
    (before, says, *_) = run.explain({"workers": 1, "strategies": ["mop"]}).notes
    assert "4 candidates is not settled" in before
    assert "could not be looked at" in says and "was dropped" in says
    assert db.sql("SELECT * FROM mmdb.run_features WHERE run = 'orphan'") == []


def test_steps_of_what_trains_are_timed_over_features(db: Database) -> None:
    if db.connection.engine == "postgres":
        dsn = {"dsn": shown(db.connection.url)}
        db.sql("INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %(dsn)s)", dsn)
    options = {"features": {"choice": "memory"}, "order": "free"}
    space = SPACE | {"optimizer": "adam", "lr": [0.1]}
    run = create(db, "timed", search={"space": space}, options=options)
    plan = run.explain({"workers": 1, "strategies": ["mop"], "probe_s": 0.2})
    assert not [note for note in plan.notes if note.startswith("Steps of candidate")]
    assert kept(db, "timed") == [{"candidates": 2, "measured": 2}]
