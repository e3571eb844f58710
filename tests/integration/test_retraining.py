"""Retraining: a model goes on from its weights on what is new, is judged, and promoted or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.data.dataset import find_dataset
from mmdb.data.reader import read_partition
from mmdb.db.check import shown
from mmdb.store import states
from mmdb.store.files.safetensors_format import decode
from tests.copies import Copies

SEARCH = {"space": {"lr": 0.01, "batch_size": 32}}
#: y says whether a + b is above 1, with noise; of `flipped` rows it says the opposite.
ADD = """
    INSERT INTO points
    SELECT i, (i * 37 % 101) / 101.0, (i * 53 % 97) / 97.0, CASE WHEN
        ((i * 37 % 101) / 101.0 + (i * 53 % 97) / 97.0 + ((i * 71 % 89) / 89.0 - 0.5) * 0.2 > 1)
        = {right} THEN 'yes' ELSE 'no' END
    FROM generate_series({first}, {last}) AS g (i)
"""


@pytest.fixture(params=["duckdb", "postgres"])
def db(request: pytest.FixtureRequest, copies: Copies) -> Iterator[mmdb.Database]:
    with copies.open(request.param, _begin) as database:
        yield database


def _begin(db: mmdb.Database) -> None:
    db.sql("CREATE TABLE points (id integer, a double precision, b double precision, y text)")
    _add(db, 1, 600)
    options = {"roles": {"id": "key"}}
    db.create_dataset("points", "SELECT * FROM points", label="y", partitions=2, options=options)
    run = db.create_run("m", dataset="points", architecture="mlp", epochs=2, search=SEARCH)
    run.train(workers=1)
    db.set_alias("m", "live")


def _add(db: mmdb.Database, first: int, last: int, *, right: bool = True) -> None:
    db.sql(ADD.format(first=first, last=last, right="TRUE" if right else "FALSE"))


def test_a_model_goes_on_where_rows_are_new(db: mmdb.Database) -> None:
    idle = db.retrain("m@live")
    assert (idle["run"], idle["new_model"], idle["passed"]) == (None, None, False)
    _add(db, 601, 700)
    done = db.retrain("m@live", gate={"at_least": -1.0}, workers=1)
    assert (done["model"], done["new_model"], done["alias"]) == ("m@1", "m@2", "live")
    assert db.sql("SELECT version FROM mmdb.model_alias") == [{"version": 2}]
    sample = find_dataset(db.connection, done["dataset"])
    newest = find_dataset(db.connection, "points")
    rows = {d.name: {p.role: p.row_count for p in d.slices} for d in (sample, newest)}
    assert rows[newest.name]["validation"] == rows[sample.name]["validation"] == 140
    trained = sum(p.row_count for p in sample.slices if p.role == "train")
    assert trained == 80 + round(0.2 * 480)  # what is new, and a share of what was there
    assert sum(sample.class_counts["y"]) == trained
    for part in sample.slices:
        decoded = read_partition(db.connection, part.part_id, part.content_hash)
        assert len(decoded.label_arrays[0]) == part.row_count
    (warm,) = db.sql(
        "SELECT parent, coverage FROM mmdb.warm_start_overview WHERE run = 'm/continue-1-on-2'"
    )
    assert (warm["parent"], warm["coverage"]) == ("m@1", 1.0)
    # The next one goes on from the version that has seen these rows, which it counts as seen.
    again = db.retrain("m@live", workers=1)
    assert again["run"] is None
    assert again["reason"] == "m@2 has seen all of points@2."
    shown = db.sql("SELECT model, new_model, passed, reason FROM mmdb.retraining_overview")
    assert shown == [{key: done[key] for key in ("model", "new_model", "passed", "reason")}]


ADAM = {"space": {"lr": 0.01, "batch_size": 32, "optimizer": "adam"}}


def begun(db: mmdb.Database, run: str) -> dict[str, Any]:
    """Return what a run's candidate began with."""
    (row,) = db.sql(
        "SELECT c.candidate_id, w.state_hash, t.parent_state, t.reason"
        " FROM mmdb.warm_start AS w"
        " INNER JOIN mmdb.transfer AS t ON w.transfer_id = t.transfer_id"
        " INNER JOIN mmdb.candidate AS c ON w.candidate_id = c.candidate_id"
        f" INNER JOIN mmdb.run AS r ON c.run_id = r.run_id WHERE r.name = '{run}'"
    )
    return dict(row)


