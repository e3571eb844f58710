"""Predictions written to tables: on both engines, and by a client of a server without functions."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.cli import main
from mmdb.db.duck import DuckConnection
from mmdb.db.install import install
from mmdb.db.postgres import PostgresConnection
from mmdb.db.prediction_table import PredictionTarget
from mmdb.graph.factories import linear
from tests.cluster import Cluster

COLUMNS = ["id", "prediction", "probability", "model", "predicted_at"]
QUERY = "SELECT id, a, b FROM points"
SECRET = '"; DROP TABLE points; --'
_numbers = count(1)


@pytest.fixture(scope="module", params=["duckdb", "postgres", "client"])
def url(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Yield the URL of a database for all tests of this file."""
    if request.param == "duckdb":
        yield f"duckdb:///{tmp_path_factory.mktemp('predictions') / 'mmdb.duckdb'}"
        return
    name = f"predictions_{request.param}"
    if request.param == "postgres":
        yield cluster.create_database(name, request.getfixturevalue("template"))
    else:
        made = cluster.create_database(name)
        install(made, mode="client")
        yield made
    cluster.drop_database(name)


def save_model(db: mmdb.Database) -> None:
    """Save a model of dataset d under the name m."""
    (dataset,) = db.sql("SELECT input_shape FROM mmdb.dataset WHERE name = 'd'")
    torch.manual_seed(0)
    module = linear(tuple(dataset["input_shape"]), 2)
    db.save("m", module, architecture="linear", dataset="d")


@pytest.fixture(scope="module")
def filled(url: str) -> Iterator[mmdb.Database]:
    """Yield an open database with a table, a dataset and a model of it."""
    with mmdb.connect(url) as db:
        db.sql(
            "CREATE TABLE points AS SELECT i::bigint AS id, (i % 7 - 3)::real AS a, "
            "(i % 11 - 5)::real AS b, CASE WHEN i % 7 > 3 THEN 'yes' ELSE 'no' END AS y "
            "FROM generate_series(1, 50) AS g (i)"
        )
        db.create_dataset("d", "SELECT a, b, y FROM points", partitions=1)
        save_model(db)
        yield db


@pytest.fixture
def db(filled: mmdb.Database) -> mmdb.Database:
    return filled


@pytest.fixture
def target() -> str:
    """Return the name of a table that no other test has."""
    return f"predictions_{next(_numbers)}"


def tables(db: mmdb.Database) -> set[str]:
    return {
        row["table_name"]
        for row in db.sql(
            "SELECT table_name::text AS table_name FROM information_schema.tables "
            "WHERE table_schema NOT IN ('mmdb', 'pg_catalog', 'information_schema')"
        )
    }


def recorded(db: mmdb.Database) -> list[Any]:
    return db.sql("SELECT * FROM mmdb.prediction_overview ORDER BY prediction_id")


def kept(db: mmdb.Database) -> tuple[object, ...]:
    """Return all that a call can leave."""
    sources = db.sql("SELECT count(*) AS n FROM mmdb.prediction_source")
    return tables(db), len(recorded(db)), sources


def assert_refused(db: mmdb.Database, error: type[errors.MmdbError], *given: str) -> str:
    """Assert that a call raises and leaves nothing; return its message."""
    before = kept(db)
    with pytest.raises(error) as raised:
        db.predict_into("m", *given)
    assert kept(db) == before
    return raised.value.message


# -- what is written ----------------------------------------------------------


def test_the_rows_are_those_of_predict_query(db: mmdb.Database, target: str) -> None:
    assert db.predict_into("m", QUERY, target) == 50
    rows = db.sql(f"SELECT * FROM {target} ORDER BY id")
    assert list(rows[0]) == COLUMNS
    wanted = {row["key"]: row for row in db.predict_query("m", QUERY)}
    assert [str(row["id"]) for row in rows] == sorted(wanted, key=int)
    for row in rows:
        same = wanted[str(row["id"])]
        assert (row["prediction"], row["probability"]) == (same["prediction"], same["probability"])
    assert {(row["model"], row["predicted_at"]) for row in rows} == {
        ("m@1", recorded(db)[-1]["predicted_at"])
    }


