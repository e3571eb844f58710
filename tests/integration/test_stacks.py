"""Candidates that train in one pass: the same bits in any company, on both engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.api import Database
from tests.cluster import Cluster
from tests.integration.test_fused_hops import Joining, outputs
from tests.integration.test_strategies import train_all
from tests.points import fill, logged

RATES = [0.1, 0.05, 0.02, 0.01, 0.005, 0.002]
OPTIMIZERS = ["adam", "sgd", {"name": "sgd", "momentum": 0.9}]
GRID = {"space": {"optimizer": OPTIMIZERS, "lr": RATES[:3], "batch_size": [16]}}
BAD = {"space": {"optimizer": ["sgd"], "lr": [*RATES[:2], 1e30, *RATES[3:]], "batch_size": [16]}}
GOOD = {"space": {"optimizer": ["sgd"], "lr": RATES, "batch_size": [16]}}
HEADS = {"space": {"optimizer": ["adam"], "lr": RATES, "batch_size": [16]}}
FROZEN = {"freeze_up_to": "2", "head": "mlp(hidden=[4])"}
TABLES: dict[str, Any] = {
    "architecture": "tabular(ensemble=2, hidden=[8])",
    "search": {"space": {"lr": RATES, "batch_size": [16], "architecture.dropout": [0.0, 0.2]}},
}
RUNS: dict[str, dict[str, Any]] = {
    "plain": {"search": GRID, "epochs": 2},
    "many": {"search": GRID, "epochs": 2, "options": {"stack": 64}},
    "few": {"search": GRID, "epochs": 2, "options": {"stack": 2}},
    "hands": {"search": GRID, "epochs": 2, "options": {"stack": 64}},
    "heads_many": {
        "search": HEADS,
        "options": {"stack": 64, **FROZEN, "features": {"choice": "stored"}},
    },
    "heads_few": {
        "search": HEADS,
        "options": {"stack": 2, **FROZEN, "features": {"choice": "recomputed"}},
    },
    "heads_plain": {"search": HEADS, "options": {**FROZEN, "features": {"choice": "stored"}}},
    "tables_many": {**TABLES, "options": {"stack": 64}},
    "tables_few": {**TABLES, "options": {"stack": 2}},
    "bad": {"search": BAD, "options": {"stack": 64}},
    "good": {"search": GOOD, "options": {"stack": 64}},
}


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """Yield a database with the runs, all but `hands` trained."""
    url = f"duckdb:///{tmp_path_factory.mktemp('stacks')}/mmdb.duckdb"
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.create_database("mmdb_stacks", request.getfixturevalue("template"))
    with mmdb.connect(url) as database:
        fill(database)
        for name, asked in RUNS.items():
            database.create_run(name, dataset="d", **{"architecture": "mlp(dropout=0.2)", **asked})
        yield database
    if request.param == "postgres":
        cluster.drop_database("mmdb_stacks")


@pytest.fixture(scope="module")
def trained(db: Database) -> tuple[dict[str, Any], Joining]:
    """Train the runs; return what became of each, and what was heard of their hops."""
    watch = Joining()
    return train_all(db, [name for name in RUNS if name != "hands"], watch=watch), watch


def test_groupings_change_no_bit(db: Database, trained: tuple[dict[str, Any], Joining]) -> None:
    _, watch = trained
    assert watch.joined["many"] and watch.joined["few"] and not watch.joined["plain"]
    assert logged(db, "many") == logged(db, "few")
    assert logged(db, "many") != logged(db, "plain")
    assert watch.joined["tables_many"] and watch.joined["tables_few"]
    assert logged(db, "tables_many") == logged(db, "tables_few")


def test_heads_on_shared_features_stack(
    db: Database, trained: tuple[dict[str, Any], Joining]
) -> None:
    _, watch = trained
    assert watch.joined["heads_many"] and watch.joined["heads_few"]
    found = {name: [row[-1] for row in logged(db, f"heads_{name}")] for name in _HEADS}
    assert found["many"] == found["few"]  # whatever is done with the features
    assert found["many"] != found["plain"]


_HEADS = ("many", "few", "plain")


def test_hops_by_hand_have_the_same_bits(
    db: Database, trained: tuple[dict[str, Any], Joining]
) -> None:
    """The first hop of each candidate: one alone, and those that begin where it does together."""
    firsts: dict[int, Any] = {}
    for row in logged(db, "many"):
        firsts.setdefault(row[0], row)
    ids = db.sql(
        "SELECT c.candidate_id AS id FROM mmdb.candidate AS c JOIN mmdb.run AS r USING (run_id)"
        " WHERE r.name = 'hands' ORDER BY c.ordinal"
    )
    by_part: dict[int, list[int]] = {}
    for ordinal, row in firsts.items():
        by_part.setdefault(row[2], []).append(ids[ordinal]["id"])
    for part, (one, *others) in by_part.items():
        assert len(others) > 1
        db.sql(f"SELECT loss FROM mmdb.train_hop({part}, {one}, 0)")
        db.sql(f"SELECT loss FROM mmdb.train_hops({part}, ARRAY{others}, 0)")
    assert logged(db, "hands") == list(firsts.values())


def test_a_recipe_gives_the_weights_again(
    db: Database, trained: tuple[dict[str, Any], Joining]
) -> None:
    (best, *_) = db.run("many").leaderboard()
    db.save_candidate(best["candidate_id"], "recipe", approach="provenance")
    found, wanted = db.recover("recipe").state_dict(), db.recover("many").state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[path], wanted[path]) for path in wanted)


def test_one_that_diverges_ends_alone(
    db: Database, trained: tuple[dict[str, Any], Joining]
) -> None:
    outcomes, _ = trained
    assert outcomes["bad"].failed == 1
    failed = [row["config"]["lr"] for row in db.run("bad").leaderboard() if row["error"]]
    assert [float(lr) for lr in failed] == [1e30]
    good = {row for row in outputs(db, "good") if row[0] != 2}
    assert {row for row in outputs(db, "bad") if row[0] != 2} == good


def test_auto_is_settled_when_the_run_is_made(db: Database) -> None:
    space = {"space": {"lr": [k / 100 for k in range(1, 17)]}}
    db.create_run("auto", dataset="d", architecture="mlp", search=space, options={"stack": "auto"})
    (row,) = db.sql("SELECT options FROM mmdb.run WHERE name = 'auto'")
    options = json.loads(row["options"]) if isinstance(row["options"], str) else row["options"]
    assert options["stack"] == "never" or options["stack"] >= 2
    assert "Up to 64 candidates of one shape" in str(db.run("many").explain())


@pytest.mark.parametrize(
    ("options", "strategy", "says"),
    [
        ({"stack": 1}, "mop", "whole number from 2"),
        ({"stack": "always"}, "mop", "'never'"),
        ({"stack": 4}, "data_parallel", "each trains alone"),
        ({"stack": "auto"}, "data_parallel", "each trains alone"),
    ],
)
def test_what_cannot_be_stacked_is_refused(
    db: Database, options: dict[str, Any], strategy: str, says: str
) -> None:
    with pytest.raises(errors.InvalidOption) as raised:
        db.create_run("x", dataset="d", architecture="mlp", options=options, strategy=strategy)
    assert says in str(raised.value)
