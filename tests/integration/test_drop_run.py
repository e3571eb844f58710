"""Dropping a run: what goes, what stays, who may, and what the rest of mmdb makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import mmdb
from mmdb import errors

ROWS = "SELECT i AS id, sin(i) AS x, i % 2 AS y FROM generate_series(1, 60) AS g (i)"


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    """Yield a database with a run of two candidates that is trained."""
    with mmdb.connect(database_url) as opened:
        opened.create_dataset("d", ROWS.replace("i AS id, ", ""), partitions=2)
        train(opened)
        yield opened


def train(db: mmdb.Database) -> None:
    space = {"space": {"lr": [0.1, 0.01]}}
    db.create_run("r", dataset="d", architecture="mlp(hidden=[8])", search=space).train(workers=1)


def count(db: mmdb.Database, table: str) -> int:
    (row,) = db.sql(f"SELECT count(*) AS n FROM mmdb.{table}")
    return int(row["n"])


def parents(db: mmdb.Database, entity: str) -> set[str]:
    rows = db.sql(f"SELECT parent FROM mmdb.lineage('{entity}')")
    return {row["parent"] for row in rows}


def weights(db: mmdb.Database, model: str) -> dict[str, torch.Tensor]:
    return dict(db.recover(model).state_dict())


def test_checkpoints_go_and_models_and_lineage_stay(db: mmdb.Database) -> None:
    before, hops = weights(db, "r@1"), count(db, "hop")
    stored = db.sql("SELECT sum(byte_count)::bigint AS n FROM mmdb.checkpoint")[0]["n"]
    run_id = db.sql("SELECT run_id FROM mmdb.run")[0]["run_id"]
    assert stored > 0 and "run:r" in parents(db, "model:r@1")
    assert db.drop_run("r") == stored
    assert count(db, "checkpoint") == count(db, "checkpoint_chunk") == 0
    assert count(db, "hop") == hops
    assert parents(db, "model:r@1") >= {f"run:r#{run_id}", "dataset:d"}
    (entity,) = db.sql("SELECT entity, is_dropped FROM mmdb.lineage_entity WHERE kind = 'run'")
    assert entity == {"entity": f"run:r#{run_id}", "is_dropped": True}
    (progress,) = db.sql("SELECT run, status FROM mmdb.run_progress")
    assert progress == {"run": f"r#{run_id}", "status": "dropped"}
    after = weights(db, "r@1")
    assert all(torch.equal(before[path], after[path]) for path in before)
    assert len(db.predict("r", [0.5])) == 2


def test_its_name_is_free_and_what_is_made_under_it_is_another(db: mmdb.Database) -> None:
    db.sql("SELECT mmdb.drop_run('r')")
    train(db)
    (named,) = db.sql("SELECT status, hops_done FROM mmdb.run_progress WHERE run = 'r'")
    assert named["status"] == "finished"
    assert db.sql("SELECT count(*) AS n FROM mmdb.leaderboard WHERE run = 'r'") == [{"n": 2}]
    assert db.drop_run("r") > 0
    assert count(db, "run") == 2


def test_nothing_goes_on_with_it(db: mmdb.Database) -> None:
    run = db.create_run("begun", dataset="d", architecture="linear")
    (made,) = db.sql("SELECT run_id, candidate_id FROM mmdb.candidate ORDER BY 2 DESC LIMIT 1")
    (row,) = db.sql("SELECT min(part_id) AS part_id FROM mmdb.partition")
    first, part = made["candidate_id"], row["part_id"]
    assert db.drop_run("begun") == 0
    for name in ("begun", f"begun#{made['run_id']}", "none"):
        with pytest.raises(errors.RunNotFound):
            db.drop_run(name)
        with pytest.raises(errors.RunNotFound):
            db.run(name)
    for call in (
        lambda: run.train(workers=1),
        run.cancel,
        run.wait,
        lambda: db.sql(f"SELECT * FROM mmdb.train_hop({part}, {first})"),
        lambda: db.sql(f"SELECT mmdb.stop_candidate({first})"),
        lambda: db.sql(f"SELECT mmdb.clone_candidate({first})"),
        lambda: db.save_candidate(first, "late"),
    ):
        with pytest.raises(errors.RunNotFound):
            call()


def test_a_model_that_is_a_recipe_can_still_be_made_again(db: mmdb.Database) -> None:
    best = db.sql("SELECT candidate_id FROM mmdb.leaderboard ORDER BY rank LIMIT 1")[0]
    db.save_candidate(best["candidate_id"], "recipe", approach="provenance")
    before = weights(db, "recipe")
    freed = db.drop_run("r")
    (kept,) = db.sql("SELECT DISTINCT candidate_id FROM mmdb.checkpoint")
    assert freed > 0 and kept == best
    after = weights(db, "recipe")
    assert all(torch.equal(before[path], after[path]) for path in before)
    db.drop_model("recipe")
    db.gc(dry_run=False, grace="0 s")
    assert count(db, "checkpoint") == 0  # nothing needs it any more


def test_its_dataset_is_not_in_use_by_it(db: mmdb.Database) -> None:
    with pytest.raises(errors.DatasetInUse):
        db.drop_dataset("d")
    db.drop_run("r")
    assert db.drop_dataset("d") > 0


def test_what_is_trained_is_not_dropped(db: mmdb.Database, database_url: str) -> None:
    run_id = db.sql("SELECT run_id FROM mmdb.run")[0]["run_id"]
    other: Any = db if database_url.startswith("duckdb") else mmdb.connect(database_url)
    assert other.connection.try_lock("run", run_id)
    try:
        with pytest.raises(errors.RunBusy):
            db.drop_run("r")
        assert count(db, "checkpoint") > 0
    finally:
        other.connection.unlock("run", run_id)
    assert db.drop_run("r") > 0
    if other is not db:
        other.close()
