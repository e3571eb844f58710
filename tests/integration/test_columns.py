"""Models meet rows of other datasets and queries: columns by name, values by value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mmdb
from mmdb import errors
from mmdb.data.dataset import find_dataset
from mmdb.data.query import analyse
from mmdb.server.matching import sample_of
from tests.bench.search.columns import figures_of

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
    options = {"transforms": {"*": "passthrough"}}
    db.create_dataset(name, query, label=label, validation=0, partitions=2, options=options)
    decoding = find_dataset(db.connection, name).decoding
    (given,) = decoding.inputs
    module = nn.Linear(given.shape[0], 2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        for column, span in decoding.spans(given):
            for place, part in enumerate(column.parts):
                key = f"{column.name}={part}" if isinstance(part, str) else column.name
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


#: Queries of datasets that the model of color, a and level cannot be measured on.
UNLIKE = {
    "SELECT a, level FROM things": "'color' is missing",
    "SELECT a, color, b, level FROM things": "'b' is additional",
    "SELECT a::text AS a, color, level FROM things": "'a' is a text",
    "SELECT ARRAY[a] AS a, color, level FROM things": "'a' is 1 numbers",
    "SELECT a, color, level AS grade FROM things": "'level' is missing",
    "SELECT a, color, replace(level, 'low', 'none') AS level FROM things": "'none'",
    "SELECT a, color, yes AS level FROM things": "value (true|false)",
    "SELECT a, color, b AS level FROM things": "'level' is a number to predict",
}


def test_what_does_not_fit_is_named(db: mmdb.Database) -> None:
    save(db, "SELECT color, a, level FROM things", "level")
    for ordinal, (query, named) in enumerate(UNLIKE.items()):
        name, label = f"other{ordinal}", "grade" if "grade" in query else "level"
        db.create_dataset(name, query, label=label, validation=0, partitions=1)
        with pytest.raises(errors.InvalidInput, match=named) as found:
            db.evaluate("m", name)
        assert "number per feature" not in str(found.value)


def test_what_the_measured_rows_do_not_hold_does_not_matter(db: mmdb.Database) -> None:
    save(db, "SELECT color, a, level FROM things", "level", {"a": -1.0})
    more = "SELECT color, a, level FROM things UNION ALL SELECT 'pink', 100::real, 'none'"
    db.create_dataset("trained", more, label="level", seed=0)
    db.create_dataset("held_out", more, label="level", seed=6)
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


ROW_FORMS = [
    '\'{"a": 3, "color": "red", "id": 7, "level": null}\'',
    "row_to_json(t)",
    "t",
]


def test_a_whole_row_is_predicted_in_the_forms_people_type(db: mmdb.Database) -> None:
    save(db, "SELECT color, a, level FROM things", "level", {"a": -1.0, "color=red": 0.5})
    expected = db.predict("m", {"color": "red", "a": 3})
    for form in ROW_FORMS:
        call = f"mmdb.predict('m', {form}) AS p"
        (found,) = db.sql(f"SELECT {call} FROM things AS t WHERE a = 3 AND color = 'red' LIMIT 1")
        assert list(found["p"]) == pytest.approx(expected), form


def test_lists_are_predicted_as_before(db: mmdb.Database) -> None:
    save(db, "SELECT a, b, y FROM things")
    expected = db.predict("m", {"a": 1.5, "b": 2})
    for form in (
        "ARRAY[1.5, 2]",
        "ARRAY[1.5, 2]::real[]",
        "'[1.5, 2]'",
        "CAST('[1.5, 2]' AS json)",
    ):
        (found,) = db.sql(f"SELECT mmdb.predict('m', {form}) AS p")
        assert list(found["p"]) == pytest.approx(expected), form
    (found,) = db.sql("SELECT mmdb.predict('m', ARRAY[1, 2]) AS p")
    assert list(found["p"]) == pytest.approx(db.predict("m", [1, 2]))


def test_a_row_of_the_database_is_predicted_as_it_is(db: mmdb.Database) -> None:
    more = (
        "CAST(1.50 AS DECIMAL(4, 2)) AS price, CAST('2020-01-01' AS date) AS d, "
        "CAST('2020-01-01 05:00' AS timestamp) AS moment, CAST('05:00' AS time) AS clock, "
        "interval '90 minutes' AS span, CAST('ab' AS {}) AS bytes, "
        "CAST('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' AS uuid) AS name"
    ).format("BLOB" if db.connection.engine == "duckdb" else "bytea")
    db.sql(f"CREATE TABLE sold AS SELECT CAST(id AS integer) AS id, a, b, y, {more} FROM things")
    save(db, "SELECT a, b, y FROM things")
    (row,) = db.sql("SELECT * FROM sold WHERE id = 5")
    expected = db.predict("m", {"a": row["a"], "b": row["b"]})
    assert db.predict("m", row) == db.predict("m", json.dumps({"a": row["a"], "b": 0})) == expected
    given = {"a": np.float32(row["a"]), "b": Decimal("0.0"), "more": [np.int64(1)]}
    assert db.predict("m", given) == db.predict("m", [given["a"], given["b"]]) == expected
    with pytest.raises(errors.InvalidInput, match="set is no type of JSON"):
        db.predict("m", {"a": 1, "b": {1}})

    options = {"roles": {"id": "key"}}
    query = "SELECT id, d + id % 9 AS d, moment + span * id AS m, span * id AS span, y FROM sold"
    db.create_dataset("times", query, options=options)
    shape = find_dataset(db.connection, "times").decoding.inputs[0].shape
    db.save("times", nn.Sequential(nn.Linear(shape[0], 2)), dataset="times")
    (row,) = db.sql(f"SELECT * FROM ({query}) q WHERE id = 5")
    (whole,) = db.predict_query("times", f"SELECT * FROM ({query}) q WHERE id = 5")
    assert max(db.predict("times", row)) == pytest.approx(whole["probability"], abs=1e-6)
    other = {"d": np.datetime64(row["d"], "ns"), "span": np.timedelta64(row["span"])}
    assert max(db.predict("times", {**row, **other})) == pytest.approx(
        whole["probability"], abs=1e-6
    )
    assert db.predict("times", {**row, "span": "PT7H30M"}) == db.predict("times", row)
    assert db.explain_predict("times", f"{query} LIMIT 1", baseline=row)
    if db.connection.engine == "postgres":
        db.sql("SET intervalstyle = 'iso_8601'")
        one = f"SELECT mmdb.predict('times', to_jsonb(q)) AS p FROM ({query}) q WHERE id = 5"
        assert max(db.sql(one)[0]["p"]) == pytest.approx(whole["probability"], abs=1e-6)
    with pytest.raises(errors.InvalidInput, match="which is no interval"):
        db.predict("times", {**row, "span": "P1DT"})


def test_a_text_that_is_no_row_is_refused(db: mmdb.Database) -> None:
    save(db, "SELECT a, b, y FROM things")
    for given in ("{a: 1}", "nothing", '{"a": 1'):
        with pytest.raises(errors.InvalidInput, match="ARRAY"):
            db.sql(f"SELECT mmdb.predict('m', '{given}') AS p")
        with pytest.raises(errors.InvalidInput, match="ARRAY"):
            db.predict("m", given)


MARKS = """
CREATE TABLE marks AS
SELECT i AS id, CASE i % 3 WHEN 0 THEN 'true' WHEN 1 THEN '1' ELSE '1.50' END AS mark,
    (i % 2)::real AS a, i % 2 = 1 AS y