def test_a_number_has_no_probability(db: mmdb.Database, target: str) -> None:
    db.create_dataset(target, "SELECT a, b, a + b AS y FROM points", partitions=1)
    db.save(target, linear((2,), 1), architecture="linear", dataset=target)
    assert db.predict_into(target, QUERY, target) == 50
    rows = db.sql(f"SELECT id, prediction, probability FROM {target}")
    wanted = {row["key"]: row["prediction"] for row in db.predict_query(target, QUERY)}
    assert {str(row["id"]): row["prediction"] for row in rows} == wanted
    assert {row["probability"] for row in rows} == {None}


def test_a_second_call_adds_rows(db: mmdb.Database, target: str) -> None:
    db.predict_into("m", QUERY, target)
    assert db.predict_into("m", QUERY + " WHERE id <= 3", target) == 3
    found = db.sql(f"SELECT predicted_at, count(*) AS n FROM {target} GROUP BY 1 ORDER BY 1")
    assert [row["n"] for row in found] == [50, 3]


def test_a_query_without_rows_makes_an_empty_table(db: mmdb.Database, target: str) -> None:
    assert db.predict_into("m", QUERY + " WHERE false", target) == 0
    assert db.sql(f"SELECT * FROM {target}") == []
    assert recorded(db)[-1]["row_count"] == 0


def test_what_was_predicted_is_recorded(db: mmdb.Database, target: str) -> None:
    db.predict_into("m@1", "SELECT id AS name, a, b FROM points WHERE y = 'no'", target, key="name")
    row = recorded(db)[-1]
    place = "main" if db.connection.engine == "duckdb" else "public"
    assert [row[name] for name in ("model", "version", "schema_name", "table_name")] == [
        *("m", 1),
        *(place, target),
    ]
    assert row["key_name"] == "name"
    assert row["query"] == "SELECT id AS name, a, b FROM points WHERE y = 'no'"
    assert row["row_count"] == db.sql(f"SELECT count(*) AS n FROM {target}")[0]["n"]
    assert row["seconds"] > 0
    assert row["author"] == ("" if db.connection.engine == "duckdb" else "postgres")
    sources = db.sql(
        "SELECT table_name, column_name, output_name, resolution FROM mmdb.prediction_source "
        f"WHERE prediction_id = {row['prediction_id']} ORDER BY column_name"
    )
    assert [tuple(source.values()) for source in sources] == [
        ("points", "a", "a", "column"),
        ("points", "b", "b", "column"),
        ("points", "id", "name", "column"),
        ("points", "y", None, "column"),
    ]


def test_lineage_goes_through_tables_of_predictions_in_a_circle(
    db: mmdb.Database, target: str
) -> None:
    place = "main" if db.connection.engine == "duckdb" else "public"
    db.predict_into("m", QUERY, target)
    query = f"SELECT probability AS a, probability AS b, prediction AS y FROM {target}"
    db.create_dataset(target, query, partitions=1)
    db.save(target, linear((2,), 2), architecture="linear", dataset=target)
    again = f"SELECT id, probability AS a, probability AS b FROM {target}"
    db.predict_into(target, again, target)
    found = {(row["parent"], row["child"]) for row in db.lineage("model:m@1", "down")}
    table = f"{place}.{target}"
    assert found >= {
        ("model:m@1", f"table:{table}"),
        (f"column:{table}.probability", f"dataset:{target}"),
        (f"dataset:{target}", f"model:{target}@1"),
        (f"model:{target}@1", f"table:{table}"),
        (f"column:{table}.probability", f"table:{table}"),
    }


KEYS = {
    "smallint": "id::smallint",
    "boolean": "id > 3",
    "text": "chr(39) || id::text || chr(9) || chr(92) || 'é'",
    "numeric(9,3)": "(id / 8.0)::numeric(9, 3)",
    "double precision": "id / 7.0::double precision",
    "date": "date '2024-02-29' + id::integer",
    "timestamp": "timestamp '2024-02-29 12:00:00.000001'",
    "timestamptz": "timestamptz '2024-02-29 12:00:00.5+02'",
    "uuid": "'c0ffee00-0000-4000-8000-00000000000a'::uuid",
    "bytea": "convert_to(id::text || 'é', 'UTF8')",
    "array": "array[id::integer, 2]",
}


