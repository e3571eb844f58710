"""The shapes of data that a run can be trained on, on both engines.

The tests share a database on each engine, in which all runs are trained by one worker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from tests.cluster import Cluster
from tests.integration.test_strategies import train_all
from tests.points import fill

#: Names that SQL, a driver or a format string could take for something else.
HOSTILE = ["select", "we ird", "a.b", "A", 'q"q', "100%", "%s", "%(id)s", "{x}", "$1", "q", "s",
           "grün", "'; DROP TABLE points; --", "x" * 60, "ids?", ":a", "@b", "\\",
           "row"]  # fmt: skip
NAMED = ", ".join(
    f"a * {k + 1} AS {quoted}"
    for k, name in enumerate(HOSTILE)
    for quoted in ('"' + name.replace('"', '""') + '"',)
)
HOSTILE_QUERY = f'SELECT {NAMED}, y AS "%y\' ", id FROM points'
WIDE = ", ".join(f"a + {k} AS c{k}" for k in range(1599))
#: Arguments of `create_dataset` by name.
DATASETS: dict[str, dict[str, Any]] = {
    "prices": {"query": "SELECT a, b, price FROM points", "label": "price", "partitions": 2},
    "levels": {
        "query": "SELECT a, color, v, level FROM points",
        "label": "level",
        "partitions": 2,
    },
    "pictures": {
        "query": "SELECT picture, y FROM points",
        "partitions": 1,
        "options": {"shape": [1, 4, 4]},
    },
    "names": {"query": HOSTILE_QUERY, "label": "%y' ", "partitions": 1, "validation": 0.0},
    "wide": {"query": f"SELECT {WIDE}, y FROM points", "partitions": 1, "validation": 0.0},
    "tiny": {"query": "SELECT a, y FROM points WHERE id <= 6", "partitions": 6, "validation": 0.0},
    "both": {"query": "SELECT y AS a, y FROM points", "partitions": 1},
}
#: Arguments of `create_run` by name.
RUNS: dict[str, dict[str, Any]] = {
    "prices": {
        "dataset": "prices",
        "architecture": "linear",
        "search": {"space": {"lr": [0.05, 0.0001], "loss": ["mse", "huber"], "batch_size": [8]}},
        "epochs": 8,
    },
    "levels": {
        "dataset": "levels",
        "architecture": "mlp",
        "search": {"space": {"lr": [0.02], "batch_size": [8]}},
        "epochs": 6,
    },
    "cnn": {"dataset": "pictures", "architecture": "cnn(width=2)"},
    "resnet": {"dataset": "pictures", "architecture": "resnet(width=2)"},
    "names": {"dataset": "names", "architecture": "linear"},
    "wide": {"dataset": "wide", "architecture": "linear"},
    "tiny": {"dataset": "tiny", "architecture": "linear"},
    "norm": {"dataset": "tiny", "architecture": "mlp(batch_norm=true)"},
    "both": {"dataset": "both", "architecture": "linear"},
}


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """Return a database with the table of points."""
    folder = tmp_path_factory.mktemp("shapes")
    url = f"duckdb:///{folder}/mmdb.duckdb"
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.create_database("mmdb_shapes", request.getfixturevalue("template"))
    with mmdb.connect(url) as database:
        fill(database)
        yield database
    if request.param == "postgres":
        cluster.drop_database("mmdb_shapes")


@pytest.fixture(scope="module")
def outcomes(db: Database) -> dict[str, Any]:
    """Train RUNS on DATASETS; return what became of each."""
    for name, asked in DATASETS.items():
        db.create_dataset(name, **asked)
    for name, asked in RUNS.items():
        db.create_run(name, **asked)
    return train_all(db, list(RUNS), workers=1)


def test_a_regression_is_trained_ranked_and_predicted(
    db: Database, outcomes: dict[str, Any]
) -> None:
    assert outcomes["prices"].failed == 0
    run = db.run("prices")
    ranked = [row["rmse"] for row in run.leaderboard()]
    assert len(ranked) == 4 and ranked == sorted(ranked) and ranked[0] < 0.5
    assert {row["accuracy"] for row in run.leaderboard()} == {None}
    assert db.predict("prices", {"a": 2.0, "b": 1.0}) == pytest.approx([5.0], abs=1.0)
    found = db.evaluate("prices", "prices")
    assert found["rmse"] == pytest.approx(ranked[0], rel=1e-5) and found["mae"] <= found["rmse"]
    rows = db.predict_query("prices", "SELECT id, a, b FROM points")
    assert len(rows) == 240 and {row["probability"] for row in rows} == {None}


def test_text_labels_and_categories_go_in_and_come_out_as_text(
    db: Database, outcomes: dict[str, Any]
) -> None:
    assert outcomes["levels"].failed == 0
    high, low = db.predict("levels", {"a": 3, "color": "grün", "v": [1, 2]})
    assert high + low == pytest.approx(1) and high > 0.8
    order = db.predict("levels", [3, "grün", 1, 2])
    assert order == pytest.approx([high, low])
    rows = db.predict_query("levels", "SELECT id, a, color, v, level FROM points")
    assert {row["prediction"] for row in rows} == {"high", "low"}
    unseen = db.predict("levels", {"a": 3, "color": "pink", "v": [1, 2]})
    assert sum(unseen) == pytest.approx(1)
    assert unseen == pytest.approx(db.predict("levels", {"a": 3, "color": None, "v": [1, 2]}))


@pytest.mark.parametrize("name", ["cnn", "resnet"])
def test_bytes_are_pictures_for_a_convolution(
    db: Database, outcomes: dict[str, Any], name: str
) -> None:
    assert outcomes[name].failed == 0
    by_text = db.predict(name, {"picture": "00" * 15 + "ff"})
    assert by_text == pytest.approx(db.predict(name, [0.0] * 15 + [1.0]))
    assert sum(by_text) == pytest.approx(1)


def test_columns_may_have_any_name(db: Database, outcomes: dict[str, Any]) -> None:
    assert outcomes["names"].failed == 0
    mark = "%(q)s::text" if db.connection.engine == "postgres" else "$q"
    percent = "%%" if db.connection.engine == "postgres" else "%"
    (row,) = db.sql(
        f"SELECT * FROM mmdb.create_dataset('sql', {mark}, label => '{percent}y'' ', "
        "partitions => 1, validation => 0)",
        {"q": HOSTILE_QUERY},
    )
    (made,) = db.sql("SELECT content_hash FROM mmdb.dataset WHERE name = 'names'")
    assert row["content_hash"] == bytes(made["content_hash"]).hex()
    given = {name: float(k) for k, name in enumerate(HOSTILE)} | {"id": 1}
    assert sum(db.predict("names", given)) == pytest.approx(1)
    with pytest.raises(errors.InvalidInput, match="DROP TABLE"):
        db.predict("names", {name: value for name, value in given.items() if "DROP" not in name})
    rows = db.predict_query("names", HOSTILE_QUERY)
    assert len(rows) == 240
    assert db.sql("SELECT count(*) AS n FROM points") == [{"n": 240}]


def test_a_table_of_1600_columns_is_trained_on(db: Database, outcomes: dict[str, Any]) -> None:
    assert outcomes["wide"].failed == 0
    assert len(db.predict("wide", {f"c{k}": 0.5 for k in range(1599)})) == 2


def test_partitions_of_one_row_without_validation_are_trained_on(
    db: Database, outcomes: dict[str, Any]
) -> None:
    assert outcomes["tiny"].hops == 6
    assert math.isfinite(sum(db.predict("tiny", [1.0])))
    assert isinstance(outcomes["norm"], errors.RunFailed)
    assert "more than 1 value" in db.run("norm").leaderboard()[0]["error"]


def test_a_label_may_be_a_feature_too(db: Database, outcomes: dict[str, Any]) -> None:
    assert outcomes["both"].failed == 0
    assert len(db.predict("both", {"a": 1})) == 2
