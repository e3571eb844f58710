"""Models meet rows of other datasets and queries: columns by name, values by value."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import mmdb
from mmdb import errors
from mmdb.data.dataset import find_dataset

#: How far `a` decides, and how far each color.
TABLE = """
CREATE TABLE things AS
SELECT
    i AS id, (i % 7 - 3)::real AS a, (i % 5)::real AS b,
    CASE i % 3 WHEN 0 THEN 'red' WHEN 1 THEN 'grün' ELSE 'blue' END AS color,
    CASE WHEN i % 7 > 2 THEN 'high' ELSE 'low' END AS level,
    (i % 7 > 2) AS yes, (i % 7 > 2)::integer AS y
FROM generate_series(1, 210) AS g (i)
"""


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    """Return a database with the table of things."""
    with mmdb.connect(database_url) as opened:
        opened.sql(TABLE)
        yield opened


def save(db: mmdb.Database, query: str, label: str = "y", weights: dict[str, float] | None = None,
         name: str = "m") -> None:  # fmt: skip
    """Make a dataset and a linear model of it, of whose second class some columns speak."""
    db.create_dataset(name, query, label=label, validation=0, partitions=2)
    decoding = find_dataset(db.connection, name).decoding
    (given,) = decoding.inputs
    module = nn.Linear(given.shape[0], 2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        for column, span in decoding.spans(given):
            for place, value in enumerate(column.categories or [None]):
                key = column.name if value is None else f"{column.name}={value}"
                module.weight[1, span.start + place] = (weights or {"a": 1.0}).get(key, 0.0)
        module.bias[0] = 0.5 if weights is None else 0.0
    db.save(name, nn.Sequential(module), dataset=name)


def test_a_model_is_measured_on_columns_in_any_order(db: mmdb.Database) -> None:
    save(db, "SELECT a, b, y FROM things", weights={"a": 1.0, "b": 0.1})
    db.create_dataset("ba", "SELECT y, b, a FROM things", validation=0, partitions=3)
    assert db.evaluate("m", "m")["accuracy"] > 0.8
    assert db.evaluate("m", "ba") == pytest.approx(db.evaluate("m", "m"))


def test_categories_and_classes_are_matched_by_value(db: mmdb.Database) -> None:
    weights = {"a": -1.0, "color=blue": -2.0, "color=red": 1.0, "color=grün": 2.0}
    save(db, "SELECT color, a, level FROM things", "level", weights)
    query = "SELECT a, color, level FROM things WHERE color <> 'blue'"
    db.create_dataset("fewer", query, label="level", validation=0, partitions=1)
    rows = db.predict_query("m", f"SELECT id, a, color FROM ({query.replace('a,', 'id, a,')}) AS q")
    truth = {str(r["id"]): r["level"] for r in db.sql("SELECT id, level FROM things")}
    right = sum(truth[row["key"]] == row["prediction"] for row in rows) / len(rows)
    assert 0.4 < right < 0.95
    assert db.evaluate("m", "fewer")["accuracy"] == pytest.approx(right)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT a, level FROM things", "'color' is missing"),
        ("SELECT a, color, b, level FROM things", "'b' is additional"),
        ("SELECT a::text AS a, color, level FROM things", "'a' is a text"),
        ("SELECT ARRAY[a] AS a, color, level FROM things", "'a' is 1 numbers"),
        ("SELECT a, color, level AS grade FROM things", "'level' is missing"),
        ("SELECT a, replace(color, 'red', 'pink') AS color, level FROM things", "'pink'"),
        ("SELECT a, color, replace(level, 'low', 'none') AS level FROM things", "'none'"),
        ("SELECT a, color, yes AS level FROM things", "true|false"),
        ("SELECT a, color, b AS level FROM things", "'level' is a number to predict"),
    ],
)
def test_what_does_not_fit_is_named(db: mmdb.Database, query: str, named: str) -> None:
    save(db, "SELECT color, a, level FROM things", "level")
    label = "grade" if "grade" in query else "level"
    db.create_dataset("other", query, label=label, validation=0, partitions=1)
    with pytest.raises(errors.InvalidInput, match=named) as found:
        db.evaluate("m", "other")
    assert "number per feature" not in str(found.value)


def test_what_the_measured_rows_do_not_hold_does_not_matter(db: mmdb.Database) -> None:
    save(db, "SELECT color, a, level FROM things", "level", {"a": -1.0})
    more = "SELECT color, a, level FROM things UNION ALL SELECT 'pink', 100::real, 'none'"
    db.create_dataset("trained", more, label="level", seed=0)
    db.create_dataset("held_out", more, label="level", seed=3)
    assert db.evaluate("m", "trained")["accuracy"] > 0.8
    with pytest.raises(errors.InvalidInput, match="'none'"):
        db.evaluate("m", "held_out")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"accuracy"}),
        ({"metric": "auc", "metrics": ["log_loss", {"name": "top_k", "k": 1, "as": "first"}]},
         {"accuracy", "auc", "log_loss", "first"}),
        ({"metric": "loss", "metrics": ["f1"]}, {"accuracy", "f1", "loss"}),
    ],
)  # fmt: skip
def test_a_model_is_measured_as_its_run_was(
    db: mmdb.Database, options: dict[str, object], expected: set[str]
) -> None:
    db.create_dataset("d", "SELECT a, b, color, level FROM things", label="level", partitions=2)
    search = {"space": {"lr": [0.05], "class_weights": ["balanced"]}}
    run = db.create_run(
        "r", dataset="d", architecture="mlp(hidden=[4])", search=search, epochs=2, options=options
    )
    assert run.train(workers=1).failed == 0
    found = db.evaluate("r", "d")
    assert set(found) == expected
    (recorded,) = db.sql("SELECT validation_loss, metrics FROM mmdb.candidate_overview")
    metrics = recorded["metrics"]
    metrics = json.loads(metrics) if isinstance(metrics, str) else metrics
    loss = {"loss": recorded["validation_loss"]} if "loss" in expected else {}
    assert found == loss | metrics
    db.create_dataset("again", "SELECT level, color, b, a FROM things", label="level", seed=5)
    assert set(db.evaluate("r", "again")) == expected
