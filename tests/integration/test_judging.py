"""Models judged in SQL: evaluate, comparisons and curves say of rows what scikit-learn says."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from sklearn.calibration import calibration_curve

import mmdb
from mmdb import errors
from mmdb.data.dataset import find_dataset
from mmdb.graph.factories import linear
from mmdb.store.models.model_rows import find_model_id, model_of
from mmdb.train.replay.recipe_replay import recover_epochs
from tests.cluster import Cluster
from tests.integration.test_strategies import train_all

ASKED = "SELECT * FROM visit WHERE id > 200"


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[mmdb.Database]:
    """Yield an open database with models of two classes, of three, and of a number."""
    name = "judging"
    if request.param == "postgres":
        url = cluster.create_database(name, request.getfixturevalue("template"))
    else:
        url = f"duckdb:///{Path(tmp_path_factory.mktemp(name)) / 'mmdb.duckdb'}"
    with mmdb.connect(url) as found:
        _fill(found)
        yield found
    if request.param == "postgres":
        cluster.drop_database(name)


def _fill(db: mmdb.Database) -> None:
    random = np.random.default_rng(0)
    rows = 600
    x = np.round(random.normal(size=(rows, 3)), 2)
    noise = random.normal(size=(rows, 2))
    label = x[:, 0] + x[:, 1] + noise[:, 0] > 0
    color = np.array(["blue", "green", "red"])[
        np.clip(np.floor(x[:, 0] + 1.5 + noise[:, 1] / 2), 0, 2).astype(int)
    ]
    places = ("'north'", "'south'", "'north'", "'south'", "NULL")
    values = ", ".join(
        f"({k + 1}, {a}, {b}, {c}, {'true' if y else 'false'}, '{name}', {2 * a - b + n:.3f},"
        f" {places[k % 5]}, {k % 4 + 1})"
        for k, ((a, b, c), y, name, n) in enumerate(zip(x, label, color, noise[:, 0], strict=True))
    )
    db.sql(
        "CREATE TABLE visit (id integer, a double precision, b double precision,"
        " c double precision, late boolean, color text, delay double precision, place text,"
        " many integer)"
    )
    db.sql(f"INSERT INTO visit VALUES {values}")
    for name, y in (("late", "late"), ("color", "color"), ("delay", "delay")):
        db.create_dataset(name, f"SELECT a, b, c, {y} FROM visit WHERE id <= 200", label=y)
        db.create_run(name, dataset=name, architecture="linear", epochs=8, seed=1, search=_SPACE)
    train_all(db, ["late", "color", "delay"], workers=1)


_SPACE = {"space": {"lr": [0.05], "batch_size": [32]}}


def _asked(
    db: mmdb.Database, model: str, label: str | None = None
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return probabilities and labels of the rows of ASKED, in their order, and the classes."""
    label = label or model
    rows = db.predict_query(model, ASKED, key="id", probabilities=True)
    rows.sort(key=lambda row: int(row["key"]))
    chances = [json.loads(row["probabilities"]) for row in rows]
    classes = sorted(chances[0])  # false before true
    truth = db.sql(f"SELECT {label} AS y FROM ({ASKED}) AS q ORDER BY id")
    y = [classes.index(str(r["y"]).lower() if label == "late" else r["y"]) for r in truth]
    return np.array([[row[name] for name in classes] for row in chances]), np.array(y), classes


def test_metrics_of_a_query_are_those_of_scikit_learn(db: mmdb.Database) -> None:
    chances, y, _ = _asked(db, "late")
    found = db.evaluate("late", ASKED, metrics=["auc", "accuracy", "brier", "average_precision"])
    assert found["auc"] == pytest.approx(sk.roc_auc_score(y, chances[:, 1]), abs=1e-9)
    assert found["accuracy"] == pytest.approx(np.mean(chances.argmax(1) == y), abs=1e-12)
    assert found["brier"] == pytest.approx(sk.brier_score_loss(y, chances[:, 1]), abs=1e-6)
    wanted = sk.average_precision_score(y, chances[:, 1])
    assert found["average_precision"] == pytest.approx(wanted, abs=1e-9)


def test_rows_are_told_apart_by_a_column_and_intervals_hold_the_value(db: mmdb.Database) -> None:
    found = db.evaluate("color", ASKED, by="place", intervals=True, metrics=["accuracy"])
    assert [row["by_name"] for row in found.rows] == [None, "place", "place", "place"]
    assert [row["by_value"] for row in found.rows] == [None, "north", "south", None]
    assert [row["row_count"] for row in found.rows] == [400, 160, 160, 80]
    parts = sum(row["value"] * row["row_count"] for row in found.rows[1:])
    assert parts / 400 == pytest.approx(found["accuracy"], abs=1e-12)
    for row in found.rows:
        assert row["low"] < row["value"] < row["high"]
        half = 1.96 * np.sqrt(row["value"] * (1 - row["value"]) / row["row_count"])
        assert row["high"] - row["low"] == pytest.approx(2 * half, rel=0.25)


def test_what_was_measured_is_kept_with_what_it_read(db: mmdb.Database) -> None:
    before = db.sql("SELECT coalesce(max(evaluation_id), 0) AS last FROM mmdb.evaluation")
    db.evaluate("delay", ASKED, by="place")
    db.evaluate("delay", "delay")
    rows = db.sql(
        "SELECT model, version, dataset, slice, query, metric, by_name, by_value, row_count, value"
        f" FROM mmdb.evaluation_overview WHERE evaluation_id > {before[0]['last']}"
        " ORDER BY evaluation_id, ordinal"
    )
    assert {row["metric"] for row in rows} == {"rmse", "mae"}
    assert [row["by_value"] for row in rows if row["metric"] == "rmse"] == [
        *(None, "north", "south", None),
        None,
    ]
    assert rows[0]["query"] == ASKED
    assert {row["by_name"] for row in rows if row["by_value"]} == {"place"}
    assert rows[-1]["dataset"] == "delay" and rows[-1]["slice"] == "validation"
    read = db.sql("SELECT DISTINCT column_name AS c FROM mmdb.evaluation_source")
    assert {row["c"] for row in read} >= {"a", "b", "c", "delay", "place"}
    assert {row["c"] for row in read}.isdisjoint({"many"})


