"""Groups that stop by themselves, from a run's option to what is saved, alike on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.graph.grouped import Grouped
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
