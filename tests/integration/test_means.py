"""A run's model is the mean of its best candidates where that is better: alike on both engines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.graph.mean import MeanOf
from mmdb.train.replay.summary import Summary
from tests.cluster import Cluster

#: Too noisy for one network to be right, so that the mean of two is better.
THINGS = """
CREATE TABLE thing AS
SELECT
    i AS id,
    ((i * 7919) % 201 - 100) / 100.0::double precision AS a,
    ((i * 104729) % 301 - 150) / 100.0::double precision AS b,
    CASE
        WHEN (i * 7919) % 201 - 100 + (i * 1299709) % 161 - 80 > 0 THEN 'high' ELSE 'low'
    END AS grade,
    (((i * 7919) % 201) * 3 + (i * 45) % 401) / 100.0::double precision AS price
FROM generate_series(1, 160) AS g (i)
"""
#: Options of the dataset of each label.
LABELS: dict[str, dict[str, Any]] = {"grade": {}, "price": {"task": "regression"}}
SEARCH = {
    "space": {
        "architecture.hidden": [[8], [16], [32], [64]],
        "lr": [0.1],
        "batch_size": [8],
        "optimizer": ["adam"],
    },
}
SEEN: dict[str, list[Any]] = {}  # by engine, in the order of the tests: duckdb comes first


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[mmdb.Database]:
    """Yield an open database with a run of each label, whose model is a mean."""
    url = f"duckdb:///{tmp_path_factory.mktemp('means')}/mmdb.duckdb"
    if request.param == "postgres":
        url = cluster.create_database("mmdb_means", request.getfixturevalue("template"))
    with mmdb.connect(url) as found:
        found.sql(THINGS)
        for label, options in LABELS.items():
            found.create_dataset(
                label,
                f"SELECT id, a, b, {label} FROM thing",
                label=label,
                options={"roles": {"id": "key"}, **options},
            )
            trained(found, label, label, {"ensemble": 4})
        yield found
    if request.param == "postgres":
        cluster.drop_database("mmdb_means")


def trained(
    db: mmdb.Database, run: str, dataset: str, options: Mapping[str, Any], epochs: int = 6
) -> Summary:
    db.create_run(
        run,
        dataset=dataset,
        architecture="mlp(activation='tanh')",
        epochs=epochs,
        search=SEARCH,
        strategy="mop",
        options={"metric": "loss", **options},
    )
    return db.run(run).train(workers=2)


def members_of(db: mmdb.Database, model: str) -> list[Mapping[str, Any]]:
    """Return the candidates whose mean the first version of a model is."""
    return db.sql(
        "SELECT k.ordinal, k.candidate_id, k.epoch, c.ordinal AS candidate "
        "FROM mmdb.model_member AS k JOIN mmdb.model AS m USING (model_id) "
        f"JOIN mmdb.candidate AS c ON k.candidate_id = c.candidate_id "
        f"WHERE m.name = '{model}' AND m.version = 1 ORDER BY k.ordinal"
    )


@pytest.mark.parametrize("run", ["grade", "price"])
def test_the_model_is_the_mean_of_the_candidates_best_epochs(db: mmdb.Database, run: str) -> None:
    model, members = db.recover(run).eval(), members_of(db, run)
    assert isinstance(model, MeanOf) and len(members) == len([*model.children()]) > 1
    for place, member in enumerate(members):
        name = f"{run}-{place}"
        db.save_candidate(member["candidate_id"], name)
        alone = db.recover(name).state_dict()
        own = {k: v for k, v in model.state_dict().items() if k.startswith(f"{place}.")}
        assert len(own) == len(alone)
        assert all(torch.equal(own[f"{place}.{path}"], t) for path, t in alone.items())


@pytest.mark.parametrize("run", ["grade", "price"])
def test_it_is_better_on_the_rows_held_out_than_each_of_them(db: mmdb.Database, run: str) -> None:
    metric = {"grade": "log_loss", "price": "rmse"}[run]
    mean = db.evaluate(run, run, metrics=[metric])[metric]
    for place in range(len(members_of(db, run))):
        assert mean < db.evaluate(f"{run}-{place}", run, metrics=[metric])[metric]
    (row,) = db.sql(f"SELECT metrics, members FROM mmdb.model_overview WHERE model = '{run}'")
    known = json.loads(row["metrics"]) if isinstance(row["metrics"], str) else row["metrics"]
    assert row["members"] == len(members_of(db, run)) and known


def test_probabilities_are_the_mean_of_probabilities(db: mmdb.Database) -> None:
    def chances(model: str) -> list[float]:
        asked = "SELECT id, a, b FROM thing WHERE id < 9 ORDER BY id"
        found = db.predict_query(model, asked, probabilities=True)
        rows = {row["key"]: row["probabilities"] for row in found}
        return [json.loads(rows[key])["high"] for key in sorted(rows)]

    of = [chances(f"grade-{k}") for k in range(len(members_of(db, "grade")))]
    expected = [sum(each) / len(each) for each in zip(*of, strict=True)]
    assert chances("grade") == pytest.approx(expected, abs=1e-6)


def test_training_again_saves_nothing_new(db: mmdb.Database) -> None:
    again = db.run("grade").train(workers=1)
    assert again.version == 1 and len(again.members) > 1 and again.mean_text is not None
    assert list(again.members) == [row["candidate_id"] for row in members_of(db, "grade")]


def test_it_comes_from_all_of_its_candidates(db: mmdb.Database) -> None:
    found = {
        edge["parent"]: edge["via"] for edge in db.lineage("model:grade@1") if edge["depth"] == 1
    }
    members = members_of(db, "grade")
    assert f"mean of candidates | {', '.join(str(m['candidate'] + 1) for m in members)} of " in (
        db.model_card("grade")
    )
    expected = [f"checkpoint:{m['candidate_id']}/{m['epoch']}" for m in members]
    assert found == dict.fromkeys(expected, "mean") | {expected[0]: "save"}
    last = db.lineage(expected[-1], direction="down")
    assert "model:grade@1" in {edge["child"] for edge in last}


def test_its_first_candidate_is_saved_beside_it(db: mmdb.Database) -> None:
    first = members_of(db, "price")[0]["candidate_id"]
    saved = db.save_candidate(first, "price")
    assert saved == "price@2" and not isinstance(db.recover(saved), MeanOf)
    assert db.save_candidate(first, "price") == saved
    assert db.run("price").train(workers=1).version == 1


def test_what_goes_by_a_model_goes_by_a_mean(db: mmdb.Database, tmp_path: Path) -> None:
    rows = "SELECT id, a, b, grade FROM thing"
    assert {row["column_name"] for row in db.importance("grade", rows)} == {"a", "b"}
    assert db.training_rows("grade@1", f"{rows} WHERE id < 4", key="id")
    with pytest.raises(errors.NotReplayable, match="the mean of several candidates"):
        db.training_rows("grade@1", f"{rows} WHERE id < 4", key="id", checkpoints=2)
    calibrated = db.calibrate_model("grade", "grade", "temperature")
    version = f"grade@{calibrated['version']}"
    assert isinstance(db.recover(version), MeanOf)
    with pytest.raises(errors.NotReplayable, match="the mean of several candidates"):
        db.training_rows(version, f"{rows} WHERE id < 4", key="id", checkpoints=2)
    file = tmp_path / "grade.safetensors"
    db.export_model("grade@1", file)
    db.import_model(file, "grade-file")
    path = "1.1.weight"
    assert torch.equal(db.tensor("grade-file", path), db.tensor("grade@1", path))


def test_a_copy_knows_its_candidates(db: mmdb.Database, tmp_path: Path) -> None:
    url = f"duckdb:///{tmp_path}/edge.duckdb"
    db.push("grade@1", to=url)
    row = {"a": 0.1, "b": 0.2}
    with mmdb.connect(url) as edge:
        own, copied = members_of(db, "grade"), members_of(edge, "grade")
        assert len(copied) > 1
        for mine, theirs in zip(own, copied, strict=True):
            assert (theirs["candidate"], theirs["epoch"]) == (mine["candidate"], mine["epoch"])
        weights = db.recover("grade@1").state_dict()
        there = edge.recover("grade").state_dict()
        assert all(torch.equal(there[path], tensor) for path, tensor in weights.items())
        assert edge.predict("grade", row) == pytest.approx(db.predict("grade@1", row), abs=1e-6)


def test_engines_choose_the_same(db: mmdb.Database) -> None:
    rows = db.sql(
        "SELECT m.weights_hash FROM mmdb.model AS m "
        "WHERE m.version = 1 AND m.name IN ('grade', 'price') ORDER BY m.name"
    )
    SEEN[db.connection.engine] = [bytes(row["weights_hash"]) for row in rows]
    assert len(rows) == 2
    if len(SEEN) == 2:  # else this process tests one engine alone
        assert SEEN["duckdb"] == SEEN["postgres"]


def test_never_is_never(db: mmdb.Database) -> None:
    summary = trained(db, "plain", "grade", {}, epochs=1)
    assert summary.members == () and summary.mean_text is None
    assert not members_of(db, "plain") and not isinstance(db.recover("plain"), MeanOf)


def test_two_is_two_at_most(db: mmdb.Database) -> None:
    assert len(members_of(db, "grade")) > 2
    summary = trained(db, "two", "grade", {"ensemble": 2})
    assert len(summary.members) == 2 == len(members_of(db, "two"))


def test_a_mean_is_trained_by_hand(db: mmdb.Database) -> None:
    form = {"mean": ["mlp(hidden=[4])", "tabular(hidden=[4], ensemble=2)"], "averages": "outputs"}
    space = {"space": {"lr": [0.05], "batch_size": [16]}}
    db.create_run("hand", dataset="grade", architecture=form, epochs=2, search=space)
    summary = db.run("hand").train(workers=1)
    assert summary.members == () and isinstance(db.recover("hand"), MeanOf)
    with pytest.raises(errors.InvalidOption, match="a mean already"):
        db.create_run("wrong", dataset="grade", architecture=form, options={"ensemble": 2})


@pytest.mark.parametrize("given", [1, 17, "often", True, 2.5, [2]], ids=str)
def test_what_says_no_number_is_refused(db: mmdb.Database, given: object) -> None:
    with pytest.raises(errors.InvalidOption, match=r"options\.ensemble is"):
        db.create_run("wrong", dataset="grade", architecture="mlp", options={"ensemble": given})


def test_where_nothing_is_held_out_there_is_no_mean(db: mmdb.Database) -> None:
    db.create_dataset("all", "SELECT a, grade FROM thing", label="grade", validation=0)
    with pytest.raises(errors.InvalidOption, match="holds out nothing"):
        db.create_run("wrong", dataset="all", architecture="mlp", options={"ensemble": 2})
    db.create_run("free", dataset="all")  # by defaults that do not ask for it