@pytest.mark.parametrize("kind", KEYS)
def test_the_key_keeps_its_type_and_values(db: mmdb.Database, target: str, kind: str) -> None:
    key = KEYS[kind]
    if db.connection.engine == "duckdb":
        key = key.replace("convert_to(id::text || 'é', 'UTF8')", "encode(id::text || 'é')")
    query = f"SELECT {key} AS id, a, b FROM points WHERE id <= 5"
    assert db.predict_into("m", query, target) == 5
    assert db.predict_into("m", query, target) == 5  # the type is compared with its own
    twice = f"SELECT id FROM ({query}) AS q UNION ALL SELECT id FROM ({query}) AS q"
    typed = "typeof" if db.connection.engine == "duckdb" else "pg_typeof"
    found, wanted = (
        db.sql(f"SELECT id, {typed}(id)::text AS type FROM ({source}) AS s ORDER BY 1")
        for source in (f"SELECT id FROM {target}", twice)
    )
    assert found == wanted


# -- what is refused ----------------------------------------------------------


def test_a_table_of_other_columns_is_refused(db: mmdb.Database, target: str) -> None:
    assert "points has the columns id bigint, a" in assert_refused(
        db, errors.TargetMismatch, QUERY, "points"
    ).replace("BIGINT", "bigint")
    db.predict_into("m", QUERY, target)
    other = "SELECT id::text AS id, a, b FROM points"
    assert_refused(db, errors.TargetMismatch, other, target)
    assert db.sql(f"SELECT count(*) AS n FROM {target}")[0]["n"] == 50


def test_a_view_is_refused(db: mmdb.Database, target: str) -> None:
    db.predict_into("m", QUERY, target)
    db.sql(f"CREATE VIEW {target}_view AS SELECT * FROM {target}")
    assert "is no table" in assert_refused(db, errors.TargetMismatch, QUERY, f"{target}_view")
    assert db.sql(f"SELECT count(*) AS n FROM {target}")[0]["n"] == 50


def test_a_key_named_as_another_column_is_refused(db: mmdb.Database, target: str) -> None:
    for name in ("prediction", "Model"):
        with pytest.raises(errors.TargetMismatch, match="as a column of the predictions"):
            db.predict_into("m", f'SELECT id AS "{name}", a, b FROM points', target, key=name)
    assert target not in tables(db)


@pytest.mark.parametrize(
    ("column", "error"),
    [
        ("'NaN'::real", errors.NotFinite),
        ("CASE WHEN id = 50 THEN (1 / (id - 50))::real ELSE a END", errors.MmdbError),
    ],
    ids=["nan", "failure"],
)
def test_a_bad_row_leaves_nothing(
    db: mmdb.Database, target: str, column: str, error: type[errors.MmdbError]
) -> None:
    query = f"SELECT id, {column} AS a, b FROM points ORDER BY id"
    if error is errors.MmdbError and db.connection.engine == "duckdb":
        query = query.replace("(1 / (id - 50))::real", "error('no')")
    assert_refused(db, error, query, target)


def test_a_row_that_the_table_refuses_leaves_nothing(db: mmdb.Database, target: str) -> None:
    db.predict_into("m", QUERY + " WHERE id <= 3", target)
    db.sql(f"CREATE UNIQUE INDEX {target}_id ON {target} (id)")
    before = db.sql(f"SELECT * FROM {target} ORDER BY id")
    assert_refused(db, errors.DatabaseFailed, QUERY + " ORDER BY id DESC", target)
    assert db.sql(f"SELECT * FROM {target} ORDER BY id") == before


def test_what_the_query_lacks_is_told(db: mmdb.Database, target: str) -> None:
    assert "'id'" in assert_refused(db, errors.UnknownColumn, "SELECT a, b FROM points", target)
    assert_refused(db, errors.UnknownColumn, "SELECT id, a FROM points", target)
    assert_refused(db, errors.UnknownTable, "SELECT id, a, b FROM nowhere", target)
    assert_refused(db, errors.NotASelect, "DELETE FROM points", target)
    assert_refused(db, errors.NotASelect, "SELECT model_id AS id FROM mmdb.model", target)
    assert_refused(db, errors.NotOneStatement, f"{QUERY}; {QUERY}", target)


