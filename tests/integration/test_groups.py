"""A network for each value of a column: from one SELECT to predictions, alike on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.graph.grouped import COMMON, Grouped
from tests.cluster import Cluster

#: Shops 0 to 11 sell 2 * shop + x * (shop % 3 - 1): no shop is like another. Rows of shop 0 have
#: NULL, and shop 11 has one row, fewer than an index makes a group of.
SALES = """
CREATE TABLE sale AS
SELECT
    i AS id,
    CASE WHEN i % 12 > 0 THEN CASE WHEN i % 12 < 11 OR i = 11 THEN i % 12 ELSE 1 END END AS shop,
    ((i * 7919) % 201 - 100) / 100.0::double precision AS x,
    2.0 * (i % 12) + ((i * 7919) % 201 - 100) / 100.0 * (i % 12 % 3 - 1) AS sold
FROM generate_series(1, 1200) AS g (i)
WHERE i % 12 < 11 OR i = 11
"""
SEEN: dict[str, list[Any]] = {}  # by engine, in the order of the tests: duckdb comes first


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[mmdb.Database]:
    """Yield an open database with a trained model of shops."""
    url = f"duckdb:///{tmp_path_factory.mktemp('groups')}/mmdb.duckdb"
    if request.param == "postgres":
        url = cluster.create_database("mmdb_groups", request.getfixturevalue("template"))
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
            epochs=30,
            search={"space": {"lr": [0.02, 0.05], "batch_size": [8]}},
            options={"metric": "rmse"},
        )
        found.run("sale").train(workers=2)
        yield found
    if request.param == "postgres":
        cluster.drop_database("mmdb_groups")


def _predicted(db: mmdb.Database, shop: int | None, x: float = 0.5) -> float:
    return db.predict("sale", {"shop": shop, "x": x})[0]


@pytest.mark.parametrize("shop", [None, 1, 4, 8, 10])
def test_each_group_is_answered_by_its_own_network(db: mmdb.Database, shop: int | None) -> None:
    code = shop or 0
    for x in (-0.5, 0.5):
        assert _predicted(db, shop, x) == pytest.approx(2 * code + x * (code % 3 - 1), abs=0.5)


def test_groups_without_rows_are_answered_by_what_learned_from_all(db: mmdb.Database) -> None:
    network = db.recover("sale")
    assert isinstance(network, Grouped)
    assert _predicted(db, 77) == _predicted(db, 11) == _predicted(db, -1)
    assert 0 < network.steps[COMMON] and _predicted(db, 77) == pytest.approx(10, abs=6)


def test_a_group_is_recovered_by_itself(db: mmdb.Database) -> None:
    whole = db.recover("sale")
    assert isinstance(whole, Grouped)
    shops = sorted(str(shop) for shop in range(1, 11))  # the order of their codes
    for shop, code in [("4", 2 + shops.index("4")), (None, 0), ("77", COMMON)]:
        own = db.recover_group("sale", shop).state_dict()
        for path, tensor in whole.of(code).state_dict().items():
            assert torch.equal(own[path], tensor)
    first, second = (db.recover_group("sale", 4) for _ in range(2))
    torch.nn.init.zeros_(first.get_parameter("1.weight"))
    first.register_forward_hook(lambda *_: torch.zeros(1))  # of one that is the caller's own
    assert second(torch.ones(1, 1)) != 0 and not second.training
    assert torch.equal(
        db.recover_group("sale", 4).state_dict()["1.weight"],
        db.tensor("sale", "each.1.weight", rows=(2 + shops.index("4"), 3 + shops.index("4")))[0],
    )


def test_predictions_and_figures_know_groups(db: mmdb.Database) -> None:
    db.sql("DROP TABLE IF EXISTS sold_then")
    assert db.predict_into("sale", "SELECT id, shop, x FROM sale", "sold_then") == 1101
    (row,) = db.sql("SELECT * FROM sold_then WHERE id = 64")
    (asked,) = db.sql("SELECT shop, x FROM sale WHERE id = 64")
    assert float(row["prediction"]) == pytest.approx(_predicted(db, asked["shop"], asked["x"]))
    found = db.evaluate("sale", "SELECT id, shop, x, sold FROM sale", by="shop")
    assert found["rmse"] < 1
    slices = db.sql(
        "SELECT DISTINCT by_value FROM mmdb.evaluation_overview WHERE by_name IS NOT NULL"
    )
    assert {row["by_value"] for row in slices} >= {"1", "4", "10"}
    (first, *_) = db.importance("sale", "SELECT id, shop, x, sold FROM sale")
    assert first["column_name"] == "shop"


def test_engines_give_the_same_bits(db: mmdb.Database) -> None:
    rows = db.sql(
        "SELECT c.ordinal, h.state_out FROM mmdb.hop AS h JOIN mmdb.candidate AS c "
        "USING (candidate_id) ORDER BY c.ordinal, h.ordinal"
    )
    SEEN[db.connection.engine] = [(row["ordinal"], bytes(row["state_out"])) for row in rows]
    assert len(rows) == 2 * 30 * 3
    if len(SEEN) == 2:  # else this process tests one engine alone
        assert SEEN["duckdb"] == SEEN["postgres"]


def test_a_recipe_gives_the_weights_again(db: mmdb.Database) -> None:
    (best, *_) = db.run("sale").leaderboard()
    db.save_candidate(best["candidate_id"], "recipe", approach="provenance")
    found, wanted = db.recover("recipe").state_dict(), db.recover("sale").state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[path], wanted[path]) for path in wanted)
    own = db.recover_group("recipe", 3).state_dict()
    assert torch.equal(own["1.weight"], db.recover_group("sale", 3).state_dict()["1.weight"])


def test_a_run_without_an_architecture_has_one_for_groups(db: mmdb.Database) -> None:
    db.sql("SELECT * FROM mmdb.create_run('plain', 'sale', per => 'shop', epochs => 1)")
    db.run("plain").train(workers=1)
    assert isinstance(db.recover("plain"), Grouped)
    assert db.run("plain").explain()


def test_a_class_per_group_has_probabilities(db: mmdb.Database) -> None:
    db.create_dataset(
        "kind",
        "SELECT id, shop, x, CASE WHEN sold > 9 THEN 'much' ELSE 'little' END AS y FROM sale",
        label="y",
        partitions=1,
        options={
            "transforms": {"shop": {"kind": "index", "min_count": 20}},
            "roles": {"id": "key"},
        },
    )
    space = {"space": {"lr": [0.05], "batch_size": [8]}}
    db.create_run(
        "kind", dataset="kind", per="shop", architecture="linear", epochs=8, seed=1, search=space
    )
    db.run("kind").train(workers=1)
    rows = db.predict_query(
        "kind", "SELECT id, shop, x FROM sale WHERE shop IN (2, 9)", probabilities=True
    )
    right = [
        row["prediction"] == ("much" if int(row["key"]) % 12 == 9 else "little") for row in rows
    ]
    assert sum(right) > 0.9 * len(rows)


BAD: list[tuple[dict[str, Any], type[errors.MmdbError], str]] = [
    ({"per": "x"}, errors.InvalidOption, "no index"),
    ({"per": "x"}, errors.InvalidOption, "cast to text in its query"),  # for it holds floats
    ({"per": "nothing"}, errors.InvalidOption, "no feature"),
    ({"per": "sold"}, errors.InvalidOption, "no feature"),
    ({"per": "id"}, errors.InvalidOption, "no feature"),
    ({"options": {"freeze_up_to": "1", "head": "linear"}}, errors.InvalidOption, "freeze_up_to"),
    (
        {"per": None, "architecture": {"per": "shop", "groups": 4, "place": 0, "network": "mlp"}},
        errors.InvalidOption,
        "of groups",
    ),
    ({"strategy": "data_parallel"}, errors.InvalidOption, "data_parallel"),
    ({"options": {"stack": 4}, "strategy": "mop"}, errors.InvalidOption, "stack"),
    ({"warm_start": "auto"}, errors.InvalidOption, "warm_start"),
    ({"architecture": "tabular"}, errors.InvalidHyperparameter, "TabularNetwork"),
    ({"architecture": "mlp(batch_norm=true)"}, errors.InvalidHyperparameter, "BatchNorm1d"),
    ({"architecture": "cnn"}, errors.ArchitectureError, "images"),
    (
        {"search": {"space": {"optimizer": ["rmsprop"]}}},
        errors.InvalidHyperparameter,
        "rmsprop",
    ),
]


@pytest.mark.parametrize(("asked", "error", "says"), BAD, ids=[str(row[0]) for row in BAD])
def test_what_cannot_train_per_group_is_refused(
    db: mmdb.Database, asked: dict[str, Any], error: type[errors.MmdbError], says: str
) -> None:
    with pytest.raises(error) as raised:
        db.create_run("no", **{"dataset": "sale", "per": "shop", "architecture": "mlp", **asked})
    assert says in str(raised.value)
    assert not db.sql("SELECT 1 FROM mmdb.run WHERE name = 'no'")


def test_codes_stand_beside_the_group(db: mmdb.Database) -> None:
    db.create_dataset(
        "coded",
        "SELECT id, x, 'k' || id % 40 AS kind, shop, sold FROM sale",
        label="sold",
        options={"transforms": {"shop": "index"}, "roles": {"id": "key"}},
    )
    db.create_run("coded", dataset="coded", per="shop", architecture="mlp(hidden=[4])")
    db.run("coded").train(workers=1)
    whole = db.recover("coded")
    assert isinstance(whole, Grouped)
    rows = torch.rand(6, 3).round()
    for shop in (10, 4):
        rows[:, 2] = 2 + sorted(str(k) for k in range(1, 11)).index(str(shop))
        own = db.recover_group("coded", shop)(whole.rows(rows))
        torch.testing.assert_close(own, whole(rows))


@pytest.mark.parametrize("shop", [4.0, "4", "4.00"])
def test_a_whole_number_is_one_however_it_comes(db: mmdb.Database, shop: Any) -> None:
    assert _predicted(db, shop) == _predicted(db, 4) != _predicted(db, 77)
    assert _predicted(db, 4.5) == _predicted(db, 77)  # type: ignore[arg-type]
    query = "SELECT 1 AS id, shop::{} AS shop, x FROM sale WHERE id = 64"
    found = [db.predict_query("sale", query.format(kind)) for kind in ("integer", "numeric(9, 2)")]
    assert found[0] == found[1]
    own = [db.recover_group("sale", one).state_dict()["1.weight"] for one in (shop, 4)]
    assert torch.equal(*own)


def test_gradients_do_not_explain_groups(db: mmdb.Database) -> None:
    query = "SELECT id, shop, x FROM sale WHERE id < 3"
    assert {row["gap"] < 1e-6 for row in db.explain_predict("sale", query)} == {True}
    with pytest.raises(errors.InvalidInput, match="shapley"):
        db.explain_predict("sale", query, method="gradients")
    with pytest.raises(errors.InvalidInput, match="A group is"):
        db.recover_group("sale", [4])


def test_a_model_without_groups_says_so(db: mmdb.Database) -> None:
    db.create_run("one", dataset="sale", architecture="mlp", epochs=1)
    db.run("one").train(workers=1)
    with pytest.raises(errors.InvalidOption, match="has no groups"):
        db.recover_group("one", 3)
