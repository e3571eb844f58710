"""Groups that stop by themselves, from a run's option to what is saved, alike on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.graph.grouped import COMMON, Grouped
from mmdb.report.subject_reports import model_report, run_report
from tests.cluster import Cluster

#: Shops 1 to 12; more is sold by chance the higher a shop's number: some learn nothing for long.
SALES = """
CREATE TABLE sale AS
SELECT
    i AS id,
    1 + i % 12 AS shop,
    ((i * 7919) % 201 - 100) / 100.0::double precision AS x,
    ((i * 7919) % 201 - 100) / 50.0 + (i % 12) * ((i * 104729) % 211 - 105) / 200.0 AS sold
FROM generate_series(1, 600) AS g (i)
"""
SEEN: dict[str, list[Any]] = {}


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[mmdb.Database]:
    """Yield an open database with a trained model of shops."""
    url = f"duckdb:///{tmp_path_factory.mktemp('patience')}/mmdb.duckdb"
    if request.param == "postgres":
        url = cluster.create_database("mmdb_patience", request.getfixturevalue("template"))
    with mmdb.connect(url) as found:
        found.sql(SALES)
        found.create_dataset(
            "sale",
            "SELECT id, shop, x, sold FROM sale",
            label="sold",
            partitions=2,
            options={"transforms": {"shop": "index"}, "roles": {"id": "key"}},
        )
        found.create_run(
            "sale",
            dataset="sale",
            per="shop",
            architecture="mlp(hidden=[8], activation='tanh')",
            epochs=12,
            search={"space": {"lr": [0.05], "batch_size": [8]}},
            options={"metric": "rmse", "group_patience": 3},
        )
        found.run("sale").train(workers=2)
        yield found
    if request.param == "postgres":
        cluster.drop_database("mmdb_patience")


def test_what_is_saved_is_no_worse_than_any_epoch(db: mmdb.Database) -> None:
    network = db.recover("sale")
    assert isinstance(network, Grouped) and network.best is None
    (best, *_) = db.run("sale").leaderboard()
    assert db.evaluate("sale", "sale")["rmse"] == pytest.approx(best["objective"], rel=1e-6)
    hops = db.sql(
        "SELECT h.loss FROM mmdb.hop AS h JOIN mmdb.partition AS p USING (part_id) "
        "WHERE p.role = 'validation' ORDER BY h.ordinal"
    )
    losses = [row["loss"] for row in hops]
    assert losses == sorted(losses, reverse=True)  # each group answers with its best epoch
    assert len(set(network.steps[2:].tolist())) > 2  # and has stopped when it was no better


def test_engines_give_the_same_bits(db: mmdb.Database) -> None:
    rows = db.sql("SELECT h.state_out FROM mmdb.hop AS h ORDER BY h.ordinal")
    SEEN[db.connection.engine] = [bytes(row["state_out"]) for row in rows]
    if len(SEEN) == 2:
        assert SEEN["duckdb"] == SEEN["postgres"]


def test_a_recipe_gives_the_weights_again(db: mmdb.Database) -> None:
    (best, *_) = db.run("sale").leaderboard()
    db.save_candidate(best["candidate_id"], "recipe", approach="provenance")
    found, wanted = db.recover("recipe").state_dict(), db.recover("sale").state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[path], wanted[path]) for path in wanted)


@pytest.mark.parametrize(
    "asked",
    [
        {"options": {"group_patience": 0}, "per": "shop"},
        {"options": {"group_patience": 2}},
        {"options": {"group_patience": 2}, "per": "shop", "dataset": "all"},
    ],
    ids=["zero", "no groups", "nothing held out"],
)
def test_what_cannot_stop_is_refused(db: mmdb.Database, asked: dict[str, Any]) -> None:
    if asked.get("dataset") == "all":
        options = {"transforms": {"shop": "index"}, "roles": {"id": "key"}}
        query = "SELECT id, shop, x, sold FROM sale"
        db.create_dataset("all", query, label="sold", validation=0, options=options)
    with pytest.raises(errors.InvalidOption, match="group_patience"):
        db.create_run("no", **{"dataset": "sale", "architecture": "mlp", **asked})


def test_groups_are_listed_by_what_they_were_measured_by(db: mmdb.Database) -> None:
    rows = db.sql(
        "SELECT * FROM mmdb.group_overview WHERE model = 'sale' AND version = 1 ORDER BY value DESC"
    )
    assert sorted(row["group_value"] for row in rows) == sorted(str(k) for k in range(1, 13))
    assert {(row["metric"], row["maximize"]) for row in rows} == {("rmse", False)}
    assert sum(row["train_rows"] + row["held_out_rows"] for row in rows) == 600
    query = "SELECT id, shop, x, sold FROM sale"
    found = db.evaluate("sale", query, by="shop")
    everywhere = {r["by_value"]: r["value"] for r in found.rows if r["metric"] == "rmse"}
    unit = rows[0]["value"] ** 2 / rows[0]["held_out_loss"]  # a loss is of scaled labels
    for row in rows:
        n, m = row["train_rows"], row["held_out_rows"]
        assert row["value"] ** 2 == pytest.approx(row["held_out_loss"] * unit, rel=1e-4)
        mean = (n * row["train_loss"] * unit + m * row["value"] ** 2) / (n + m)
        assert everywhere[row["group_value"]] == pytest.approx(mean**0.5, rel=1e-4)
        own = db.recover_group("sale", row["group_value"]).state_dict()["1.weight"]
        code = row["code"]
        assert torch.equal(own, db.tensor("sale", "each.1.weight", rows=(code, code + 1))[0])


def test_a_shop_that_opens_later_has_the_common_network(db: mmdb.Database) -> None:
    (found,) = db.predict("sale", {"shop": 77, "x": 0.5})
    common = db.recover_group("sale", 77)
    network = db.recover("sale")
    assert isinstance(network, Grouped)
    assert torch.equal(common.state_dict()["1.weight"], network.tensors()["1.weight"][COMMON])
    (row,) = db.predict_query("sale", "SELECT 1 AS id, 77 AS shop, 0.5 AS x")
    assert found == pytest.approx(float(row["prediction"]))
    query = "SELECT id, shop + 100 AS shop, x, sold FROM sale WHERE shop < 3"
    rows = db.evaluate("sale", query, by="shop").rows
    assert {r["by_value"] for r in rows} == {None, "101", "102"}


def test_reports_say_which_groups_do_worst(db: mmdb.Database) -> None:
    worst = db.sql(
        "SELECT group_value AS shop, value FROM mmdb.group_overview "
        "WHERE model = 'sale' AND version = 1 ORDER BY value DESC LIMIT 10"
    )
    db.save_candidate(db.run("sale").leaderboard()[0]["candidate_id"], "again")
    for report in (model_report(db.connection, "sale"), run_report(db.connection, "sale")):
        (section,) = [one for one in report.sections if one.key == "groups"]
        assert section.texts[0].startswith(
            "12 values of shop have a network each. Of 12 of them rmse"
        )
        rows = section.tables[0].rows
        assert [(row["group_value"], row["value"]) for row in rows] == [
            (row["shop"], row["value"]) for row in worst
        ]


def test_a_candidate_whose_dataset_is_gone_is_saved_without(db: mmdb.Database) -> None:
    (best, *_) = db.run("sale").leaderboard()
    db.drop_dataset("sale", force=True)
    db.save_candidate(best["candidate_id"], "late", approach="snapshot")
    assert db.recover("late") is not None
    assert not db.sql("SELECT 1 FROM mmdb.group_overview WHERE model = 'late'")