def state(db: mmdb.Database, candidate_id: int, name: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint, by name."""
    kept = states.checkpoints(db.connection, candidate_id)
    (row,) = [one for one in kept if bytes(one["state_hash"]) == bytes(name)]
    found = states.read_checkpoint(db.connection, row["part_id"], candidate_id, bytes(name).hex())
    assert found is not None
    return decode(found)[0]


@pytest.mark.parametrize(
    "architecture", ["mlp(hidden=[8], batch_norm=true, dropout=0.1)", "tabular"]
)
def test_the_optimizer_goes_on_where_its_state_is_kept(
    db: mmdb.Database, architecture: str
) -> None:
    run = db.create_run("a", dataset="points", architecture=architecture, epochs=3, search=ADAM)
    run.train(workers=1)
    _add(db, 601, 700)
    db.retrain("a@1", workers=1)
    row = begun(db, "a/continue-1-on-2")
    assert row["reason"].endswith("the optimizer goes on")
    own = state(db, row["candidate_id"], row["state_hash"])
    parent_id = run.leaderboard()[0]["candidate_id"]
    theirs = state(db, parent_id, row["parent_state"])
    kept = {name for name in theirs if name.startswith(("optimizer.", "model."))}
    assert kept == {name for name in own if name.startswith(("optimizer.", "model."))}
    assert any(name.endswith("exp_avg_sq") for name in kept)
    assert all(torch.equal(own[name], theirs[name]) for name in kept)
    # Its hops are a recipe, though no state is left but the one that it began with.
    db.save_candidate(row["candidate_id"], "recipe", approach="provenance")
    states.prune_checkpoints(db.connection, row["candidate_id"], {bytes(row["state_hash"]).hex()})
    again, whole = (db.recover(name).state_dict() for name in ("recipe", "a@2"))
    assert all(torch.equal(again[name], whole[name]) for name in whole)
    # Where the state is gone, it begins anew, and says so.
    db.drop_run("a")
    _add(db, 701, 720)
    db.retrain("a@1", workers=1)
    row = begun(db, "a/continue-1-on-3")
    assert row["reason"].endswith("the optimizer begins anew: no state that fits is kept")
    assert row["parent_state"] is None
    anew = state(db, row["candidate_id"], row["state_hash"])
    assert not any(name.startswith("optimizer.") for name in anew)
    with pytest.raises(errors.InvalidOption, match="with warm_start 'auto'"):
        db.create_run("b", dataset="points", architecture=architecture, search=ADAM,
                      warm_start="auto", options={"warm_start": {"optimizer": True}})  # fmt: skip


def test_an_optimizer_of_other_weights_or_of_another_kind_begins_anew(db: mmdb.Database) -> None:
    given: dict[str, Any] = {"dataset": "points", "architecture": "mlp", "warm_start": "m@1"}
    for name, search, more in (
        ("shrunk", SEARCH, {"shrink": 0.5}),
        ("other", {"space": {"optimizer": {"name": "sgd", "momentum": 0.9}}}, {}),
    ):
        options = {"warm_start": {"optimizer": True, **more}}
        db.create_run(name, search=search, options=options, **given).train(workers=1)
        assert begun(db, name)["reason"].endswith("begins anew: weights or optimizer are others")
        assert begun(db, name)["parent_state"] is None


def test_a_model_whose_run_looked_for_a_parent_is_retrained(db: mmdb.Database) -> None:
    options = {"warm_start": {"within_run": True, "threshold": 0.9}}
    db.create_run("w", dataset="points", architecture="mlp", search=SEARCH, warm_start="auto",
                  options=options).train(workers=1)  # fmt: skip
    _add(db, 601, 700)
    for mode in ("continue", "scratch"):
        assert db.retrain("w@1", mode=mode, workers=1)["new_model"]


COST = {"cost": {"false_positive": 1, "false_negative": 5}}
RULES = [("temperature", COST), ("isotonic", None), (None, {"recall": 0.9})]


@pytest.mark.parametrize(("method", "goal"), RULES, ids=["both", "isotonic", "threshold"])
def test_a_calibrated_model_is_calibrated_anew(
    db: mmdb.Database, method: str | None, goal: dict[str, Any] | None
) -> None:
    first = db.calibrate_model("m", "points", method, goal=goal)
    db.set_alias("m", "live", version=first["version"])
    _add(db, 601, 700)
    done = db.retrain("m@live", gate={"at_least": -1.0}, workers=1)
    assert (done["model"], done["new_model"], done["alias"]) == ("m@2", "m@4", "live")
    kept = _calibration(db, 4)
    assert kept.keys() == first["calibration"].keys() and kept != first["calibration"]
    assert kept.get("goal") == goal
    # As it would be by hand, of the version before, on the rows that are held out.
    again = db.calibrate_model("m@3", done["dataset"], method, goal=goal)
    assert again["calibration"] == kept
    found = db.evaluate("m@4", done["dataset"], metrics=["accuracy"])
    assert done["new_value"] == pytest.approx(found["accuracy"])


def _calibration(db: mmdb.Database, version: int) -> dict[str, Any]:
    (row,) = db.sql(
        "SELECT calibration::text AS calibration FROM mmdb.model_overview"
        f" WHERE model = 'm' AND version = {version}"
    )
    found: dict[str, Any] = json.loads(row["calibration"] or "{}")
    return found


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("null", "It was not kept which goal"),  # by a version of mmdb that did not
        ('{"precision": 1.0}', "No threshold gives a precision of 1.0"),
    ],
)
def test_a_rule_that_cannot_be_met_stops_the_new_model(
    db: mmdb.Database, goal: str, said: str
) -> None:
    db.calibrate_model("m", "points", goal=COST)
    rule = f'{{"positive": "yes", "threshold": 0.5, "goal": {goal}}}'
    db.sql(f"UPDATE mmdb.model SET calibration = '{rule}' WHERE version = 2")
    db.set_alias("m", "live", version=2)
    # y hangs on nothing any more: of the rows that come first by their scores, few are yes.
    db.sql("UPDATE points SET y = CASE WHEN id % 10 = 0 THEN 'yes' ELSE 'no' END")
    done = db.retrain("m@live", mode="scratch", gate={"at_least": -1.0}, workers=1)
    assert (done["new_model"], done["passed"], done["alias"]) == ("m@3", False, None)
    assert f"It cannot be calibrated as m@2 is: {said}" in done["reason"]
    assert done["metric"] is not None
    versions = db.sql("SELECT version FROM mmdb.model WHERE name = 'm' ORDER BY version")
    assert [row["version"] for row in versions] == [1, 2, 3]
    assert db.sql("SELECT version FROM mmdb.model_alias") == [{"version": 2}]


def test_a_gate_stops_what_is_worse_and_an_alias_goes_back(db: mmdb.Database) -> None:
    _add(db, 601, 640, right=False)
    gate = {"metric": "accuracy", "at_least": 0.3}
    done = db.retrain("m@live", mode="scratch", epochs=1, gate=gate, workers=1)
    assert (done["new_model"], done["passed"], done["alias"]) == ("m@2", False, None)
    assert "must be at least 0.3 better" in done["reason"]
    assert db.sql("SELECT version FROM mmdb.model_alias") == [{"version": 1}]
    with pytest.raises(errors.AliasNotFound):
        db.rollback_alias("m", "live")
    # Another gate judges the version that there is, and its verdict is the one that is kept.
    again = db.retrain("m@live", mode="scratch", gate={"metric": "auc", "at_least": 1}, workers=1)
    assert (again["new_model"], again["metric"], again["passed"]) == ("m@2", "auc", False)
    own = db.retrain("m@1", mode="scratch", gate={"at_least": -1.0}, workers=1)
    assert (own["metric"], own["passed"], own["alias"]) == ("accuracy", True, None)
    asked = {"run": own["run"], "gate": '{"at_least": -1}'}
    (moved,) = db._call("end_retraining", **asked, alias="live")
    assert moved == {**own, "alias": "live"}
    (kept,) = db._call("end_retraining", **asked | {"gate": None}, alias="live")
    assert kept == moved and db.sql("SELECT new_model, alias FROM mmdb.retraining_overview") == [
        {"new_model": "m@2", "alias": "live"}
    ]
    assert db.rollback_alias("m", "live") == "m@1"
    with pytest.raises(errors.AliasNotFound):
        db.rollback_alias("m", "live")
    with pytest.raises(errors.AliasNotFound):
        db.rollback_alias("m", "nothing")


def test_an_alias_that_moved_meanwhile_stays(db: mmdb.Database) -> None:
    db.save_candidate(db.run("m").leaderboard()[0]["candidate_id"], "other")
    _add(db, 601, 640)
    (begun,) = db._call(
        "begin_retraining", model="m@live", mode="search", replay=0.2, epochs=1, refresh=True
    )
    with pytest.raises(errors.RunFailed):
        db._call("end_retraining", run=begun["run"], gate=None, alias="live")
    db.run(begun["run"]).train(workers=1)
    db.drop_alias("m", "live")
    db.set_alias("other", "live")
    (ended,) = db._call("end_retraining", run=begun["run"], gate='{"at_least": -1}', alias="live")
    assert ended["alias"] == "live"  # nobody has it by this model's name
    _add(db, 641, 700)
    (begun,) = db._call(
        "begin_retraining", model="m@1", mode="continue", replay=0.0, epochs=1, refresh=True
    )
    db.run(begun["run"]).train(workers=1)
    (ended,) = db._call("end_retraining", run=begun["run"], gate='{"at_least": -1}', alias="live")
    assert (ended["passed"], ended["alias"]) == (False, None)
    assert "is at version 2 meanwhile" in ended["reason"]


def test_what_cannot_be_retrained_is_refused(db: mmdb.Database) -> None:
    for wrong in (
        {"mode": "again"},
        {"replay": 1.5},
        {"epochs": 0},
        {"gate": {"metrics": "auc"}},
    ):
        with pytest.raises(errors.InvalidOption):
            db.retrain("m", **wrong)
    with pytest.raises(errors.InvalidOption, match="no metric 'acuracy'"):
        db.retrain("m", mode="scratch", gate={"metric": "acuracy"})
    assert db.sql("SELECT count(*) AS n FROM mmdb.hop_timeline WHERE run <> 'm'") == [{"n": 0}]
    with pytest.raises(errors.ModelNotFound):
        db.retrain("nothing")
    with pytest.raises(errors.RunNotFound):
        db._call("end_retraining", run="m", gate=None, alias=None)
    db.drop_dataset("points", force=True)
    with pytest.raises(errors.DatasetDropped):
        db.retrain("m")


def test_sql_retrains_in_one_call(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        _begin(db)
        dsn = {"dsn": shown(postgres_url)}
        db.sql("INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %(dsn)s)", dsn)
        _add(db, 601, 700)
        with psycopg.connect(postgres_url, autocommit=True) as session:
            call = """CALL mmdb.retrain('m@live', gate => '{"at_least": -1}', workers => 1)"""
            row = session.execute(call).fetchone()
            assert row is not None
            assert row[:3] == ("m@1", "m/continue-1-on-2", "m@2")
            again = session.execute(call).fetchone()
            assert again is not None
            assert again[:2] == ("m@2", None)