def test_a_model_that_is_not_there_is_told(db: mmdb.Database, target: str) -> None:
    with pytest.raises(errors.ModelNotFound):
        db.predict_into("nobody", QUERY, target)


def test_an_open_transaction_is_refused_outside_of_the_server(
    db: mmdb.Database, target: str, url: str
) -> None:
    is_server = "predictions_postgres" in url
    db.sql("BEGIN")
    if is_server:  # it is the caller's transaction
        assert db.predict_into("m", QUERY, target) == 50
    else:
        with pytest.raises(errors.InTransaction):
            db.predict_into("m", QUERY, target)
    db.sql("ROLLBACK")
    assert target not in tables(db)


# -- names --------------------------------------------------------------------

#: What is typed, and the table's name; None: refused.
NAMES = {
    "plain_1": "plain_1",
    '"with space"': "with space",
    '"a.b"': "a.b",
    '"ünïcode"': "ünïcode",
    "überall": "überall",
    '"日本"': "日本",
    '"it\'s"': "it's",
    '"say ""hi"""': 'say "hi"',
    '"%(x)s::text %s %%"': "%(x)s::text %s %%",
    '"$1 {0} {name}"': "$1 {0} {name}",
    '"select"': "select",
    '"a;b--c/*"': "a;b--c/*",
    '"' + SECRET.replace('"', '""') + '"': SECRET,
    '"\\x"': "\\x",
    '"new\nline"': "new\nline",
    "": None,
    '""': None,
    ".": None,
    "a.": None,
    ".a": None,
    "a b": None,
    "1a": None,
    "a-b": None,
    "a;b": None,
    "a.b.c": None,
    '"a': None,
    'a"b"': None,
    "points; DROP TABLE points": None,
    SECRET: None,
    '"a\0b"': None,
    '"\ud800"': None,
    "(SELECT 1)": None,
    "points AS p": None,
    "E'a'": None,
}


@pytest.mark.parametrize("typed", NAMES, ids=ascii)
def test_names_are_names_and_nothing_else(db: mmdb.Database, typed: str) -> None:
    query, name = QUERY + " WHERE id <= 2", NAMES[typed]
    before = tables(db)
    if name is None:
        with pytest.raises(errors.InvalidName):
            db.predict_into("m", query, typed)
        assert tables(db) == before
        return
    assert db.predict_into("m", query, typed) == 2
    assert db.predict_into("m", query, typed) == 2
    assert tables(db) - before == {name}
    quoted = '"' + name.replace('"', '""') + '"'
    assert db.sql(f"SELECT count(*) AS n FROM {quoted}") == [{"n": 4}]
    assert recorded(db)[-1]["table_name"] == name
    assert "points" in tables(db)


@pytest.mark.parametrize("key", ['k"ey', "k%(x)sey", "k.e y", "k'); DROP TABLE points; --"])
def test_a_key_may_have_any_name(db: mmdb.Database, target: str, key: str) -> None:
    quoted = '"' + key.replace('"', '""') + '"'
    query = f"SELECT id AS {quoted}, a, b FROM points"
    assert db.predict_into("m", query, target, key=key) == 50
    assert db.predict_into("m", query, target, key=key) == 50
    assert list(db.sql(f"SELECT * FROM {target}")[0]) == [key, *COLUMNS[1:]]


@pytest.mark.parametrize(
    "typed",
    [
        "mmdb.mine",
        "MMDB.model",
        "pg_catalog.mine",
        "information_schema.mine",
        "pg_temp.mine",
        '"mmdb"."mine"',
        "nowhere.mine",
    ],
)
def test_schemas_of_the_system_are_refused(db: mmdb.Database, typed: str) -> None:
    assert_refused(db, errors.TargetMismatch, QUERY, typed)


def test_a_schema_may_be_named(db: mmdb.Database) -> None:
    db.sql('CREATE SCHEMA "sh op"')
    assert db.predict_into("m", QUERY, '"sh op".mine') == 50
    assert db.sql('SELECT count(*) AS n FROM "sh op".mine') == [{"n": 50}]
    row = recorded(db)[-1]
    assert (row["schema_name"], row["table_name"]) == ("sh op", "mine")