def test_one_metric_needs_no_list(db: mmdb.Database) -> None:
    found = db.evaluate("late", ASKED, metrics=["auc"])
    assert db.evaluate("late", ASKED, metrics="auc") == found
    assert db.evaluate("late", ASKED, metrics={"name": "auc"}) == found
    assert db.compare_models("late", "late", ASKED, metrics="auc")[0]["metric"] == "auc"


def test_a_dataset_gives_what_its_query_gives(db: mmdb.Database) -> None:
    for name in ("late", "color", "delay"):
        query = f"SELECT a, b, c, {name} FROM visit WHERE id > 200"
        db.create_dataset(f"asked_{name}", query, label=name, validation=0.0)
        whole = db.evaluate(name, f"asked_{name}")
        assert whole == pytest.approx(db.evaluate(name, ASKED), abs=1e-6)
        db.drop_dataset(f"asked_{name}")


def test_curves_are_those_of_scikit_learn(db: mmdb.Database) -> None:
    chances, y, _ = _asked(db, "late")
    rates = sk.roc_curve(y, chances[:, 1])
    rows = db.roc_curve("late", ASKED)
    assert len(rows) == len(rates[0])
    for name, wanted in zip(
        ("false_positive_rate", "true_positive_rate", "threshold"), rates, strict=True
    ):
        np.testing.assert_allclose([row[name] for row in rows], wanted, atol=1e-7)
    precision, recall, at = sk.precision_recall_curve(y, chances[:, 1])
    rows = db.precision_recall("late", ASKED)
    for name, wanted in (("precision", precision[:-1]), ("recall", recall[:-1]), ("threshold", at)):
        np.testing.assert_allclose([row[name] for row in rows[::-1]], wanted, atol=1e-7)
    share, score = calibration_curve(y, chances[:, 1], n_bins=8)
    rows = db.calibration("late", ASKED, bins=8)
    np.testing.assert_allclose([row["share"] for row in rows], share, atol=1e-9)
    np.testing.assert_allclose([row["score"] for row in rows], score, atol=1e-6)
    assert sum(row["row_count"] for row in rows) == 400


def test_a_class_of_several_has_a_curve_of_its_own(db: mmdb.Database) -> None:
    chances, y, classes = _asked(db, "color")
    rows = db.roc_curve("color", ASKED, "red")
    area = np.trapezoid(
        [row["true_positive_rate"] for row in rows], [row["false_positive_rate"] for row in rows]
    )
    k = classes.index("red")
    assert area == pytest.approx(sk.roc_auc_score(y == k, chances[:, k]), abs=1e-9)
    with pytest.raises(errors.InvalidOption, match="No class is named"):
        db.roc_curve("color", ASKED)
    with pytest.raises(errors.InvalidOption, match="no class 'pink'"):
        db.roc_curve("color", ASKED, "pink")


def test_the_confusion_matrix_is_scikit_learns(db: mmdb.Database) -> None:
    chances, y, classes = _asked(db, "color")
    rows = db.confusion_matrix("color", ASKED)
    wanted = sk.confusion_matrix(y, chances.argmax(1))
    assert [row["rows"] for row in rows] == wanted.flatten().tolist()
    assert [(row["label"], row["prediction"]) for row in rows[:3]] == [("blue", c) for c in classes]
    assert sum(row["share"] for row in rows) == pytest.approx(3)


@pytest.mark.parametrize(
    "goal",
    [{"recall": 0.9}, {"precision": 0.8}, {"cost": {"false_positive": 1, "false_negative": 4}}],
)
def test_a_threshold_is_the_best_for_its_goal(db: mmdb.Database, goal: dict[str, Any]) -> None:
    chances, y, _ = _asked(db, "late")
    row = db.threshold("late", ASKED, goal)
    outcomes = []
    for at in np.unique(chances[:, 1]):
        guess = chances[:, 1] >= at
        hits, recall = (y[guess] == 1).sum(), (y[guess] == 1).sum() / (y == 1).sum()
        cost = ((guess & (y == 0)).sum() + 4 * (~guess & (y == 1)).sum()) / len(y)
        outcomes.append((hits / guess.sum(), recall, cost))
    if "recall" in goal:
        assert row["precision"] == pytest.approx(max(p for p, r, _ in outcomes if r >= 0.9))
    elif "precision" in goal:
        assert row["recall"] == pytest.approx(max(r for p, r, _ in outcomes if p >= 0.8))
    else:
        assert row["cost"] == pytest.approx(min(cost for *_, cost in outcomes))


def test_residuals_are_what_is_left(db: mmdb.Database) -> None:
    rows = {row["row_key"]: row for row in db.residuals("delay", ASKED, key="id")}
    truth = {str(r["id"]): r["delay"] for r in db.sql(ASKED)}
    guesses = {r["key"]: float(r["prediction"]) for r in db.predict_query("delay", ASKED, key="id")}
    assert rows.keys() == truth.keys()
    for key, row in rows.items():
        assert row["label"] == pytest.approx(truth[key])
        assert row["prediction"] == pytest.approx(guesses[key], abs=1e-5)
        assert row["residual"] == pytest.approx(row["label"] - row["prediction"])


