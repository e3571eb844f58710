"""Tables as people have them: NULLs, dates, categories, values that training never saw.

The tests share a database on each engine, in which RUNS are trained by one worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import psycopg
import pytest

import mmdb
from mmdb import errors
from mmdb.data.dataset import find_dataset
from mmdb.data.reader import read_partition
from mmdb.data.registration import DatasetSummary
from tests.cluster import Cluster
from tests.integration.test_strategies import train_all

ROWS = 400
#: What `SELECT *` brings along, with what becomes of it.
BECOMES = {
    "id": ("key", "passthrough"),
    "a": ("numeric", "robust"),
    "b": ("numeric", "robust"),
    "seen": ("numeric", "cyclic"),
    "born": ("numeric", "cyclic"),
    "clock": ("numeric", "cyclic"),
    "took": ("numeric", "robust"),
    "color": ("categorical", "one_hot"),
    "tail": ("categorical", "index"),
    "mark": ("categorical", "index"),
    "flag": ("numeric", "robust"),
    "price": ("numeric", "robust"),
    "empty": ("numeric", "drop"),
    "y": ("label", "passthrough"),
}


#: Half of the rows say the opposite of the truth.
FLIPPED = "CASE WHEN id % 2 = 0 THEN y ELSE CASE y WHEN 'low' THEN 'high' ELSE 'low' END END AS y"
OTHERS = "SELECT b, a, color, y FROM thing"
CODED = "SELECT 'k' || id AS code, b, color, y FROM thing"
KEYED = "SELECT id AS model, b, y FROM thing"
#: What scans read by architecture: the columns, and the rest of the arguments of `create_dataset`.
SCANS: dict[str | None, tuple[str, dict[str, Any]]] = {
    None: ("b, a, seen, born, clock, took, color, tail, flag, price, y", {}),
    "mlp(hidden=[16])": ("b, a, seen, born, clock, took, color, tail, flag, price, y", {}),
    # Of pictures: no layer of it is known to `row_network`.
    "cnn": ("p, y", {"options": {"shape": [1, 2, 2]}}),
}
SCANNED = (
    "SELECT id, b, CASE WHEN id < 300 THEN a END AS a, seen, born, clock, took, color, tail, flag,"
    " price, ARRAY[b, id, 1, 2]::real[] AS p, y FROM thing"
)
#: Arguments of `create_dataset` by name.
DATASETS: dict[str, dict[str, Any]] = {
    "codes": {"query": "SELECT b, tail, y FROM thing"},
    "others": {"query": OTHERS, "validation": 0},
    "worth": {
        "query": "SELECT b, color, price * 1000 + 5000000 AS worth FROM thing",
        "label": "worth",
        "validation": 0.25,
    },
    "tested": {
        "query": "SELECT id, a, b, color, y FROM thing",
        "options": {"split": {"test": 0.25}, "roles": {"id": "key"}},
    },
    "keyed": {"query": KEYED, "label": "y", "options": {"roles": {"model": "key"}}},
    "coded": {"query": CODED, "label": "y", "options": {"roles": {"code": "key"}}},
    **{
        name: {
            "query": f"SELECT b, CASE WHEN id % 2 = {place} THEN 1 ELSE 0 END AS w, {FLIPPED}"
            " FROM thing",
            "label": "y",
            "options": {"roles": {"w": "weight"}},
        }
        for place, name in enumerate(("even", "odd"))
    },
    **{
        f"scan{k}": {"query": f"SELECT {columns} FROM ({SCANNED} WHERE id < 350) AS q"} | rest
        for k, (columns, rest) in enumerate(SCANS.values())
    },
}
WEIGHED = "tabular(hidden=[32], ensemble=2)"
#: Arguments of `create_run` by name; the dataset is that of the name where none is given.
RUNS: dict[str, dict[str, Any]] = {
    **{
        f"codes_{name}": {"dataset": "codes", "architecture": name, "epochs": 1}
        for name in ("linear", "mlp", "tabular")
    },
    "others": {"architecture": "tabular", "epochs": 4},
    "worth": {"architecture": "tabular", "epochs": 3},
    "tested": {"architecture": "linear", "epochs": 2},
    "keyed": {"architecture": "linear", "epochs": 1},
    "coded": {"architecture": "linear", "epochs": 1},
    "even": {"architecture": WEIGHED, "epochs": 10},
    "odd": {"architecture": WEIGHED, "epochs": 10},
    **{f"scan{k}": {"architecture": name, "epochs": 1} for k, name in enumerate(SCANS)},
}
_numbers = count(1)


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[mmdb.Database]:
    """Yield a database with table `thing`."""
    url = f"duckdb:///{tmp_path_factory.mktemp('tables') / 'mmdb.duckdb'}"
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.create_database("mmdb_tables", request.getfixturevalue("template"))
    with mmdb.connect(url) as database:
        fill(database)
        yield database
    if request.param == "postgres":
        cluster.drop_database("mmdb_tables")


@pytest.fixture(scope="module")
def outcomes(db: mmdb.Database) -> dict[str, Any]:
    """Train RUNS on DATASETS; return what became of each."""
    for name, asked in DATASETS.items():
        db.create_dataset(name, **asked)
    for name, asked in RUNS.items():
        db.create_run(name, **({"dataset": name} | asked))
    return train_all(db, list(RUNS), workers=1)


@pytest.fixture(scope="module")
def things(db: mmdb.Database) -> str:
    """Bring the table to a model by what is the default of everything; return its name."""
    create(db, "things", "SELECT * FROM thing")
    db.create_run("things", dataset="things", epochs=2)
    assert db.run("things").train(workers=1).failed == 0
    return "things"


def fill(db: mmdb.Database, *, backwards: bool = False) -> None:
    """Make table `thing`, equal on both engines but for the order of its rows."""
    db.sql(
        f"""
        CREATE TABLE thing AS
        SELECT
            i AS id,
            CASE WHEN i % 7 <> 0 THEN i * 1.5 END AS a,
            (i * 37 % 101)::real AS b,
            timestamp '2013-01-01' + i * interval '61 minute' AS seen,
            (date '2013-01-01' + (i % 400)::integer) AS born,
            time '05:00:00' + i * interval '1 minute' AS clock,
            i % 10 * interval '1 day' + interval '2 hour' AS took,
            CASE i % 4 WHEN 0 THEN 'grün' WHEN 1 THEN 'red' WHEN 2 THEN 'Blue' END AS color,
            'n' || (i * i % 97) AS tail,
            md5((i % 20)::text)::uuid AS mark,
            i % 2 = 0 AS flag,
            (i * 0.37)::numeric(12, 4) AS price,
            NULL::integer AS empty,
            CASE WHEN i * 37 % 101 > 50 THEN 'high' ELSE 'low' END AS y
        FROM generate_series(1, {ROWS}) AS g (i)
        ORDER BY i {"DESC" if backwards else ""}
        """
    )


def create(db: mmdb.Database, name: str, query: str, **arguments: Any) -> DatasetSummary:
    """Make a dataset, of whose key a warning speaks."""
    with pytest.warns(errors.MmdbWarning, match="'id'.* taken for a key"):
        return db.create_dataset(name, query, **arguments)


def test_three_statements_bring_a_raw_table_to_a_model(db: mmdb.Database, things: str) -> None:
    shown = db.sql("SELECT * FROM mmdb.transform_overview WHERE dataset = 'things'")
    assert {r["column_name"]: (r["role"], r["transform"]) for r in shown} == BECOMES
    assert db.evaluate(things, "things")["accuracy"] > 0.9
    rows = db.predict_query(things, "SELECT * FROM thing ORDER BY id")
    truth = [row["y"] for row in db.sql("SELECT y FROM thing ORDER BY id")]
    assert np.mean([row["prediction"] == y for row, y in zip(rows, truth, strict=True)]) > 0.9


def test_content_is_the_same_on_both_engines_in_any_order(
    duckdb_url: str, postgres_url: str
) -> None:
    found = []
    for url, backwards in ((duckdb_url, False), (postgres_url, True)):
        with mmdb.connect(url) as db:
            fill(db, backwards=backwards)
            made = create(db, "things", "SELECT * FROM thing", seed=3)
            rows = db.transformed("things", 3)
            assert len(rows) == 3
            decoding = find_dataset(db.connection, "things").decoding
            found.append((made.content_hash, decoding, json.dumps(rows, sort_keys=True)))
    assert found[0] == found[1]


def test_the_category_missing_and_null_have_a_number_each(
    duckdb_url: str, postgres_url: str
) -> None:
    text = "CASE i % 4 WHEN 0 THEN 'missing' WHEN 1 THEN '(missing)' WHEN 2 THEN 'b' END"
    query = f"SELECT {text} AS t, i % 2 AS y FROM generate_series(1, 40) AS g (i)"
    for url in (duckdb_url, postgres_url):
        with mmdb.connect(url) as db:
            db.create_dataset("m", query, label="y")
            rows = [row["features"] for row in db.transformed("m", 20)]
        assert {*rows[0]} == {"t (missing)", "t b", "t missing", "t ((missing))"}
        assert all(sum(row.values()) == 1 for row in rows)


def test_a_client_reads_the_same_rows_as_the_server(postgres_url: str) -> None:
    query = """
        SELECT a, CASE WHEN id = 3 THEN repeat('a', 100000) WHEN id % 5 > 0 THEN color END AS color,
            seen, price, flag, tail, y
        FROM thing
    """
    with mmdb.connect(postgres_url) as db:
        fill(db)
        made = db.create_dataset("by_client", query)
        inside = db.sql("SELECT * FROM mmdb.create_dataset('inside', %(query)s)", {"query": query})
    assert inside[0]["content_hash"] == made.content_hash.hex()


def test_a_row_predicts_the_same_however_it_is_given(db: mmdb.Database, things: str) -> None:
    whole = "to_jsonb(t)" if db.connection.engine == "postgres" else "to_json(t)"
    rows = db.predict_query(things, "SELECT y AS truth, * FROM thing WHERE id <= 21 ORDER BY id")
    assert [row["key"] for row in rows] == [str(number) for number in range(1, 22)]
    for one in db.sql(f"SELECT id, {whole} AS row FROM thing AS t WHERE id <= 21"):
        row = one["row"] if isinstance(one["row"], dict) else json.loads(one["row"])
        high, low = db.predict(things, row)
        expected = rows[one["id"] - 1]
        assert expected["prediction"] == ("high" if high > low else "low")
        assert max(high, low) == pytest.approx(expected["probability"], rel=1e-5)


@pytest.mark.parametrize("name", [f"scan{k}" for k in range(len(SCANS))])
def test_a_scan_predicts_every_row_as_a_query_does(
    db: mmdb.Database, outcomes: dict[str, Any], name: str
) -> None:
    assert outcomes[name].failed == 0
    columns, _ = SCANS[RUNS[name]["architecture"]]
    query = f"SELECT id, {columns} FROM ({SCANNED}) AS s"
    whole = "to_jsonb(q)" if db.connection.engine == "postgres" else "to_json(q)"
    rows = db.sql(
        f"SELECT q.id, mmdb.predict('{name}', {whole}) AS p FROM ({query}) AS q ORDER BY q.id"
    )
    expected = db.predict_query(name, query, key="id", probabilities=True)
    chances = {row["key"]: json.loads(row["probabilities"]) for row in expected}
    assert len(rows) == ROWS
    for row in rows:
        named = chances[str(row["id"])]
        assert row["p"] == pytest.approx([named["high"], named["low"]], abs=1e-5)


def test_a_statement_that_follows_a_change_sees_it(postgres_url: str) -> None:
    """Which model a name means is looked up once a statement, whatever happens between two."""
    with mmdb.connect(postgres_url) as db:
        fill(db)
        db.create_dataset("things", "SELECT b, y FROM thing")
        space = {"lr": [0.1, 0.5]}
        db.create_run(
            "r", dataset="things", architecture="linear", search={"space": space}, epochs=1
        )
        db.run("r").train(workers=1)
        for row in db.run("r").leaderboard():
            db.save_candidate(row["candidate_id"], "m")
    move, show = (
        "mmdb.set_alias('m', {}, 'prod')",
        "SELECT mmdb.predict('m@prod', ARRAY[50]::real[])::text",
    )
    with psycopg.connect(postgres_url, autocommit=True) as one:

        def said(statement: str = show) -> str:
            return str(one.execute(statement.encode()).fetchall()[0][0])

        def moved(version: int) -> None:
            one.execute(f"SELECT {move.format(version)}".encode())

        first, second = (said(show.replace("prod", version)) for version in ("1", "2"))
        assert first != second
        for version, expected in ((1, first), (2, second), (1, first)):
            moved(version)
            assert said() == said() == expected
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute(f"SELECT {move.format(2)}".encode())
        assert said() == second
        with one.transaction(force_rollback=True):
            moved(1)
            assert said() == first
            with one.transaction(force_rollback=True):
                moved(2)
                assert said() == second
            assert said() == first
        assert said() == second
        one.execute(
            f"""
            CREATE FUNCTION public.both() RETURNS text LANGUAGE plpgsql AS $$
            DECLARE a text; b text; c text;
            BEGIN
                PERFORM {move.format(1)}; a := ({show});
                PERFORM {move.format(2)}; b := ({show});
                BEGIN
                    PERFORM {move.format(1)}; c := ({show});
                    RAISE division_by_zero;
                EXCEPTION WHEN division_by_zero THEN NULL;
                END;
                RETURN a || ' ' || b || ' ' || c || ' ' || ({show});
            END
            $$
            """.encode()  # one statement of the client's, in which each of its own sees more
        )
        assert said("SELECT public.both()") == f"{first} {second} {first} {second}"
        drop = "DO $$ BEGIN PERFORM mmdb.predict('m@1', ARRAY[50]::real[]); "
        drop += "PERFORM mmdb.drop_model('m', 1); PERFORM mmdb.predict('m@1', ARRAY[50]::real[]); "
        with pytest.raises(psycopg.Error, match="There is no model 'm@1'"):
            one.execute(f"{drop} END $$".encode())


def test_what_training_never_saw_is_predicted_as_fitted(db: mmdb.Database, things: str) -> None:
    nothing = {name: None for name in BECOMES}
    assert sum(db.predict(things, nothing)) == pytest.approx(1)
    strange = nothing | {"color": "pink", "tail": "no plane", "a": 1e9}
    assert sum(db.predict(things, strange)) == pytest.approx(1)
    query = (
        "SELECT id, NULL::integer AS a, b, seen, born, clock, took, 'pink' AS color, tail, mark, "
    )
    query += "flag, price, empty FROM thing WHERE id < 4"
    assert len(db.predict_query(things, query)) == 3
    with pytest.raises(errors.InvalidInput, match="'seen' holds 'never', which is no date"):
        db.predict(things, nothing | {"seen": "never"})
    with pytest.raises(errors.InvalidInput, match="'seen' holds 5, which is no date"):
        db.predict(things, nothing | {"seen": 5})


def test_a_model_measures_rows_of_other_statistics_by_its_own(
    db: mmdb.Database, outcomes: dict[str, Any]
) -> None:
    assert outcomes["others"].failed == 0
    db.create_dataset("some", f"SELECT * FROM ({OTHERS} WHERE id % 3 = 0) AS q", validation=0)
    own, other = (find_dataset(db.connection, n).decoding for n in ("others", "some"))
    assert own.columns[0].transform != other.columns[0].transform
    rows = db.predict_query("others", "SELECT * FROM thing WHERE id % 3 = 0 ORDER BY id", key="id")
    truth = [row["y"] for row in db.sql("SELECT y FROM thing WHERE id % 3 = 0 ORDER BY id")]
    right = np.mean([row["prediction"] == y for row, y in zip(rows, truth, strict=True)])
    assert len({row["prediction"] for row in rows}) == 2
    assert db.evaluate("others", "some")["accuracy"] == pytest.approx(right)


@pytest.mark.parametrize("seed", range(2))
def test_rows_that_are_held_out_change_no_statistic(db: mmdb.Database, seed: int) -> None:
    columns, options = "a, b, seen, color, tail, y", {"transforms": {"id": "passthrough"}}
    query = f"SELECT id, {columns} FROM thing WHERE id <> 9 UNION ALL SELECT id, "
    held_out: list[Any] = []
    trained_on: list[Any] = []
    for number in range(6):  # the row's key, and so its slice, depends on its values
        columns = f"a * {number + 100} AS a, b, seen, color, 'new' AS tail, y"
        one = f"SELECT * FROM ({query}{columns} FROM thing WHERE id = 9) AS q"
        name, whole = f"held{seed}_{number}", one.replace("*", "q.*", 1)
        db.create_dataset(name, whole, seed=seed, validation=0.5, options=options)
        found = find_dataset(db.connection, name).decoding.columns
        trained = {row["features"]["id"] for row in db.transformed(name, ROWS)}
        (trained_on if 9 in trained else held_out).append([c.transform for c in found])
    assert len(held_out) > 1 and all(one == held_out[0] for one in held_out)
    assert trained_on and all(one != held_out[0] for one in trained_on)


def written(db: mmdb.Database) -> dict[str, int]:
    """Return the rows of each table that `create_dataset` writes."""
    tables = ("dataset", "dataset_column", "transform", "partition", "block")
    found = {table: db.sql(f"SELECT count(*) AS n FROM mmdb.{table}") for table in tables}
    return {table: rows[0]["n"] for table, rows in found.items()}


BAD: list[tuple[str, dict[str, Any], type[errors.MmdbError], str]] = [
    ("SELECT a, NULL::integer AS y FROM thing", {}, errors.NullValues, r"y \(400\)"),
    ("SELECT a, CASE WHEN id <> 7 THEN y END AS y FROM thing", {}, errors.NullValues,
     r"NULLs: y \(1\)\."),  # and no word of a, whose NULLs are learned from
    ("SELECT a, CASE WHEN id > 7 THEN ARRAY[b, 1]::real[] END AS v, y FROM thing", {},
     errors.NullValues, r"NULLs: v \(7\)\."),
    ("SELECT b, 'x' AS y FROM thing", {}, errors.OneClass, "'y' has the single class 'x'"),
    ("SELECT b, 'x' || id AS t, y FROM thing", {}, errors.DataError, "'t' has as many different"),
    ("SELECT b, y FROM thing", {"transforms": {"c": "robust"}}, errors.InvalidOption, "'c'"),
    ("SELECT b, y FROM thing", {"transforms": {"b": "cyclic"}}, errors.InvalidOption, "'b'"),
    ("SELECT b, color, y FROM thing", {"transforms": {"color": "robust"}}, errors.InvalidOption,
     "'color' cannot be transformed by 'robust'"),
    ("SELECT empty, b, y FROM thing", {"transforms": {"empty": "robust"}}, errors.DataError,
     "'empty' is NULL in every train row"),
    ("SELECT empty, y FROM thing", {}, errors.DataError, "No feature is left"),
    ("SELECT b, color, y FROM thing", {"transforms": {"*": "drop"}}, errors.DataError,
     "each is dropped, or has one value"),
    ("SELECT a, b, y FROM thing", {"transforms": {"b": "drop"}, "roles": {"b": "weight"}},
     errors.InvalidOption, "'b', which is no feature"),
    ("SELECT 'NaN'::real AS n, b, y FROM thing", {}, errors.NotFinite, r"n \(400 rows\)"),
    ("SELECT 'Infinity'::real AS n, b, y FROM thing", {}, errors.NotFinite, r"n \(400 rows\)"),
    ("SELECT 'infinity'::timestamp AS t, b, y FROM thing", {}, errors.NotFinite, "t "),
    ("SELECT date '10000-01-01' AS t, b, y FROM thing", {}, errors.DataError, "'t' holds a date"),
    ("SELECT b, color, y FROM thing", {"roles": {"color": "key"}}, errors.DataError,
     "'color' is no key"),
    ("SELECT b, y FROM thing", {"roles": {"b": "boss"}}, errors.InvalidOption, "boss"),
    ("SELECT b, y FROM thing", {"roles": {"z": "key"}}, errors.InvalidOption, "'z'"),
    ("SELECT b, y FROM thing", {"roles": {"b": "excluded"}}, errors.DataError, "no feature"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "options", "error", "named"), BAD)
def test_what_cannot_be_trained_on_is_named_and_leaves_nothing(
    db: mmdb.Database,
    query: str,
    options: dict[str, Any],
    error: type[errors.MmdbError],
    named: str,
) -> None:
    before = written(db)
    with pytest.raises(error, match=named):
        db.create_dataset("bad", query, options=options)
    assert written(db) == before


def test_a_column_that_is_dropped_is_never_read(db: mmdb.Database) -> None:
    query = "SELECT id, a, b, color, y FROM thing"
    options = {"transforms": {"color": "drop", "b": "robust"}, "roles": {"id": "key"}}
    db.create_dataset("dropping", query, options=options)
    decoding = find_dataset(db.connection, "dropping").decoding
    assert [column.name for column in decoding.features] == ["a", "b"]
    assert {column.name: column.kind for column in decoding.columns}["color"] == "dropped"
    db.create_run("dropping", dataset="dropping", architecture="linear", epochs=1)
    assert db.run("dropping").train(workers=1).failed == 0
    assert len(db.predict_query("dropping", "SELECT id, a, b FROM thing")) == ROWS
    assert len(db.predict("dropping", {"a": 1, "b": 2})) == 2
    assert not db.refresh_dataset("dropping").is_new


def test_an_architecture_that_knows_no_codes_is_refused(
    db: mmdb.Database, outcomes: dict[str, Any]
) -> None:
    with pytest.raises(errors.FactoryFailed, match="'tail' is a code"):
        db.create_run("refused", dataset="codes", architecture="transformer")
    for name in ("linear", "mlp", "tabular"):
        assert outcomes[f"codes_{name}"].failed == 0


def test_a_regression_is_learned_in_deviations_and_told_in_units(
    db: mmdb.Database, outcomes: dict[str, Any]
) -> None:
    assert outcomes["worth"].failed == 0
    (target,) = find_dataset(db.connection, "worth").targets
    assert target.scale is not None and target.scale[0] > 5_000_000
    found = db.run("worth").leaderboard()[0]
    assert 0 < found["validation_loss"] < 2  # in squared deviations
    assert found["rmse"] == pytest.approx(db.evaluate("worth", "worth")["rmse"], rel=1e-4)
    assert found["rmse"] > 1000
    (value,) = db.predict("worth", {"b": 1.0, "color": "red"})
    assert value == pytest.approx(target.scale[0], abs=4 * target.scale[1])


def ids(db: mmdb.Database, dataset: str, role: str) -> set[int]:
    """Return the ids of the rows of a slice."""
    slices = find_dataset(db.connection, dataset).slices
    found: set[int] = set()
    for part in slices:
        if part.role == role:
            decoded = read_partition(db.connection, part.part_id, part.content_hash)
            found |= set(decoded.plain[0][:, 0].astype(int).tolist())
    return found


def slices(db: mmdb.Database, split: dict[str, Any]) -> dict[str, set[int]]:
    """Make a dataset and return the ids of the rows of each of its slices."""
    options = {"split": split, "transforms": {"id": "passthrough"}}
    query = "SELECT id, seen, tail, b, CASE WHEN id % 5 = 0 THEN 'Test' ELSE 'train' END AS fold, y"
    name = f"split{next(_numbers)}"
    db.create_dataset(name, f"{query} FROM thing", options=options)
    return {role: ids(db, name, role) for role in ("train", "validation", "test")}


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ({"test": 0.25}, None),
        ({"by": "time", "column": "seen", "test": 0.25}, ((1, 220), (221, 300), (301, 400))),
        ({"by": "time", "column": "id", "validation": 0.5}, ((1, 200), (201, 400), None)),
        (
            {"by": "time", "column": "seen", "validation": "2013-01-10", "test": "2013-01-15"},
            ((1, 212), (213, 330), (331, 400)),
        ),
        ({"by": "group", "column": "tail", "test": 0.25}, None),
        ({"by": "column", "column": "fold"}, None),
    ],
)
def test_rows_are_divided_as_asked(
    db: mmdb.Database, split: dict[str, Any], expected: tuple[Any, ...] | None
) -> None:
    found = slices(db, split)
    assert sorted(one for role in found.values() for one in role) == list(range(1, ROWS + 1))
    if expected is not None:
        wanted = [set(range(one[0], one[1] + 1)) if one else set() for one in expected]
        assert list(found.values()) == wanted
    elif split.get("by") == "column":
        assert found["test"] == set(range(5, ROWS + 1, 5)) and not found["validation"]
    elif split.get("by") == "group":
        groups = [{number * number % 97 for number in one} for one in found.values()]
        assert all(groups) and not groups[0] & groups[1] | groups[0] & groups[2]
        assert not groups[1] & groups[2]
    else:
        assert [len(one) for one in found.values()] == [220, 80, 100]


def test_a_test_slice_is_for_evaluation_alone(db: mmdb.Database, outcomes: dict[str, Any]) -> None:
    (test,) = (part for part in find_dataset(db.connection, "tested").slices if part.role == "test")
    assert outcomes["tested"].hops == 2 * 5
    assert not db.sql(f"SELECT 1 FROM mmdb.hop WHERE part_id = {test.part_id}")
    (row,) = db.run("tested").leaderboard()
    with pytest.raises(errors.MmdbError):
        db.sql(f"SELECT * FROM mmdb.train_hop({test.part_id}, {row['candidate_id']}, 2)")
    roles = ("train", "validation", "test")
    whole = [db.evaluate("tested", "tested", one)["accuracy"] for one in roles]
    assert len(set(whole)) > 1 and db.evaluate("tested", "tested")["accuracy"] == whole[1]
    with pytest.raises(errors.InvalidOption, match="'holdout'"):
        db.evaluate("tested", "tested", "holdout")


BAD_SPLITS: list[tuple[dict[str, Any], type[errors.MmdbError], str]] = [
    ({"by": "time", "column": "gone"}, errors.UnknownColumn, "'gone'"),
    ({"by": "time", "column": "color"}, errors.InvalidOption, "'color' is text"),
    ({"by": "time", "column": "a"}, errors.NullValues, "'a', which splits"),
    ({"by": "column", "column": "color"}, errors.DataError, "'color', which splits"),
    ({"by": "time", "column": "b", "validation": "soon"}, errors.InvalidOption, "'soon'"),
    ({"by": "time", "column": "b", "validation": "2030-01-01"}, errors.TooFewRows, "validation"),
    ({"by": "time", "column": "b"}, errors.DataError, "No train row has the class high"),
    ({"by": "weekday"}, errors.InvalidOption, "'weekday'"),
    ({"by": "group"}, errors.InvalidOption, "column"),
    ({"test": 0.9}, errors.InvalidOption, "all rows"),
    ({"share": 0.9}, errors.InvalidOption, "'share'"),
]


@pytest.mark.parametrize(("split", "error", "named"), BAD_SPLITS)
def test_a_split_that_cannot_be_is_named(
    db: mmdb.Database, split: dict[str, Any], error: type[errors.MmdbError], named: str
) -> None:
    query = "SELECT id, seen, a, b, CASE WHEN color IS NULL THEN 'train' ELSE color END AS color, y"
    before = written(db)
    with pytest.raises(error, match=named):
        db.create_dataset("bad", f"{query} FROM thing", validation=0.5, options={"split": split})
    assert written(db) == before


def test_a_run_that_learned_nothing_says_so(db: mmdb.Database) -> None:
    db.create_dataset("coins", "SELECT b, id * 7919 % 97 % 3 = 0 AS y FROM thing", validation=0.3)
    db.create_run("coins", dataset="coins", architecture="linear", epochs=2)
    match = "the most frequent class alone would be in"
    with pytest.warns(errors.NothingLearned, match=match) as warned:
        db.run("coins").train(workers=1)
    assert __file__ in [one.filename for one in warned]
    db.create_dataset("sums", "SELECT b, b * 2.5 AS z FROM thing", label="z")
    space = {"architecture.hidden": [[64], []], "lr": [0.01]}
    db.create_run("sums", dataset="sums", search={"space": space}, epochs=40)
    found = {repr(row["config"]["architecture.hidden"]) for row in db.run("sums").leaderboard()}
    assert found == {"[]", "[64]"}


def test_an_architecture_is_chosen_by_the_form_of_the_rows(db: mmdb.Database) -> None:
    db.create_dataset("rows", "SELECT b, tail, y FROM thing")
    db.create_run("rows", dataset="rows", epochs=1)
    (run,) = db.sql("SELECT architecture, options, epochs FROM mmdb.run WHERE name = 'rows'")
    assert json.loads(text_of(run["architecture"]))["factory"] == "tabular"
    assert json.loads(text_of(run["options"]))["metric"] == "loss" and run["epochs"] == 1
    pixels = "ARRAY[" + ", ".join(f"(b + {place})::real" for place in range(16)) + "]::real[]"
    options = {"shape": [1, 4, 4]}
    db.create_dataset("pictures", f"SELECT {pixels} AS p, y FROM thing", options=options)
    db.create_run("pictures", dataset="pictures")
    (run,) = db.sql("SELECT architecture, epochs FROM mmdb.run WHERE name = 'pictures'")
    assert json.loads(text_of(run["architecture"]))["factory"] == "cnn" and run["epochs"] > 1
    db.create_dataset("bare", "SELECT b, y FROM thing", validation=0)
    db.create_run("bare", dataset="bare")
    assert len(db.run("bare").leaderboard()) == 1
    tokens = {"tokenize": {"tail": {"function": "bytes", "length": 4}}}
    db.create_dataset("said", "SELECT tail, y FROM thing", options=tokens)
    with pytest.raises(errors.InvalidOption, match="No architecture is given"):
        db.create_run("said", dataset="said")


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def test_rows_of_weight_0_teach_nothing(db: mmdb.Database, outcomes: dict[str, Any]) -> None:
    """Half of the rows say the opposite and weigh nothing, or all that there is."""
    truth = [row["y"] for row in db.sql("SELECT y FROM thing ORDER BY id")]
    shares = []
    for name in ("even", "odd"):
        dataset = find_dataset(db.connection, name)
        assert dataset.decoding.is_weighted
        assert [column.name for column in dataset.decoding.features] == ["b"]
        assert outcomes[name].failed == 0
        rows = db.predict_query(name, "SELECT id, b FROM thing ORDER BY id", key="id")
        right = [row["prediction"] == y for row, y in zip(rows, truth, strict=True)]
        shares.append(np.mean(right))
        assert db.evaluate(name, name)["accuracy"] > 0.9  # of the rows that weigh anything
    assert shares[0] > 0.9
    assert shares[1] < 0.1


@pytest.mark.parametrize(
    ("weight", "named"),
    [
        ("CASE WHEN id = 7 THEN -0.5 ELSE 1 END", "the weight -0.5"),
        ("0", "weighs every train row 0"),
        ("CASE WHEN id > 7 THEN 1 END", r"NULLs: w \(7\)"),
        ("'much'", "a weight is a number from 0"),
    ],
)
def test_a_weight_that_is_none_is_named(db: mmdb.Database, weight: str, named: str) -> None:
    before = written(db)
    with pytest.raises(errors.MmdbError, match=named):
        db.create_dataset(
            "bad",
            f"SELECT a, b, {weight} AS w, y FROM thing",
            label="y",
            options={"roles": {"w": "weight"}},
        )
    assert written(db) == before


def test_a_key_that_is_named_as_a_column_of_predictions_is_refused(
    db: mmdb.Database, outcomes: dict[str, Any]
) -> None:
    assert outcomes["keyed"].failed == 0
    with pytest.raises(errors.TargetMismatch, match="named model"):
        db.predict_into("keyed", KEYED, "guesses")


def test_predictions_carry_the_datasets_key_and_all_probabilities(
    db: mmdb.Database, outcomes: dict[str, Any]
) -> None:
    assert outcomes["coded"].failed == 0
    rows = db.predict_query("coded", f"{CODED} WHERE id < 9", probabilities=True)
    assert {row["key"] for row in rows} == {f"k{number}" for number in range(1, 9)}
    for row in rows:
        chances = json.loads(row["probabilities"])
        assert sorted(chances) == ["high", "low"]
        assert sum(chances.values()) == pytest.approx(1.0, abs=1e-5)
        assert chances[row["prediction"]] == row["probability"] == max(chances.values())
    assert "probabilities" not in db.predict_query("coded", f"{CODED} WHERE id < 3")[0]
    for name, is_whole in (("plain", False), ("whole", True)):
        assert db.predict_into("coded", CODED, name, probabilities=is_whole) == ROWS
        assert db.predict_into("coded", CODED, name, probabilities=is_whole) == ROWS
    whole = db.sql("SELECT * FROM whole ORDER BY code, predicted_at LIMIT 1")[0]
    assert [*whole] == [
        "code", "prediction", "probability", "model", "predicted_at", "probabilities",
    ]  # fmt: skip
    plain = db.sql("SELECT * FROM plain LIMIT 1")[0]
    assert [*plain] == [*whole][:-1]
    with pytest.raises(errors.TargetMismatch):
        db.predict_into("coded", CODED, "plain", probabilities=True)
    by_id = db.predict_query("coded", "SELECT id, b, color FROM thing", key="id")
    assert len(by_id) == ROWS


def test_a_run_stops_when_its_time_is_over(db: mmdb.Database) -> None:
    query = "SELECT b, id % 2 = 0 AS y FROM thing"
    db.create_dataset("even_ids", query, partitions=1, validation=0.3)
    search = {"method": "tpe", "trials": 6, "space": {"lr": {"low": 0.01, "high": 0.1}}}
    run = db.create_run(
        "timed",
        dataset="even_ids",
        architecture="linear",
        search=search,
        epochs=50,
        budget="0.001 s",
    )
    done = run.train(workers=1)  # over as soon as one candidate has done an epoch
    assert done.model == "timed" and done.candidates < 6
    rows = db.sql("SELECT status, epochs FROM mmdb.candidate_overview WHERE run = 'timed'")
    assert {row["status"] for row in rows} <= {"stopped", "finished"}
    assert max(row["epochs"] or 0 for row in rows) == 1
    stops = db.sql(
        "SELECT d.detail FROM mmdb.decision AS d INNER JOIN mmdb.run AS r USING (run_id)"
        " WHERE r.name = 'timed' AND d.kind = 'stop'"
    )
    assert {json.loads(text_of(row["detail"]))["reason"] for row in stops} == {"budget"}
    assert run.train(workers=1).candidates <= 6