def test_case_is_as_the_engine_has_it(db: mmdb.Database) -> None:
    db.predict_into("m", QUERY, "CamelCase")
    db.predict_into("m", QUERY, '"CamelCase"')
    folds = db.connection.engine == "postgres"
    assert ("camelcase" in tables(db)) == folds
    assert "CamelCase" in tables(db)
    count = db.sql('SELECT count(*) AS n FROM "CamelCase"')[0]["n"]
    assert count == (50 if folds else 100)


# -- from SQL and from the command line ---------------------------------------


@pytest.mark.parametrize("url", ["duckdb", "postgres"], indirect=True)  # clients have no functions
def test_it_is_called_from_sql(db: mmdb.Database, target: str) -> None:
    statement = f"SELECT mmdb.predict_into('m', '{QUERY}', target => '{target}') AS n"
    if db.connection.engine == "duckdb":
        statement = statement.replace("=>", ":=")
    assert db.sql(statement) == [{"n": 50}]
    assert db.sql(f"SELECT count(*) AS n FROM {target}") == [{"n": 50}]


def test_it_is_called_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"duckdb:///{tmp_path / 'cli.duckdb'}"
    with mmdb.connect(url) as db:
        db.sql("CREATE TABLE t AS SELECT i AS id, i::real AS x, i % 2 AS y FROM range(20) AS r (i)")
        db.create_dataset("d", "SELECT x, y FROM t", partitions=1)
        save_model(db)
    given = ["predict", "m", "SELECT id AS k, x FROM t", "--key", "k", "--database", url]
    assert main([*given, "--into", "out"]) == 0
    assert capsys.readouterr().out == "20 rows added to out\n"
    assert main([*given, "--into", "out", "--json"]) == 0
    assert capsys.readouterr().out == '{"model": "m", "target": "out", "rows": 20}\n'
    assert main([*given, "--into", "mmdb.out"]) == 1
    with mmdb.connect(url) as db:
        assert db.sql("SELECT count(*) AS n, count(DISTINCT k) AS k FROM out") == [
            {"n": 40, "k": 20}
        ]


# -- DuckDB's own -------------------------------------------------------------


def test_a_table_that_another_session_has_not_committed_is_a_conflict() -> None:
    with mmdb.connect("duckdb://") as db:
        assert isinstance(db.connection, DuckConnection)
        table = db.connection.find_target(PredictionTarget.parse("mine", "duckdb"))
        other = db.connection.raw.cursor()
        other.execute("BEGIN")
        other.execute("CREATE TABLE mine (id integer)")
        with pytest.raises(errors.WriteConflict, match="has just made the table"):
            db.connection.create_target(table, "SELECT 1 AS id", "id")


# -- PostgreSQL's own ---------------------------------------------------------


@pytest.fixture(scope="module")
def owner(cluster: Cluster, template: str) -> Iterator[mmdb.Database]:
    """Yield a superuser's session on a database where eve_predicts is a trainer."""
    name = "predictions_rights"
    with mmdb.connect(cluster.create_database(name, template)) as db:
        db.sql(
            "CREATE TABLE t AS SELECT i AS id, i::real AS x, i % 2 AS y "
            "FROM generate_series(1, 20) AS g (i)"
        )
        db.create_dataset("d", "SELECT x, y FROM t", partitions=1)
        save_model(db)
        db.sql(f"CREATE ROLE eve_predicts LOGIN PASSWORD '{cluster.password}'")
        db.sql("GRANT mmdb_trainer TO eve_predicts")
        yield db
    cluster.drop_database(name)
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute("DROP ROLE eve_predicts")


@pytest.fixture(scope="module")
def eve(owner: mmdb.Database) -> Iterator[mmdb.Database]:
    """Yield the trainer's own session."""
    assert isinstance(owner.connection, PostgresConnection)
    with mmdb.connect(owner.connection.url.replace("postgres:", "eve_predicts:", 1)) as db:
        yield db