def test_a_model_is_not_better_than_itself_and_better_than_a_bad_one(db: mmdb.Database) -> None:
    (same,) = db.compare_models("late", "late", ASKED)
    assert (same["difference"], same["better"]) == (0, None)
    torch.manual_seed(3)
    db.save("poor", linear((3,), 2), architecture="linear", dataset="late")
    rows = db.compare_models("poor", "late", ASKED, metrics=["accuracy", "log_loss"])
    assert [row["better"] for row in rows] == ["late", "late"]
    for row in rows:
        assert row["low"] <= row["difference"] <= row["high"]
        assert row["p_value"] < 0.05
    with pytest.raises(errors.InvalidInput, match="do not predict the same"):
        db.compare_models("late", "color", ASKED)


def test_rows_are_compared_pair_by_pair_whatever_their_order(db: mmdb.Database) -> None:
    query = "SELECT a, b, c, late FROM visit WHERE id > 200 ORDER BY random()"
    (shuffled,) = db.compare_models("poor", "late", query)
    (plain,) = db.compare_models("poor", "late", "SELECT a, b, c, late FROM visit WHERE id > 200")
    assert shuffled == plain
    (named,) = db.compare_models("poor", "late", query.replace(" late", " late, 1 AS q"))
    for key in ("a_value", "b_value", "difference", "p_value", "better"):
        assert named[key] == plain[key]  # a column named as an alias is one of the row's
    with pytest.raises(errors.InvalidInput, match="other rows each time"):
        db.compare_models("poor", "late", "SELECT random() AS a, b, c, late FROM visit")


def test_models_of_several_labels_at_once_are_compared(db: mmdb.Database) -> None:
    some = (
        "ARRAY[late::int, 1 - late::int, 1]"
        if db.connection.engine == "postgres"
        else ("[late::int, 1 - late::int, 1]")
    )
    query = f"SELECT a, b, c, {some} AS tags FROM visit"
    db.create_dataset("tags", query, label="tags", options={"task": "multilabel"})
    for name, seed in (("tags_1", 1), ("tags_2", 2)):
        torch.manual_seed(seed)
        db.save(name, linear((3,), 3), architecture="linear", dataset="tags")
    rows = db.compare_models("tags_1", "tags_2", query)
    assert {row["metric"] for row in rows} == {"f1_macro", "hamming"}
    assert rows[0]["a_value"] == db.evaluate("tags_1", query)["f1_macro"]
    for label in ("2 * late::int", "late::int - 1", "'NaN'::real"):
        other = query.replace("1 - late::int", label)
        for call in (db.evaluate, db.drift):
            with pytest.raises(errors.InvalidOption, match="several labels are each 0 or 1"):
                call("tags_1", other)


def test_names_are_told_apart_as_the_engine_does(db: mmdb.Database) -> None:
    def by(name: str, query: str = ASKED) -> list[Any]:
        rows = db.evaluate("color", query, by=name, metrics=["accuracy"]).rows
        return [(row["by_value"], row["value"]) for row in rows]

    found, renamed = by("place"), ASKED.replace("*", 'a, b, c, color, place AS "Place"')
    assert by("Place", renamed) == found
    if db.connection.engine == "duckdb":
        assert by("PLACE") == by("place", renamed) == found
        return
    for query, name in ((ASKED, "PLACE"), (renamed, "place")):
        with pytest.raises(errors.UnknownColumn, match=f"no column '{name}'"):
            by(name, query)


def test_weights_and_labels_that_are_parts_count(db: mmdb.Database) -> None:
    query = "SELECT id, a, b, c, many AS weight, late AS label FROM visit"
    about = "ROW(many, late)::about"
    if db.connection.engine == "duckdb":
        about = "{'many': many, 'late': late}"
    else:
        db.sql("CREATE TYPE about AS (many integer, late boolean)")
    in_parts = f"SELECT id, a, b, c, {about} AS about FROM visit"
    found = []
    for name, asked, weight, label in (
        ("in_columns", query, "weight", "label"),
        ("in_parts", in_parts, "about.many", "about.late"),
    ):
        options = {"roles": {weight: "weight", "id": "key"}}
        db.create_dataset(name, asked, label=label, options=options)
        torch.manual_seed(4)
        db.save(name, linear((3,), 2), architecture="linear", dataset=name)
        rows = db.confusion_matrix(name, asked)
        drifted = db.drift(name, asked.replace("visit", "visit WHERE id % 3 > 0"))
        moved = sorted((row["role"], row["psi"]) for row in drifted)
        found.append((db.evaluate(name, asked)["accuracy"], sum(r["rows"] for r in rows), moved))
    assert found[0] == found[1]
    assert found[0][1] == db.sql("SELECT sum(many)::integer AS n FROM visit")[0]["n"]