FROM generate_series(1, 60) AS g (i)
"""


def test_a_json_value_is_the_category_that_the_database_casts_it_to(db: mmdb.Database) -> None:
    db.sql(MARKS)
    save(
        db,
        "SELECT mark, a, y FROM marks",
        weights={"mark=true": 1.0, "mark=1": 2.0, "mark=1.50": 4.0},
    )
    for text, value in {"true": "true", "1": "1", "1.50": "1.50"}.items():
        (found,) = db.sql(f"""SELECT mmdb.predict('m', '{{"mark": {value}, "a": 0}}') AS p""")
        assert list(found["p"]) == pytest.approx(db.predict("m", {"mark": text, "a": 0})), text
    assert db.predict("m", {"mark": True, "a": 0}) == db.predict("m", {"mark": "true", "a": 0})
    (row,) = db.predict_query("m", "SELECT 1 AS id, 0::real AS a, 1 = 1 AS mark")
    assert row["probability"] == pytest.approx(max(db.predict("m", {"mark": "true", "a": 0})))
    refused: list[tuple[object, str]] = [
        ([1], "'mark'"),
        ({"a": 1}, "'mark'"),
    ]
    for given, named in refused:
        with pytest.raises(errors.InvalidInput, match=named):
            db.predict("m", {"mark": given, "a": 0})


def test_booleans_are_predicted_as_the_database_writes_them(db: mmdb.Database) -> None:
    save(db, "SELECT a, b, yes FROM things", "yes")
    rows = db.predict_query("m", "SELECT id, a, b FROM things")
    assert {row["prediction"] for row in rows} == {"true", "false"}


#: Rows that a model of a and b cannot predict.
BAD_ROWS: list[tuple[dict[str, object], str]] = [
    ({"b": 1}, "lacks a"),
    ({"a": None, "b": 1}, "'a' is NULL"),
    ({"a": "x", "b": 1}, "'a' holds 'x'"),
    ({"a": 1, "b": 1e300}, "'b'"),
    ({"a": 1, "b": [1, 2]}, "'b'"),
    ({"a": 1, "b": {"c": 1}}, "'b'"),
]


def test_what_is_wrong_with_a_row_is_named(db: mmdb.Database) -> None:
    save(db, "SELECT a, b, y FROM things")
    for row, named in BAD_ROWS:
        with pytest.raises(errors.MmdbError, match=named):
            db.predict("m", row)


#: Queries whose rows it cannot predict.
BAD_QUERIES: list[tuple[str, type[errors.MmdbError], str]] = [
    ("SELECT id, b, NULL::real AS a FROM things", errors.NullValues, "'a'"),
    ("SELECT NULL::integer AS id, b, a FROM things", errors.NullValues, "'id'"),
    ("SELECT id, b FROM things", errors.UnknownColumn, "'a'"),
    ("SELECT id, b, 'x' AS a FROM things", errors.InvalidInput, "'a' is text"),
    ("SELECT id, b, ARRAY[a] AS a FROM things", errors.InvalidInput, "'a' is float_array"),
    ("SELECT id, b, a, b AS a FROM things", errors.QueryError, "two columns named 'a'"),
    ("SELECT id, b, 'NaN'::real AS a FROM things", errors.NotFinite, "'a'"),
]


def test_what_is_wrong_with_a_query_is_named(db: mmdb.Database) -> None:
    save(db, "SELECT a, b, y FROM things")
    for query, kind, named in BAD_QUERIES:
        with pytest.raises(kind, match=named):
            db.predict_query("m", query)
        with pytest.raises(kind, match=named):
            db.predict_into("m", query, "predicted")


def test_names_that_differ_by_case_alone_are_two_columns_or_none(db: mmdb.Database) -> None:
    query = 'SELECT a AS "A", b AS a, y FROM things'
    if db.connection.engine == "duckdb":  # which takes both for the first
        with pytest.raises(errors.QueryError, match="two columns"):
            db.create_dataset("m", query)
        return
    save(db, query, weights={"A": 1.0, "a": 0.1})
    db.create_dataset("other", f'SELECT a, y, "A" FROM ({query}) AS q', validation=0)
    assert db.evaluate("m", "other") == db.evaluate("m", "m")


SPELLED: list[dict[str, Any]] = [
    {"label": "Y"},
    {"label": "y", "options": {"roles": {"B": "excluded"}}},
    {"label": "y", "options": {"labels": ["YES"]}},
    {"label": "y", "options": {"transforms": {"A": "passthrough"}}},
    {"label": "y", "options": {"inputs": {"one": ["A", "B"], "two": ["Color", "level", "yes"]}}},
    {
        "label": "y",
        "options": {
            "inputs": {"text": ["COLOR"], "rest": ["a", "b", "level", "yes"]},
            "tokenize": {"COLOR": {"function": "bytes", "length": 4}},
        },
    },
    {"label": "y", "options": {"split": {"by": "group", "column": "Color"}}},
]


@pytest.mark.parametrize("given", SPELLED, ids=str)
def test_duckdb_tells_no_cases_of_letters_apart_in_names(
    db: mmdb.Database, given: dict[str, Any]
) -> None:
    query = "SELECT a, b, color, level, yes, y FROM things"
    if db.connection.engine == "postgres":
        with pytest.raises((errors.UnknownColumn, errors.InvalidOption)):
            db.create_dataset("d", query, **given)
        return
    text = json.dumps(given)
    for name in ("Y", "B", "YES", "A", "Color", "COLOR"):
        text = text.replace(f'"{name}"', f'"{name.lower()}"')
    db.create_dataset("d", query, **given)
    db.create_dataset("plain", query, **json.loads(text))
    columns = "list(lower(name) || kind ORDER BY lower(name) || kind)::text"
    found = db.sql(f"SELECT {columns} AS c FROM mmdb.dataset_column GROUP BY dataset_id")
    assert len(found) == 2 and found[0] == found[1]


def test_a_column_that_grows_is_known_in_any_case_by_duckdb(db: mmdb.Database) -> None:
    db.create_dataset("d", "SELECT * FROM things", options={"roles": {"id": "key"}})
    more = (
        "INSERT INTO things SELECT id + 1000, a, b, color, level, yes, y FROM things WHERE id < 9"
    )
    if db.connection.engine == "postgres":
        with pytest.raises(errors.UnknownColumn, match="'ID'"):
            db.refresh_dataset("d", grows="ID")
        return
    for name, times, deleted in (("id", 1, 0), ("ID", 2, None), ("Id", 3, None)):
        db.sql(more.replace("1000", str(1000 * times)))
        found = db.refresh_dataset("d", grows=name)
        assert (found.added, found.deleted) == (8, deleted)


def test_a_misspelt_column_is_answered_with_a_hint_on_columns(db: mmdb.Database) -> None:
    with pytest.raises(errors.UnknownColumn) as found:
        db.create_dataset("d", "SELECT colr, a, y FROM things")
    assert "label" not in found.value.hint and "color" in found.value.hint
    with pytest.raises(errors.UnknownColumn, match="'z'") as found:
        db.create_dataset("d", "SELECT color, a, y FROM things", label="z")
    assert "label" in found.value.hint and "color" in found.value.message


def test_integers_that_may_be_amounts_are_not_taken_for_classes(db: mmdb.Database) -> None:
    query = "SELECT a, id % {} AS price FROM things"
    db.create_dataset("few", query.format(100), label="price")
    assert find_dataset(db.connection, "few").task == "classification"
    with pytest.raises(errors.TooManyCategories, match="'price'") as found:
        db.create_dataset("many", query.format(101), label="price")
    assert '{"tasks": {"price": "regression"}}' in found.value.hint
    for task in ("regression", "classification"):
        options = {"tasks": {"price": task}}
        db.create_dataset(task, query.format(101), label="price", options=options)
        assert find_dataset(db.connection, task).task == task


def test_a_sample_is_given_to_parents_by_their_own_columns(db: mmdb.Database) -> None:
    save(db, "SELECT a, b, y FROM things", weights={"a": 1.0})
    (model,) = db.sql("SELECT model_id FROM mmdb.model")
    features = []
    for name, columns in (("ab", "a, b"), ("ba", "b, a")):
        db.create_dataset(name, f"SELECT {columns}, y FROM things", validation=0, partitions=1)
        dataset = find_dataset(db.connection, name)
        sample = sample_of(db.connection, dataset, 1000, lambda _: nn.Linear(2, 2))
        found = sample.features(model["model_id"])
        assert found is not None and found.shape == (210, 2)
        features.append(sorted(found.tolist()))
    assert features[0] == features[1]


#: What PostgreSQL alone has is said for it alone.
TYPES = {
    "duckdb": "CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TYPE share AS real",
    "postgres": "CREATE TYPE mood AS ENUM ('sad', 'happy');"
    "CREATE DOMAIN share AS real CHECK (value >= -3); CREATE DOMAIN grade AS mood;"
    "CREATE DOMAIN flag AS boolean; CREATE DOMAIN tall AS share; CREATE DOMAIN pair AS real[]",
}


def test_enums_and_domains_are_what_they_stand_for(db: mmdb.Database) -> None:
    engine = db.connection.engine
    for statement in TYPES[engine].split(";"):
        db.sql(statement)
    wide = ", a::tall AS tall, yes::flag AS flag, ARRAY[a, b]::pair AS pair"
    mood = "(CASE WHEN a > 0 THEN 'happy' ELSE 'sad' END)"
    grade = "mood::grade" if engine == "postgres" else "mood"
    db.sql(
        f"CREATE TABLE felt AS SELECT id, a::share AS a, {mood}::mood AS mood, "
        f"{mood}::{grade.replace('mood::', '')} AS grade {wide if engine == 'postgres' else ''} "
        "FROM things"
    )
    columns = "a, mood, tall, pair" if engine == "postgres" else "a, mood"
    save(db, f"SELECT {columns}, grade FROM felt", "grade")
    assert find_dataset(db.connection, "m").classes == ("happy", "sad")
    mine = """mmdb.create_dataset('inside', 'SELECT {}, grade FROM felt', label => 'grade',
        partitions => 2, validation => 0, options => '{{"transforms": {{"*": "passthrough"}}}}')"""
    db.sql(f"SELECT * FROM {mine.format(columns)}")
    inside, outside = (find_dataset(db.connection, name).decoding for name in ("inside", "m"))
    assert inside == outside
    rows = db.predict_query("m", f"SELECT mood AS id, {columns} FROM felt")
    again = db.predict_query(
        "m", f"SELECT mood AS id, {columns.replace('mood', 'mood::text AS mood')} FROM felt"
    )
    assert rows == again and {row["key"] for row in rows} == {"happy", "sad"}
    db.predict_into(
        "m",
        f"SELECT mood, {columns} FROM felt".replace("mood, a, mood", "a, mood"),
        "felt_predicted",
        key="mood",
    )
    (found,) = db.sql("SELECT mmdb.predict('m', t) AS p FROM felt AS t LIMIT 1")
    assert sum(found["p"]) == pytest.approx(1)
    if engine == "postgres":
        save(db, "SELECT a, flag FROM felt", "flag", name="flags")
        rows = db.predict_query("flags", "SELECT id, a FROM felt")
        assert {row["prediction"] for row in rows} == {"true", "false"}


def test_random_tables_are_never_answered_wrongly(db: mmdb.Database) -> None:
    figures = figures_of(db, seed=1, cases=12)
    assert [figure for figure in figures if figure.holds is False] == []
    assert all(f.value > 0 for f in figures if f.name.endswith((": right", ": named")))


LARGE = ("1e20", "-1e20", "5e19")
NANOSECONDS = ("1764201600000000000", "1764201600000000001", "1764201700000000000")
SMALL = ("1e-320", "4.9e-324", "2e-310")
AT_THE_EXPONENT = ("1e16", "10000000000000000", "1")
BELOW_ZERO = ("-0.0", "-0.0", "-0.0")


@pytest.mark.parametrize("numbers", [LARGE, NANOSECONDS, SMALL, AT_THE_EXPONENT, BELOW_ZERO])
@pytest.mark.parametrize("label", ["y", "v"])
def test_numbers_of_any_size_are_what_they_were_once_they_are_stored(
    db: mmdb.Database, numbers: tuple[str, str, str], label: str
) -> None:
    cases = " ".join(
        f"WHEN {k} THEN CAST('{number}' AS double precision)" for k, number in enumerate(numbers)
    )
    query = f"SELECT y, b, CASE id % 3 {cases} END AS v FROM things"
    if label == "v" and numbers in (NANOSECONDS, SMALL):
        with pytest.raises(errors.DataError, match=r"Label 'v' varies by .* kept as float32"):
            db.create_dataset("n", query, label=label, partitions=2)
        return
    db.create_dataset("n", query, label=label, partitions=2)
    run = db.create_run("n", dataset="n", architecture="linear", epochs=1)
    assert run.train(workers=1).failed == 0
    assert db.evaluate("n@1", query)


def test_names_and_classes_that_are_not_ascii_are_shown_as_they_are(db: mmdb.Database) -> None:
    towns, notes = ["Köln", "München", "Ulm"], ["gut", "süß 😀", "schlecht"]
    values = ", ".join(
        f"({k}, {k % 13}, '{towns[k % 3]}', '{notes[k % 5 % 3]}')" for k in range(200)
    )
    db.sql('CREATE TABLE läden (id integer, "Größe" double precision, "Stadt" text, "Note" text)')
    db.sql(f"INSERT INTO läden VALUES {values}")
    query = "SELECT * FROM läden"
    roles = {"roles": {"Größe": "feature", "id": "key"}}
    db.create_dataset("shops", query, label="Note", options=roles)
    db.create_run("shops", dataset="shops", architecture="linear", epochs=1)
    db.run("shops").train(workers=1)
    db.evaluate("shops", query, by="Stadt")
    db.importance("shops", query, repeats=2)
    goal = {"recall": 0.5}
    db.calibrate_model("shops", query, goal=goal, positive="süß 😀")
    (shown,) = db.sql(
        "SELECT d.classes, d.targets, d.class_counts, t.meaning, m.calibration"
        " FROM mmdb.dataset_overview AS d INNER JOIN mmdb.transform_overview AS t"
        " ON t.dataset = d.name AND t.column_name = 'Stadt', mmdb.model_overview AS m"
        " WHERE m.version = 2"
    )
    said = db.sql(
        f"SELECT probabilities FROM mmdb.predict_query('shops', '{query}', probabilities => TRUE)"
    )
    kept = db.sql("SELECT options FROM mmdb.dataset") + db.sql(
        "SELECT figures FROM mmdb.evaluation WHERE figures IS NOT NULL"
    )
    rows = [shown, said[0], *kept, *db.transformed("shops", 1)]
    texts = " ".join(str(value) for row in rows for value in row.values())
    assert "\\u" not in texts
    assert all(word in texts for word in ("süß 😀", "Köln", "Größe"))


def test_parts_of_values_are_known_by_the_columns_that_they_are_read_from(
    db: mmdb.Database,
) -> None:
    part = "('{\"os\": \"' || CASE WHEN y > 0 THEN 'ios' ELSE 'web' END || '\"}')::json AS payload"
    db.sql(f"CREATE TABLE clicks AS SELECT id, {part}, a, y AS label FROM things")
    options = {"transforms": {"payload.os": "auto"}, "roles": {"id": "key"}}
    db.create_dataset("clicks", "SELECT * FROM clicks", label="label", options=options)
    db.create_run("clicks", dataset="clicks", architecture="linear", epochs=1).train(workers=1)
    name = "a" if db.connection.engine == "postgres" else '"A"'  # to DuckDB it is the same one
    query = f"SELECT payload, a AS {name}, label FROM clicks WHERE id > 9"
    (schema,) = {s.schema for s in analyse(query, db.connection.engine, db.connection).sources}
    tables = {r["column_name"]: r["tables"] for r in db.importance("clicks", query, repeats=2)}
    assert tables == {"payload.os": f"{schema}.clicks", "a": f"{schema}.clicks"}
    (both,) = db.importance("clicks", query, by_table=True, repeats=2)
    assert set(both["column_name"].split(", ")) == {"payload.os", "a"}
    db.evaluate("clicks", query)
    read = "SELECT DISTINCT column_name, output_name FROM mmdb.evaluation_source ORDER BY 1"
    assert [tuple(row.values()) for row in db.sql(read)] == [
        ("a", "a"),
        ("id", None),
        ("label", "label"),
        ("payload", "payload.os"),
    ]