def test_it_has_the_rights_of_its_caller(owner: mmdb.Database, eve: mmdb.Database) -> None:
    call = ("m", "SELECT id, x FROM t", "public.mine")
    with pytest.raises(errors.RightsMissing, match="permission denied for table t") as caught:
        eve.predict_into(*call)
    grant = 'GRANT SELECT ON "t" TO "eve_predicts"'
    assert caught.value.hint.startswith(grant)
    owner.sql(grant)
    with pytest.raises(errors.RightsMissing, match="permission denied for schema public"):
        eve.predict_into(*call)
    assert recorded(owner) == []
    owner.sql("CREATE SCHEMA eve AUTHORIZATION eve_predicts")
    assert eve.predict_into("m", "SELECT id, x FROM t", "eve.mine") == 20
    owner.predict_into(*call)
    with pytest.raises(errors.RightsMissing, match="permission denied for table mine") as caught:
        eve.predict_into(*call)
    assert caught.value.hint == 'GRANT INSERT ON "mine" TO "eve_predicts".'
    owner.sql("GRANT INSERT ON public.mine TO eve_predicts")
    assert eve.predict_into(*call) == 20  # it need not be able to read it
    authors = [row["author"] for row in recorded(owner)]
    assert authors == ["eve_predicts", "postgres", "eve_predicts"]
    with pytest.raises(errors.RightsMissing):
        eve.sql("INSERT INTO mmdb.prediction (model_id, author) VALUES (1, 'postgres')")


def test_names_are_found_by_the_search_path(owner: mmdb.Database) -> None:
    db, call = owner, "SELECT id, x FROM public.t WHERE id = 1"
    for statement in ("CREATE SCHEMA first", "CREATE SCHEMA second"):
        db.sql(statement)
    db.sql("SET search_path = first, second")
    db.predict_into("m", call, "second.shared")
    db.predict_into("m", call, "shared")  # it is there: rows are added to it
    db.predict_into("m", call, "fresh")  # it is not: it is made where new tables are
    places = [(row["schema_name"], row["table_name"]) for row in recorded(db)[-3:]]
    assert places == [("second", "shared"), ("second", "shared"), ("first", "fresh")]
    db.sql("CREATE TEMP TABLE hidden (id integer)")
    for path, name in (
        ("mmdb", "model"),
        ("mmdb", "mine"),
        ("pg_catalog", "mine"),
        ("first", "hidden"),
        ("nowhere", "mine"),
    ):
        db.sql(f"SET search_path = {path}")
        with pytest.raises(errors.TargetMismatch):
            db.predict_into("m", call, name)
    db.sql("RESET search_path")


def test_a_query_that_writes_is_refused(owner: mmdb.Database) -> None:
    owner.sql("CREATE TABLE log (n integer)")
    owner.sql(
        "CREATE FUNCTION writes() RETURNS integer LANGUAGE sql AS "
        "'INSERT INTO public.log VALUES (1) RETURNING n'"
    )
    with pytest.raises(errors.NotASelect):
        owner.predict_into("m", "SELECT writes() AS id, x FROM public.t", "public.never")
    assert owner.sql("SELECT * FROM log") == []
    assert "never" not in tables(owner)


def test_of_two_sessions_that_make_a_table_at_once_one_is_told(
    owner: mmdb.Database, eve: mmdb.Database
) -> None:
    owner.sql("GRANT SELECT ON t TO eve_predicts")
    owner.sql("CREATE SCHEMA race")
    owner.sql("GRANT ALL ON SCHEMA race TO eve_predicts")
    call = ("m", "SELECT id, x FROM public.t", "race.mine")
    (row,) = eve.sql("SELECT pg_backend_pid() AS pid")
    waits = f"SELECT 1 FROM pg_locks WHERE pid = {row['pid']} AND NOT granted"
    owner.sql("BEGIN")
    assert owner.predict_into(*call) == 20
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(eve.predict_into, *call)
        while not owner.sql(waits):
            assert not waiting.done()
        owner.sql("COMMIT")
        with pytest.raises(errors.WriteConflict, match="has just made the table"):
            waiting.result()
    assert owner.predict_into(*call) == 20
    assert owner.sql("SELECT count(*) AS n FROM race.mine") == [{"n": 40}]