def test_weights_of_the_query_count(db: mmdb.Database) -> None:
    query = "SELECT id, a, b, c, many, late FROM visit"
    roles = {"many": "weight", "id": "key"}
    db.create_dataset("weighed", query, label="late", options={"roles": roles})
    torch.manual_seed(4)
    db.save("weighed", linear((3,), 2), architecture="linear", dataset="weighed")
    rows = db.predict_query("weighed", query, key="id")
    about = {str(r["id"]): (str(r["late"]).lower(), r["many"]) for r in db.sql(query)}
    right = [(row["prediction"] == about[row["key"]][0], about[row["key"]][1]) for row in rows]
    wanted = sum(w for hit, w in right if hit) / sum(w for _, w in right)
    assert db.evaluate("weighed", query)["accuracy"] == pytest.approx(wanted, abs=1e-9)
    assert sum(r["rows"] for r in db.confusion_matrix("weighed", query)) == sum(w for _, w in right)
    bare = "SELECT id, a, b, c, late FROM visit"  # each row counts once
    wanted = sum(hit for hit, _ in right) / len(right)
    assert db.evaluate("weighed", bare)["accuracy"] == pytest.approx(wanted, abs=1e-9)
    assert sum(r["rows"] for r in db.confusion_matrix("weighed", bare)) == len(right)
    nothing = f"SELECT a, b, c, late, 0 AS many FROM ({query}) AS q"
    for ask in (db.evaluate, db.confusion_matrix):
        with pytest.raises(errors.InvalidInput, match="All of these rows weigh 0"):
            ask("weighed", nothing)
    assert db.roc_curve("weighed", bare) and db.importance("weighed", bare, repeats=1)
    assert db.compare_models("weighed", "late", bare)[0]["a_value"] == pytest.approx(wanted)
    # Rows that weigh 0 are as none: the class has no curve, and the accuracy is the others'.
    none = query.replace("many", "CASE WHEN late THEN 0 ELSE many END AS many")
    recall = db.evaluate("weighed", query.replace("visit", "visit WHERE NOT late"))["accuracy"]
    assert db.evaluate("weighed", none)["accuracy"] == pytest.approx(recall)
    with pytest.raises(errors.InvalidInput, match="positive class"):
        db.roc_curve("weighed", none)
    for weight, says in (
        ("-many", "holds the weight -"),
        ("'NaN'::float", r"many \(3 rows\)"),
        ("1e300", r"many \(3 rows\)"),
    ):
        wrong = query.replace("many", f"CASE WHEN id < 4 THEN {weight} ELSE many END AS many")
        for call in (db.evaluate, db.confusion_matrix, db.drift):
            with pytest.raises(errors.DataError, match=says):
                call("weighed", wrong)


def test_a_label_that_is_no_number_is_refused(db: mmdb.Database) -> None:
    query = ASKED.replace("*", "a, b, c, place, CASE id WHEN 201 THEN {} ELSE delay END AS delay")
    for value in ("'NaN'::float", "'Infinity'::float", "1e300"):
        asked = query.format(value)
        for call in (
            lambda q: db.evaluate("delay", q, by="place"),
            lambda q: db.compare_models("delay", "delay", q),
            lambda q: db.importance("delay", q),
        ):
            with pytest.raises(errors.NotFinite, match=r"delay \(1 rows\)"):
                call(asked)


@pytest.mark.parametrize("kind", ["double precision", "real", "numeric(9, 2)", "integer", "text"])
def test_a_class_is_known_whatever_number_it_is(db: mmdb.Database, kind: str) -> None:
    query = "SELECT a, b, c, CAST(CASE WHEN late THEN 2000000 ELSE 0 END AS {}) AS y FROM visit"
    known = query.format("double precision")
    if not db.sql("SELECT 1 FROM mmdb.dataset WHERE name = 'numbers'"):
        db.create_dataset("numbers", known, label="y", options={"task": "classification"})
        torch.manual_seed(4)
        db.save("numbers", linear((3,), 2), architecture="linear", dataset="numbers")
    asked = query.format(kind)
    assert db.evaluate("numbers", asked) == db.evaluate("numbers", known)
    rows = db.drift("numbers", asked)
    assert not any(row["drifted"] for row in rows) and "metric" in {row["role"] for row in rows}
    with pytest.raises(errors.InvalidInput, match=r"'y' has the value '0\.5") as refused:
        db.evaluate("numbers", "SELECT a, b, c, 0.5 AS y FROM visit")
    assert "it knows 0, 2000000" in str(refused.value.hint)


BAD = [
    ("SELECT a, b, c FROM visit", {}, errors.UnknownColumn, "'late'"),
    ("SELECT a, b, c, 'perhaps' AS late FROM visit", {}, errors.InvalidInput, "'perhaps'"),
    (f"{ASKED} AND id < 0", {}, errors.InvalidInput, "no rows"),
    (f"{ASKED} AND late", {"metrics": ["auc"]}, errors.InvalidInput, "defined"),
    (ASKED, {"metrics": ["rmse"]}, errors.InvalidOption, "no metric 'rmse'"),
    (ASKED, {"metrics": []}, errors.InvalidOption, "metrics"),
    (ASKED, {"by": "nowhere"}, errors.UnknownColumn, "'nowhere'"),
    (ASKED, {"slice": "test"}, errors.InvalidOption, "no slices"),
    ("late", {"by": "place"}, errors.InvalidOption, "without other columns"),
    ("late", {"slice": "test"}, errors.InvalidOption, "no slice"),
    ("nothing", {}, errors.DatasetNotFound, "nothing"),
    ("SELECT a, b, c, cast(NULL AS boolean) AS late FROM visit", {}, errors.NullValues, "'late'"),
    ("DELETE FROM visit", {}, errors.NotASelect, "SELECT"),
]


