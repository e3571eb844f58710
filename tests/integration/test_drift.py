"""Drift of labels, of their relation to inputs, and of metrics; and what is kept of each call."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import mmdb
from tests.cluster import Cluster
from tests.integration.test_strategies import train_all

NAME = "mmdb_drift"
ROWS = 3000
MODELS = ("buys", "spent", "bare")
FRESH = "SELECT * FROM visit WHERE id > 1500"


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[mmdb.Database]:
    """Yield an open database with models of a class, of a number, and one without held-out rows."""
    if request.param == "postgres":
        url = cluster.create_database(NAME, request.getfixturevalue("template"))
    else:
        url = f"duckdb:///{Path(tmp_path_factory.mktemp(NAME)) / 'mmdb.duckdb'}"
    with mmdb.connect(url) as found:
        found.sql(
            "CREATE TABLE visit AS SELECT i AS id, a, b, n, CAST(1 + i % 3 AS double precision) w,"
            " CASE WHEN a + b + n / 4 > 0 THEN 'yes' ELSE 'no' END AS buys, a + b + n AS spent"
            " FROM (SELECT i, i * 37 % 101 / 50.0 - 1 AS a, i * 53 % 97 / 48.0 - 1 AS b,"
            f" i * 71 % 89 / 88.0 - 0.5 AS n FROM generate_series(1, {ROWS}) AS g (i)) AS q"
        )
        learned = "FROM visit WHERE id <= 1500"
        found.create_dataset("buys", f"SELECT a, b, buys {learned}", label="buys")
        found.create_dataset(
            "spent", f"SELECT a, b, w, spent {learned}", label="spent",
            options={"roles": {"w": "weight"}},
        )  # fmt: skip
        found.create_dataset("bare", f"SELECT a, b, buys {learned}", label="buys", validation=0)
        for name in MODELS:
            found.create_run(
                name, dataset=name, architecture="linear", epochs=12, seed=1, search=_SPACE
            )
        train_all(found, list(MODELS), workers=1)
        yield found
    if request.param == "postgres":
        cluster.drop_database(NAME)


_SPACE = {"space": {"lr": [0.05], "batch_size": [32]}}


def _said(rows: list[Any]) -> dict[tuple[str, str], Any]:
    return {(row["column_name"], row["role"]): row for row in rows}


def test_rows_that_are_as_before_have_not_drifted(db: mmdb.Database) -> None:
    for model, count in (("buys", 6), ("spent", 6)):
        rows = db.drift(model, FRESH)
        assert len(rows) == count and not any(row["drifted"] for row in rows), (model, rows)
    found = _said(db.drift("buys", FRESH))["accuracy", "metric"]
    assert found["value_before"] == db.evaluate("buys", "buys")["accuracy"]
    assert found["value_now"] == db.evaluate("buys", FRESH)["accuracy"]
    assert found["psi"] is None and found["nulls_now"] is None
    found = _said(db.drift("spent", FRESH))["rmse", "metric"]  # by the rows' weights
    assert found["value_now"] == pytest.approx(db.evaluate("spent", FRESH)["rmse"])
    bare = _said(db.drift("spent", "SELECT a, b, spent FROM visit WHERE id > 1500"))
    assert bare["rmse", "metric"]["value_before"] != found["value_before"]


@pytest.mark.parametrize(
    ("model", "columns"),
    [
        ("buys", "a, b, CASE WHEN a - b + n / 4 > 0 THEN 'yes' ELSE 'no' END AS buys"),
        ("spent", "a, b, w, a - b + n AS spent"),
    ],
)
def test_a_label_that_hangs_on_inputs_otherwise_is_found(
    db: mmdb.Database, model: str, columns: str
) -> None:
    found = _said(db.drift(model, FRESH.replace("*", columns)))
    drifted = {key for key, row in found.items() if row["drifted"]}
    assert {role for _, role in drifted} == {"relation", "metric"}
    assert found[model, "relation"]["distance"] > 0.1
    (again,) = db.sql(
        "SELECT count(DISTINCT role) AS n FROM mmdb.drift_overview AS o WHERE drifted AND"
        f" model = '{model}' AND checked_at = (SELECT max(checked_at) FROM mmdb.drift_overview)"
    )
    assert again["n"] == 2


def test_labels_that_are_not_known_or_new_are_no_error(db: mmdb.Database) -> None:
    late = "CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN 'later' ELSE buys END AS buys"
    found = _said(db.drift("buys", FRESH.replace("*", f"a, b, {late}")))
    assert found["buys", "label"]["drifted"] and not found["buys", "relation"]["drifted"]
    assert found["buys", "label"]["unseen"] == pytest.approx(1 / 3, abs=0.01)
    for model, labels in (("buys", "NULL::text AS buys"), ("spent", "w, NULL::float AS spent")):
        found = _said(db.drift(model, FRESH.replace("*", f"a, b, {labels}")))
        assert not any(row["drifted"] for row in found.values())
        assert not any(role == "metric" for _, role in found)
    found = _said(db.drift("bare", FRESH))  # which holds no rows to compare labels with
    assert {role for _, role in found} == {"feature", "prediction"}


def test_of_outputs_that_are_nan_no_class_is_predicted_and_no_metric_is_known(
    db: mmdb.Database,
) -> None:
    module = db.recover("buys")
    for parameter in module.parameters():
        parameter.data.fill_(math.nan)
    db.save("buys_nan", module, parent="buys", dataset="buys")
    found = _said(db.drift("buys_nan", FRESH))
    assert ("accuracy", "metric") not in found
    prediction = found["buys", "prediction"]
    assert prediction["nulls_before"] == prediction["nulls_now"] == 1


@pytest.mark.parametrize("metric", ["f1", "balanced_accuracy"])
def test_a_class_that_one_side_lacks_is_no_drift_of_a_mean(db: mmdb.Database, metric: str) -> None:
    query = (
        "SELECT id, a, b, CASE WHEN n > 0.48 THEN 'rare' ELSE buys END AS y,"
        " CASE WHEN id % 4 = 0 AND n <= 0.48 THEN 'validation' ELSE 'train' END AS part FROM visit"
    )
    options = {"roles": {"id": "key"}, "split": {"by": "column", "column": "part"}}
    db.create_dataset(metric, query, label="y", options=options)
    run = db.create_run(
        metric, dataset=metric, architecture="linear", search=_SPACE,
        epochs=12, options={"metric": metric},
    )  # fmt: skip
    run.train(workers=1)
    assert db.evaluate(metric, query)[metric] < 0.7  # of three classes, one of them never guessed
    row = _said(db.drift(metric, query))[metric, "metric"]
    assert row["value_before"] == db.evaluate(metric, metric)[metric]
    assert row["value_now"] > 0.9 and not row["drifted"]
    other = query.replace("THEN 'rare'", "THEN 'yes' WHEN b > 0 THEN 'no'")
    row = _said(db.drift(metric, other))[metric, "metric"]
    assert row["value_now"] < 0.8 and row["drifted"]


def test_calls_are_kept_with_their_answers(db: mmdb.Database) -> None:
    moved = FRESH.replace("*", "a + 1 AS a, b, buys")
    answers = [db.drift("buys", query) for query in (FRESH, moved, moved)]
    shown = db.sql(
        "SELECT * FROM mmdb.drift_overview WHERE model = 'buys' ORDER BY checked_at, ordinal"
    )[-18:]
    assert [{name: row[name] for name in answers[0][0]} for row in shown] == [
        dict(row) for rows in answers for row in rows
    ]
    assert {row["row_count"] for row in shown} == {1500} and {r["version"] for r in shown} == {1}
    first, second, third = (
        next(row for row in shown[at : at + 6] if row["column_name"] == "a") for at in (0, 6, 12)
    )
    assert first["drifted_since"] is None
    assert second["drifted_since"] == third["drifted_since"] == second["checked_at"]
    for row in shown:
        assert (row["drifted_since"] is None) == (not row["drifted"])


def test_the_last_hundred_calls_of_a_model_are_kept(db: mmdb.Database) -> None:
    db.drift("spent", FRESH)
    copied = (
        "SELECT model_id, checked_at - k * INTERVAL '1 day', ordinal, column_name, role, row_count,"
        " p_value, drifted FROM mmdb.drift_check, generate_series(1, 120) AS g (k)"
        " WHERE checked_at = (SELECT max(checked_at) FROM mmdb.drift_check)"
    )
    names = "model_id, checked_at, ordinal, column_name, role, row_count, p_value, drifted"
    db.sql(f"INSERT INTO mmdb.drift_check ({names}) {copied}")
    others = db.sql("SELECT count(*) AS n FROM mmdb.drift_overview WHERE model <> 'spent'")
    db.drift("spent", FRESH)
    kept = "SELECT count(DISTINCT checked_at) AS n FROM mmdb.drift_overview WHERE model = 'spent'"
    assert db.sql(kept) == [{"n": 100}]
    assert db.sql("SELECT count(*) AS n FROM mmdb.drift_overview WHERE model <> 'spent'") == others


def test_a_transaction_that_may_not_write_has_the_answer(
    db: mmdb.Database, cluster: Cluster
) -> None:
    if db.connection.engine == "duckdb":
        return  # it has none
    before = db.sql("SELECT count(*) AS n FROM mmdb.drift_check")
    with psycopg.connect(cluster.url(NAME)) as session:
        session.execute("SET TRANSACTION READ ONLY")
        rows = session.execute("SELECT * FROM mmdb.drift('buys', %s)", [FRESH]).fetchall()
    assert len(rows) == 6 and db.sql("SELECT count(*) AS n FROM mmdb.drift_check") == before


def test_a_statement_retrains_a_model_that_has_drifted_and_no_other(db: mmdb.Database) -> None:
    db.sql("CREATE TABLE learned AS SELECT * FROM visit WHERE id <= 1500")
    db.create_dataset("days", "SELECT id, a, b, buys FROM learned", label="buys", options=_KEY)
    db.create_run("day", dataset="days", architecture="linear", epochs=2, search=_SPACE)
    train_all(db, ["day"], workers=1)
    db.sql(
        "INSERT INTO learned SELECT id, a, b, n, w,"
        " CASE WHEN a > b THEN 'yes' ELSE 'no' END, spent FROM visit WHERE id > 1500"
    )
    asked = "FROM mmdb.drift('day', 'SELECT * FROM learned WHERE id {}') WHERE drifted"
    for where, wanted in (("<= 1500", []), ("> 1500", [{"model": "day@1"}])):
        if db.connection.engine == "duckdb":
            drifted = f"EXISTS (SELECT 1 {asked.format(where)})"
            statement = f"SELECT mmdb.retrain('day', workers => 1) WHERE {drifted}"
        else:
            statement = (
                "SELECT mmdb.submit(b.run) FROM"
                f" (SELECT 'day' AS model {asked.format(where)} LIMIT 1) AS d,"
                " mmdb.begin_retraining(d.model) AS b WHERE b.run IS NOT NULL"
            )
        name = f"drift-{len(wanted)}"
        db.schedule(name, statement, every="1 day")
        assert [(run["schedule"], run["message"]) for run in db.run_due()] == [(name, None)]
        assert db.sql("SELECT model FROM mmdb.retraining_overview") == wanted
    if db.connection.engine == "postgres":
        ended = (
            "SELECT e.new_model FROM mmdb.retraining_overview AS r, mmdb.run_progress AS p,"
            " mmdb.end_retraining(r.run) AS e"
            " WHERE r.run = p.run AND r.ended_at IS NULL AND p.status = 'finished'"
        )
        assert db.sql(ended) == []
        train_all(db, [row["run"] for row in db.sql("SELECT run FROM mmdb.retraining_overview")])
        assert db.sql(ended) == [{"new_model": "day@2"}]
    assert db.sql("SELECT new_model FROM mmdb.retraining_overview") == [{"new_model": "day@2"}]


_KEY = {"roles": {"id": "key"}}
