"""Parents that are no good, not there any more, or not there yet."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.db.duck import DuckConnection
from mmdb.db.queries import Query, load
from mmdb.store import parents, states
from mmdb.store.parents import ParentMatch
from mmdb.train.compute.live import weights
from mmdb.train.warm import begin
from tests.integration.test_same_bits import fill
from tests.integration.test_strategies import train_all
from tests.warm_runs import (
    GROWING,
    ONE,
    PARENT,
    RUNS,
    WIDE,
    chain,
    first_weights,
    hexed,
    warm,
)


def test_without_a_zoo_candidates_begin_fresh_and_the_reason_is_kept(
    database_url: str,
) -> None:
    with mmdb.connect(database_url) as db:
        fill(db)
        for name, how in (("cold", "off"), ("warm", "auto")):
            run = db.create_run(
                name, dataset="d", architecture=WIDE, search=ONE, epochs=1, warm_start=how
            )
            db.run(name).train(workers=1)
            if name == "cold":  # it is in the zoo now
                db.drop_model("cold")
        assert chain(db, "cold") == chain(db, "warm")
        (row,) = warm(db, "warm")
        assert row["parent"] is row["state_hash"] is None
        assert "No model" in row["reason"]
        assert run.leaderboard()[0]["similarity"] is None


def test_what_is_below_the_threshold_is_refused_and_said(db: Database) -> None:
    how = {"warm_start": {"threshold": 0.99}}
    db.create_run(
        "r", dataset="d", architecture=WIDE, search=ONE, warm_start="auto", options=how
    ).train(workers=1)
    (row,) = warm(db, "r")
    assert row["parent"] is None and "parent@1" in row["reason"] and "0.99" in row["reason"]


def test_a_candidate_is_no_parent_of_one_that_began_before_it_ended(db: Database) -> None:
    asked = {**GROWING, "strategy": "mop"}
    db.create_run("together", dataset="d", warm_start="auto", **asked).train(workers=1)
    rows = db.sql("SELECT parent FROM mmdb.warm_start_overview WHERE run = 'together'")
    assert not any((row["parent"] or "").startswith("candidate") for row in rows)


def test_a_run_without_a_warm_start_asks_the_database_nothing_more(
    duckdb_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for name in ("rows", "run"):
        ask = getattr(DuckConnection, name)

        def listen(self: Any, query: Query, /, *, ask: Any = ask, **parameters: object) -> Any:
            asked.append(query.meaning)
            return ask(self, query, **parameters)

        monkeypatch.setattr(DuckConnection, name, listen)
    meanings = {query.meaning for query in load("warm")}
    found = {}
    with mmdb.connect(duckdb_copy) as db:
        for how in ("off", "parent"):
            run = db.create_run(f"from-{how}", dataset="d", warm_start=how, **RUNS["task"])
            asked.clear()
            run.train(workers=1)
            found[how] = meanings & set(asked), asked.count(load("hops").find_candidate.meaning)
    assert found["parent"][0] and not found["off"][0]
    assert found["off"][1] <= 4  # once for each candidate, and to save the best one


def test_a_parent_with_numbers_that_are_none_is_refused(db: Database) -> None:
    module = db.recover("parent")
    with torch.no_grad():
        next(module.parameters())[0, 0] = float("nan")
    db.save("bad", module, architecture=PARENT, dataset="d", metrics={"accuracy": 1.0})
    for name, how in (("auto", "auto"), ("named", "bad")):
        db.create_run(name, dataset="d", warm_start=how, **RUNS["deep"])
    train_all(db, ["auto", "named"], workers=1)
    assert [row["parent"] for row in warm(db, "auto")] == ["parent@1"]
    (row,) = warm(db, "named")
    assert row["parent"] is None and "finite" in row["reason"]


def test_a_weak_parent_that_was_named_is_taken_and_said_to_be_weak(db: Database) -> None:
    db.save(
        "weak", db.recover("parent"), architecture=PARENT, metrics={"accuracy": 0.4}, dataset="d"
    )
    for name, parent in (("weakly", "weak"), ("well", "parent")):
        run = db.create_run(name, dataset="d", warm_start=parent, **RUNS["deep"])
        db.sql(f"SELECT * FROM mmdb.begin_candidate({run.leaderboard()[0]['candidate_id']})")
    (row,), (other,) = warm(db, "weakly"), warm(db, "well")
    assert row["parent"] == "weak@1" and "weak: another model of its dataset has" in row["reason"]
    assert "1.6 points of accuracy below cold starts" in row["reason"]
    assert other["parent"] == "parent@1" and "weak" not in other["reason"]


def test_a_parent_that_was_named_must_exist_when_the_run_is_created(db: Database) -> None:
    for name in ("nothing", "parent@9", "parent@prod", ""):
        with pytest.raises(errors.ModelNotFound):
            db.create_run("r", dataset="d", architecture=WIDE, warm_start=name)
    with pytest.raises(errors.InvalidOption, match="treshold"):
        options = {"warm_start": {"treshold": 1}}
        db.create_run("r", dataset="d", architecture=WIDE, warm_start="auto", options=options)
    with pytest.raises(errors.InvalidOption, match="'off'"):
        options = {"warm_start": {}}
        db.create_run("r", dataset="d", architecture=WIDE, options=options)
    assert db.sql("SELECT count(*) AS n FROM mmdb.run WHERE name = 'r'")[0]["n"] == 0


def test_an_alias_means_the_version_that_it_is_at_now(db: Database) -> None:
    db.set_alias("parent", "prod", version=1)
    db.create_run("r", dataset="d", warm_start="parent@prod", **RUNS["deep"])
    (row,) = db.sql("SELECT warm_start FROM mmdb.run WHERE name = 'r'")
    assert row["warm_start"] == "parent@1"


def test_a_named_parent_that_is_dropped_before_the_first_hop_leaves_a_fresh_start(
    db: Database,
) -> None:
    db.create_run("r", dataset="d", warm_start="parent", **RUNS["deep"])
    db.drop_model("parent")
    assert db.run("r").train(workers=1).failed == 0
    (row,) = warm(db, "r")
    assert row["parent"] is None and "parent@1 has been dropped" in row["reason"]


def test_a_parent_that_is_dropped_while_it_is_chosen_gives_way_to_the_next_best(
    duckdb_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mmdb.connect(duckdb_copy) as db:
        db.save("twin", db.recover("parent"), architecture=PARENT, dataset="d")
        taken: list[str] = []

        def drop(connection: Any, chosen: ParentMatch) -> None:
            taken.append(chosen.model)
            if len(taken) == 1:
                raise errors.ModelNotFound(f"Model {chosen.model!r} has been dropped.")
            parents.take_parent(connection, chosen)

        monkeypatch.setattr(begin, "take_parent", drop)
        run = db.create_run("r", dataset="d", warm_start="auto", **RUNS["deep"])
        run.train(workers=1)
        (row,) = warm(db, "r")
        assert sorted(taken) == ["parent@1", "twin@1"]
        assert row["parent"] == taken[1] and f"{taken[0]!r} has been dropped" in row["reason"]


def test_a_parent_whose_factory_is_gone_still_gives_its_tensors_to_its_like(
    db: Database,
) -> None:
    db.register_factory("old", "mmdb.graph.factories:mlp")
    hidden = "(hidden=[16, 8], batch_norm=True)"
    db.create_run(
        "odd", dataset="d", architecture=f"old{hidden}", search=ONE, epochs=2, seed=1
    ).train(workers=1)
    db.sql("DELETE FROM mmdb.factory WHERE name = 'old'")
    for name, architecture in (("like", PARENT), ("unlike", WIDE)):
        db.create_run(name, dataset="d", architecture=architecture, search=ONE, warm_start="odd")
    train_all(db, ["like", "unlike"], workers=1)
    (like,), (unlike,) = warm(db, "like"), warm(db, "unlike")
    assert (like["parent"], like["coverage"]) == ("odd@1", 1.0)
    assert unlike["parent"] is None and "'old'" in unlike["reason"]
    own = first_weights(db, like)
    (checkpoint, *_) = db.sql(
        "SELECT candidate_id, best_epoch FROM mmdb.leaderboard WHERE run = 'odd'"
    )
    for row in states.checkpoints(db.connection, checkpoint["candidate_id"]):
        if row["epoch"] == checkpoint["best_epoch"]:
            place = (row["part_id"], checkpoint["candidate_id"], hexed(row["state_hash"]))
            its = weights(states.read_checkpoint(db.connection, *place) or b"")
            assert all(torch.equal(own[path], tensor) for path, tensor in its.items())


def test_a_parent_that_is_kept_as_a_recipe_is_made_again(db: Database) -> None:
    candidate_id = db.run("parent").leaderboard()[0]["candidate_id"]
    db.save_candidate(candidate_id, "recipe", approach="provenance")
    db.sql(f"DELETE FROM mmdb.checkpoint WHERE candidate_id = {candidate_id}")
    for name, parent in (("r", "recipe"), ("same", "parent")):
        db.create_run(name, dataset="d", warm_start=parent, **RUNS["deep"])
    train_all(db, ["r", "same"], workers=1)
    (row,) = warm(db, "r")
    assert row["parent"] == "recipe@1"
    assert chain(db, "r") == chain(db, "same")