@pytest.mark.parametrize(("data", "options", "error", "says"), BAD, ids=[b[3] for b in BAD])
def test_what_cannot_be_judged_says_what_to_do(
    db: mmdb.Database, data: str, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    before = db.sql("SELECT count(*) AS n FROM mmdb.evaluation")
    with pytest.raises(error, match=says) as raised:
        db.evaluate("late", data, **options)
    assert getattr(raised.value, "hint", "")
    assert db.sql("SELECT count(*) AS n FROM mmdb.evaluation") == before


def test_of_a_model_that_predicts_nan_the_rows_are_not_blamed(db: mmdb.Database) -> None:
    module = db.recover("delay")
    for parameter in module.parameters():
        parameter.data.fill_(math.nan)
    db.save("nans", module, parent="delay", dataset="delay")
    with pytest.raises(errors.InvalidInput, match="nans@1 predicts NaN for all of these rows"):
        db.evaluate("nans", ASKED)


def test_a_classifier_that_predicts_nan_has_no_accuracy(db: mmdb.Database) -> None:
    for model in ("late", "color"):
        module = db.recover(model)
        for parameter in module.parameters():
            parameter.data.fill_(math.nan)
        db.save(f"{model}_nan", module, parent=model, dataset=model)
    for ask in (
        lambda model: db.evaluate(model, ASKED),
        lambda model: db.evaluate(model, ASKED, by="place", metrics=["f1", "accuracy"]),
        lambda model: db.compare_models(model, model, ASKED),
        lambda model: db.confusion_matrix(model, ASKED),
        lambda model: db.roc_curve(model, ASKED, **_first(model)),
        lambda model: db.threshold(model, ASKED, {"recall": 0.9}, **_first(model)),
        lambda model: db.calibrate_model(model, ASKED, goal={"recall": 0.9}, **_first(model)),
        lambda model: db.importance(model, ASKED),
    ):
        for model in ("late_nan", "color_nan"):
            with pytest.raises(errors.InvalidInput, match=f"{model}@1 predicts NaN for all of"):
                ask(model)


def test_a_row_of_which_a_classifier_predicts_nan_has_no_class(db: mmdb.Database) -> None:
    module = db.recover("late")
    for parameter in module.parameters():
        parameter.data.fill_(math.nan)
    db.save("late_lost", module, parent="late", dataset="late")
    query = "SELECT id, a, b, c FROM visit"
    said = "SELECT prediction, probability, probabilities FROM mmdb.predict_query"
    rows = db.sql(f"{said}('late_lost', '{query}', probabilities => TRUE)")
    assert rows and all(set(row.values()) == {None} for row in rows)
    assert all(row["prediction"] for row in db.sql(f"{said}('late', '{query}')"))
    db.predict_into("late_lost", query, "lost_guess")
    assert db.sql("SELECT DISTINCT prediction, probability FROM lost_guess") == [
        {"prediction": None, "probability": None}
    ]


def test_a_row_of_which_an_output_is_infinite_is_judged_as_one_of_nan(db: mmdb.Database) -> None:
    for name in ("late", "color", "delay"):
        module = db.recover(name)
        for parameter in module.parameters():
            parameter.data.fill_(0.0)
        next(module.parameters()).data[0, 0] = math.inf  # of -inf the probability is 0
        db.save(f"{name}_inf", module, parent=name, dataset=name)
    for name, positive in (("late_inf", "true"), ("color_inf", "red")):
        guess = {row["key"]: row["prediction"] for row in db.predict_query(name, ASKED)}
        assert None in guess.values() and any(guess.values())
        for method in ("shapley", "gradients"):
            told = db.explain_predict(name, ASKED, method=method, key="id")
            assert {row["row_key"]: row["prediction"] for row in told} == guess
        for ask in (
            lambda name, **_: db.evaluate(name, ASKED),
            lambda name, **_: db.evaluate(name, ASKED, metrics=["log_loss", "accuracy"]),
            lambda name, **_: db.compare_models(name, name.split("_")[0], ASKED),
            lambda name, **_: db.confusion_matrix(name, ASKED),
            lambda name, **which: db.roc_curve(name, ASKED, **which),
            lambda name, **which: db.precision_recall(name, ASKED, **which),
            lambda name, **which: db.calibration(name, ASKED, **which),
            lambda name, **which: db.threshold(name, ASKED, {"recall": 0.9}, **which),
            lambda name, **which: db.calibrate_model(name, ASKED, goal={"recall": 0.9}, **which),
            lambda name, **_: db.importance(name, ASKED),
            lambda name, **_: db.training_rows(name, ASKED, trained=ASKED),
        ):
            with pytest.raises(errors.InvalidInput, match=f"{name}@1 predicts NaN for some of"):
                ask(name, positive=positive)
    for ask in (
        lambda name, **_: db.evaluate(name, ASKED),
        lambda name, **_: db.compare_models(name, "delay", ASKED),
        lambda name, **_: db.importance(name, ASKED),
        lambda name, **_: db.training_rows(name, ASKED, trained=ASKED),
    ):  # 0 times infinity is NaN
        with pytest.raises(errors.InvalidInput, match="@1 predicts infinity or NaN for all of"):
            ask("delay_inf")


def _first(model: str) -> dict[str, str]:
    return {"positive": "red" if model == "color_nan" else "true"}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_one_nan_among_outputs_leaves_a_metric_undefined(db: mmdb.Database) -> None:
    module = db.recover("late")
    next(module.parameters()).data[1] = math.inf  # so that rows of both signs are inf - inf
    db.save("late_some", module, parent="late", dataset="late")
    with pytest.raises(errors.InvalidInput, match="late_some@1 predicts NaN for some of these"):
        db.evaluate("late_some", ASKED)


def test_a_model_without_columns_says_what_to_do(db: mmdb.Database) -> None:
    db.save("bare", linear((3,), 2), architecture="linear", input_shape=(3,), outputs=2)
    with pytest.raises(errors.InvalidInput, match="without a dataset"):
        db.evaluate("bare", ASKED)
    with pytest.raises(errors.InvalidInput, match="has no classes"):
        db.confusion_matrix("delay", ASKED)
    with pytest.raises(errors.InvalidInput, match="is no number"):
        db.residuals("late", ASKED)
    with pytest.raises(errors.InvalidInput, match="positive class"):
        db.roc_curve("late", f"{ASKED} AND late")
    with pytest.raises(errors.InvalidInput, match="No threshold gives"):
        db.threshold("late", "SELECT a, b, c, NOT late AS late FROM visit", {"precision": 0.99})


def test_the_columns_that_matter_are_found_with_their_tables(db: mmdb.Database) -> None:
    rows = db.importance("delay", ASKED, metric="rmse")
    assert [row["column_name"] for row in rows] == ["a", "b", "c"]
    assert rows[1]["low"] > 0 > rows[2]["low"] or abs(rows[2]["importance"]) < rows[1]["low"]
    assert {row["tables"] for row in rows} <= {"main.visit", "public.visit"}
    assert {row["metric_name"] for row in rows} == {"rmse"}
    (table,) = db.importance("delay", ASKED, by_table=True, repeats=5)
    assert table["column_name"] == "a, b, c"
    assert table["importance"] > rows[0]["importance"]


@pytest.mark.parametrize("method", ["shapley", "gradients", None])
def test_contributions_add_up_to_the_answer(db: mmdb.Database, method: str | None) -> None:
    query = "SELECT * FROM visit WHERE id BETWEEN 201 AND 230"
    base = {"a": 0.5, "b": -1, "c": 0}
    for model in ("delay", "color"):
        rows = db.explain_predict(model, query, top=3, key="id", method=method, baseline=base)
        assert len(rows) == 90
        start = db.predict(model, base)
        classes = ["blue", "green", "red"]
        for key in {row["row_key"] for row in rows}:
            mine = [row for row in rows if row["row_key"] == key]
            assert [row["rank"] for row in mine] == [1, 2, 3]
            sizes = [abs(row["contribution"]) for row in mine]
            assert sizes == sorted(sizes, reverse=True)
            first = start[0] if model == "delay" else start[classes.index(mine[0]["prediction"])]
            moved = sum(row["contribution"] for row in mine)
            assert first + moved == pytest.approx(mine[0]["answer"], rel=0.02, abs=1e-4)


def test_explained_rows_are_those_that_are_predicted(db: mmdb.Database) -> None:
    query = "SELECT * FROM visit WHERE id BETWEEN 201 AND 240"
    rows = db.explain_predict("color", query, top=1, key="id")
    guesses = {r["key"]: r for r in db.predict_query("color", query, key="id")}
    truth = {str(r["id"]): r for r in db.sql(query)}
    assert len(rows) == 40
    for row in rows:
        assert row["prediction"] == guesses[row["row_key"]]["prediction"]
        assert row["answer"] == pytest.approx(guesses[row["row_key"]]["probability"], abs=1e-5)
        assert float(row["value"]) == pytest.approx(truth[row["row_key"]][row["column_name"]])


def test_times_that_python_has_not_are_explained_as_text(db: mmdb.Database) -> None:
    query = "SELECT id, cast('2020-01-01' AS date) + id AS d, interval '1 hour' * id AS s, late"
    db.create_dataset(
        "timed", f"{query} FROM visit", label="late", options={"roles": {"id": "key"}}
    )
    shape = find_dataset(db.connection, "timed").decoding.inputs[0].shape
    db.save("timed", linear(shape, 2), architecture="linear", dataset="timed")
    bc = "0044-03-15 (BC)" if db.connection.engine == "duckdb" else "0044-03-15 BC"
    for date, text in ((bc, "-043-03-15"), ("20000-01-01", "20000-01-01"), ("2020-01-02",) * 2):
        asked = f"SELECT 1 AS id, cast('{date}' AS date) AS d, interval '3000000 years' AS s"
        found = {row["column_name"]: row for row in db.explain_predict("timed", asked)}
        assert found["d"]["value"] == f"{text}T00:00:00+00:00"
        assert found["s"]["value"].endswith(" seconds")
        (row,) = db.predict_query("timed", asked)
        assert found["d"]["prediction"] == row["prediction"]


def test_what_cannot_be_explained_says_so(db: mmdb.Database) -> None:
    with pytest.raises(errors.InvalidOption, match="no method 'guess'"):
        db.explain_predict("late", ASKED, key="id", method="guess")
    for baseline, named in (({"a": 1}, "lacks b, c"), ({}, "lacks a, b, c")):
        with pytest.raises(errors.InvalidInput, match=named):
            db.explain_predict("late", ASKED, key="id", baseline=baseline)
    with pytest.raises(errors.InvalidOption, match="no metric"):
        db.importance("late", ASKED, metric="rmse")
    with pytest.raises(errors.InvalidOption, match="without other columns"):
        db.importance("late", "late")


def test_training_rows_that_helped_and_hurt_are_named(db: mmdb.Database) -> None:
    query = "SELECT * FROM visit WHERE id = 201"
    trained = "SELECT * FROM visit WHERE id <= 200"
    rows = db.training_rows("late", query, trained=trained, top=5, key="id")
    assert [row["effect"] for row in rows] == ["helped"] * 5 + ["hurt"] * 5
    assert all((row["influence"] > 0) == (row["effect"] == "helped") for row in rows)
    (asked,) = db.sql(query)
    truth = {str(r["id"]): str(r["late"]).lower() for r in db.sql(trained)}
    assert all(row["label"] == truth[row["row_key"]] for row in rows)
    # A linear model is helped by rows of the same class, and hurt by those of the other.
    assert {row["label"] for row in rows[:5]} == {str(asked["late"]).lower()}
    with pytest.raises(errors.InvalidInput, match="cannot be named") as raised:
        db.training_rows("late", query)
    assert "trained" in (raised.value.hint or "")


def test_rows_that_moved_are_found(db: mmdb.Database) -> None:
    query = "SELECT a, b + 1 AS b, NULL::double precision AS c FROM visit WHERE id > 200"
    (first, *_) = db.drift("late", query)
    assert (first["column_name"], first["nulls_before"], first["nulls_now"]) == ("c", 0, 1)
    query = query.replace("NULL::double precision AS c", "c")
    rows = {row["column_name"]: row for row in db.drift("late", query)}
    assert next(iter(rows)) == "b" and rows["b"]["drifted"] and rows["b"]["distance"] > 0.3
    assert not rows["a"]["drifted"] and not rows["c"]["drifted"]
    assert rows["late"]["role"] == "prediction"
    same = db.drift("late", "SELECT a, b, c FROM visit WHERE id <= 200")
    assert not any(row["drifted"] or row["psi"] > 0.1 for row in same) and len(same) == 4
    for name in ("color", "delay"):
        moved = db.drift(name, "SELECT a + 9 AS a, b, c FROM visit")
        assert {row["column_name"] for row in moved if row["drifted"]} >= {"a", name}
    with pytest.raises(errors.InvalidInput, match="no rows"):
        db.drift("late", f"{ASKED} AND false")
    with pytest.raises(errors.UnknownColumn):
        db.drift("late", "SELECT a FROM visit")


def test_training_rows_are_the_mean_of_epochs(db: mmdb.Database) -> None:
    """Of each epoch's weights by themselves, saved as models of their own, and its rate."""
    saved = model_of(db.connection, find_model_id(db.connection, "late"))
    assert saved.epoch is not None
    epochs = recover_epochs(db.connection, saved, 3)
    assert [one.epoch for one in epochs] == [
        *sorted({math.ceil(k * (saved.epoch + 1) / 3) - 1 for k in (1, 2, 3)})
    ]
    last = db.recover("late").state_dict()
    assert all(torch.equal(t, last[path]) for path, t in epochs[-1].module.state_dict().items())
    query, trained = ASKED, "SELECT * FROM visit WHERE id <= 200"
    given: dict[str, Any] = {"trained": trained, "top": 200, "key": "id"}
    sums: dict[str, list[float]] = {}
    for one in epochs:
        db.save("then", one.module, dataset="late")
        for row in db.training_rows("then", query, **given):
            found = sums.setdefault(row["row_key"], [0.0, 0.0])
            found[0] += row["influence"] / len(epochs)  # whose rates are equal
            found[1] += row["loss"] / len(epochs)
    rows = db.training_rows("late", query, checkpoints=3, **given)
    assert len(rows) == 200
    for row in rows:
        assert [row["influence"], row["loss"]] == pytest.approx(sums[row["row_key"]], rel=1e-3)
    with pytest.raises(errors.NotReplayable, match="trained by no run") as raised:
        db.training_rows("then", query, checkpoints=2, **given)
    assert raised.value.hint == "Leave checkpoints out."
    with pytest.raises(errors.InvalidOption):
        db.training_rows("late", query, checkpoints=0, **given)


@pytest.fixture
def late(db: mmdb.Database) -> str:
    """Yield the only version of a model of its own."""
    if not db.sql("SELECT 1 AS one FROM mmdb.model WHERE name = 'bus'"):
        db.save("bus", db.recover("late"), dataset="late")
    return "bus@1"


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_calibrated_probabilities_lose_less_everywhere_they_are_read(
    db: mmdb.Database, late: str, method: str
) -> None:
    before = db.evaluate(late, ASKED, metrics=["log_loss", "auc"])
    row = db.calibrate_model(late, ASKED, method)
    model = f"{row['name']}@{row['version']}"
    assert set(row["calibration"]) == {method}
    after = db.evaluate(model, ASKED, metrics=["log_loss", "auc"])
    assert after["log_loss"] < before["log_loss"]
    if method == "temperature":
        assert after["auc"] == pytest.approx(before["auc"], abs=1e-9)
    chances, y, _ = _asked(db, model, "late")
    chances /= chances.sum(1, keepdims=True)
    assert after["log_loss"] == pytest.approx(sk.log_loss(y, chances), abs=1e-5)
    one = db.predict(model, {"a": 0.5, "b": 0.25, "c": 0.0})
    query = "SELECT 0.5 AS a, 0.25 AS b, 0.0 AS c, 1 AS id"
    (same,) = db.predict_query(model, query, key="id", probabilities=True)
    shown = json.loads(same["probabilities"])
    assert one == pytest.approx([shown["false"], shown["true"]], abs=1e-6)
    bins = db.calibration(model, ASKED, bins=1)
    assert bins[0]["score"] == pytest.approx(np.mean(chances[:, 1]), abs=1e-6)
    stored = db.sql(
        "SELECT parent, stored_bytes FROM mmdb.model_overview WHERE model = 'bus' ORDER BY version"
    )
    assert stored[-1]["stored_bytes"] == 0 and stored[-1]["parent"] == late
    again = db.calibrate_model(model, ASKED, method)  # of what the network says
    assert again["calibration"] == row["calibration"]


def test_a_saved_threshold_decides_wherever_a_class_is_told(db: mmdb.Database, late: str) -> None:
    wanted = db.threshold(late, ASKED, {"recall": 0.95})
    row = db.calibrate_model(late, ASKED, goal={"recall": 0.95})
    model = f"bus@{row['version']}"
    assert row["calibration"]["positive"] == "true"
    assert row["calibration"]["threshold"] == pytest.approx(wanted["threshold"], abs=0.02)
    guessed = {r["key"]: r["prediction"] for r in db.predict_query(model, ASKED, key="id")}
    chances, y, _ = _asked(db, model, "late")
    expected = chances[:, 1] >= row["calibration"]["threshold"]
    assert [guessed[str(k)] for k in range(201, 601)] == [str(e).lower() for e in expected]
    assert expected[y == 1].mean() == pytest.approx(wanted["recall"], abs=1e-12)
    cells = {(r["label"], r["prediction"]): r["rows"] for r in db.confusion_matrix(model, ASKED)}
    assert cells["true", "true"] == (expected & (y == 1)).sum()
    found = db.evaluate(model, ASKED, metrics=["accuracy", "precision", "log_loss"])
    assert found["accuracy"] == pytest.approx(np.mean(expected == y), abs=1e-12)
    assert found["precision"] == pytest.approx(
        sk.precision_score(y, expected, average="macro"), abs=1e-9
    )
    rows = db.explain_predict(model, ASKED, key="id", top=1)
    assert {r["row_key"]: r["prediction"] for r in rows} == guessed
    plain = db.evaluate(late, ASKED, metrics=["log_loss"])
    assert found["log_loss"] == pytest.approx(plain["log_loss"], abs=1e-9)
    db.predict_into(model, ASKED, "guessed_bus", key="id")
    kept = db.sql("SELECT count(*) AS n FROM guessed_bus WHERE prediction = 'true'")
    assert kept[0]["n"] == expected.sum()
    both = db.calibrate_model(model, ASKED, "temperature", goal={"precision": 0.6})["calibration"]
    assert set(both) == {"temperature", "positive", "threshold", "goal"}
    assert both["goal"] == {"precision": 0.6}
    assert set(db.calibrate_model("bus", ASKED, "isotonic")["calibration"]) == {"isotonic"}


def test_an_epoch_that_is_saved_again_is_the_uncalibrated_version(db: mmdb.Database) -> None:
    (best, *_) = db.run("color").leaderboard()
    first = db.save_candidate(best["candidate_id"], "tram")
    db.calibrate_model("tram", ASKED, "temperature")
    assert db.save_candidate(best["candidate_id"], "tram") == first


def test_a_calibration_leaves_and_enters_with_its_model(
    db: mmdb.Database, late: str, tmp_path: Path
) -> None:
    row = db.calibrate_model(late, ASKED, "isotonic", goal={"recall": 0.95})
    model = f"bus@{row['version']}"
    db.export_model(model, tmp_path / "bus")
    copy = db.import_model(tmp_path / "bus", "bus_copy")
    assert copy is not None
    wanted, found = (
        sorted((r["key"], r["prediction"], r["probability"]) for r in rows)
        for rows in (db.predict_query(name, ASKED, key="id") for name in (model, "bus_copy"))
    )
    assert found == wanted
    url = f"duckdb:///{tmp_path / 'other.duckdb'}"
    db.push(model, to=url)
    with mmdb.connect(url) as other:
        stored = other.sql("SELECT calibration FROM mmdb.model")[0]["calibration"]
        assert (json.loads(stored) if isinstance(stored, str) else stored) == row["calibration"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"model": "late", "data": ASKED}, "No method and no goal"),
        ({"model": "late", "data": ASKED, "method": "platt"}, "no method"),
        ({"model": "delay", "data": ASKED, "method": "temperature"}, "has no classes"),
        ({"model": "color", "data": ASKED, "goal": {"recall": 0.5}}, "No class is named"),
        ({"model": "late", "data": f"{ASKED} AND late", "method": "isotonic"}, "one class"),
    ],
)
def test_what_cannot_be_calibrated_saves_nothing(
    db: mmdb.Database, arguments: dict[str, Any], says: str
) -> None:
    before = db.sql("SELECT count(*) AS n FROM mmdb.model")
    with pytest.raises((errors.InvalidInput, errors.InvalidOption), match=says):
        db.calibrate_model(**arguments)
    assert db.sql("SELECT count(*) AS n FROM mmdb.model") == before


def _figures(db: mmdb.Database, model: str) -> dict[str, Any]:
    rows = db.sql(
        "SELECT figures FROM mmdb.evaluation_figures"
        f" WHERE model = '{model}' ORDER BY evaluation_id DESC LIMIT 1"
    )
    found = rows[0]["figures"]
    return json.loads(found) if isinstance(found, str) else dict(found)


def test_what_a_page_draws_is_what_sql_answers(db: mmdb.Database) -> None:
    db.evaluate("color", ASKED)
    found = _figures(db, "color")
    cells = {(r["label"], r["prediction"]): r["rows"] for r in db.confusion_matrix("color", ASKED)}
    classes = found["confusion"]["classes"]
    drawn = zip(classes, found["confusion"]["rows"], strict=True)
    shown = {(a, b): n for a, counts in drawn for b, n in zip(classes, counts, strict=True)}
    assert shown == cells
    assert {one["class"] for one in found["curves"]} == set(classes)
    for one in found["curves"]:
        rows = db.roc_curve("color", ASKED, positive=one["class"])
        rates = [[r["false_positive_rate"], r["true_positive_rate"]] for r in rows]
        assert len(one["roc"]) <= 100 and one["roc"][0] == rates[0] and one["roc"][-1] == rates[-1]
        assert all(point in rates for point in one["roc"])
        rows = db.precision_recall("color", ASKED, positive=one["class"])
        recalls = [[r["recall"], r["precision"]] for r in rows]
        assert all(point in recalls for point in one["recall"])
        rows = db.calibration("color", ASKED, positive=one["class"])
        assert one["calibration"] == [[r["score"], r["share"], r["row_count"]] for r in rows]
    chances, y, names = _asked(db, "color")
    own = chances[np.arange(len(y)), y]
    worst = found["worst"]
    assert [int(row["key"]) - 201 for row in worst] == own.argsort(kind="stable")[:10].tolist()
    assert [row["label"] for row in worst] == [names[y[int(r["key"]) - 201]] for r in worst]


def test_residuals_and_importance_are_drawn(db: mmdb.Database) -> None:
    db.evaluate("delay", ASKED)
    found = _figures(db, "delay")
    rows = db.residuals("delay", ASKED, key="id")
    wrong = {r["row_key"]: r["residual"] for r in rows}
    assert sum(count for _, _, count in found["residuals"]) == 400
    assert found["residuals"][0][0] == pytest.approx(min(wrong.values()))
    assert found["residuals"][-1][1] == pytest.approx(max(wrong.values()))
    ranked = sorted(wrong, key=lambda key: -abs(wrong[key]))[:10]
    assert [row["key"] for row in found["worst"]] == ranked
    columns = db.importance("delay", ASKED)
    assert _figures(db, "delay")["importance"] == columns
    measured = db.sql("SELECT count(*) AS n FROM mmdb.evaluation_overview WHERE metric IS NULL")
    assert measured[0]["n"] == 0
