"""Columns that a model fills in new rows: what is inserted is never refused for want of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.db.postgres import PostgresConnection
from tests.cluster import Cluster

pytestmark = pytest.mark.usefixtures("cluster")
SCHEMA = "CREATE TABLE {} (id bigint PRIMARY KEY, x real[], guess text)"


@pytest.fixture(scope="module")
def url(cluster: Cluster, template: str) -> Iterator[str]:
    """Yield a database with a model of classes and one of numbers."""
    name = "mmdb_scoring"
    yield cluster.create_database(name, template)
    cluster.drop_database(name)


@pytest.fixture(scope="module")
def made(url: str) -> Iterator[Database]:
    with mmdb.connect(url) as db:
        db.sql(
            "CREATE TABLE points AS SELECT i AS id, ARRAY[i % 20 - 10, 1]::real[] AS x,"
            " CASE WHEN i % 20 < 10 THEN 'low' ELSE 'high' END AS y"
            " FROM generate_series(1, 400) AS g (i)"
        )
        db.create_dataset("d", "SELECT x, y FROM points", label="y", partitions=1)
        for name, lr in (("sorter", 0.5), ("other", 1e-9)):
            search = {"space": {"lr": [lr]}}
            db.create_run(name, dataset="d", architecture="linear", search=search, epochs=2)
            db.run(name).train(workers=1)
        yield db


@pytest.fixture
def db(made: Database) -> Iterator[Database]:
    made.sql(SCHEMA.format("sale"))
    yield made
    made.sql("DROP TABLE sale CASCADE")
    made.sql("DELETE FROM mmdb.scoring_failure")
    made.sql("DELETE FROM mmdb.scoring")


def guesses(db: Database, table: str = "sale") -> dict[int, Any]:
    return {row["id"]: row["guess"] for row in db.sql(f"SELECT id, guess FROM {table} ORDER BY id")}


def expected(db: Database, table: str = "sale", model: str = "sorter") -> dict[int, Any]:
    rows = db.sql(
        "SELECT key::integer AS id, prediction FROM mmdb.predict_query(%(m)s, %(q)s)",
        {"m": model, "q": f"SELECT id, x FROM {table} WHERE x IS NOT NULL"},
    )
    return {row["id"]: row["prediction"] for row in rows}


def warnings_of(db: Database) -> list[str]:
    """Return a list of what the server will say to the session."""
    said: list[str] = []
    assert isinstance(db.connection, PostgresConnection)
    db.connection.raw.add_notice_handler(lambda one: said.append(str(one.message_primary)))
    return said


def failures(db: Database) -> list[Any]:
    return db.sql("SELECT * FROM mmdb.scoring_failures ORDER BY scoring_failure_id")


def test_each_way_to_insert_fills_the_column(db: Database, url: str) -> None:
    db.score_on_insert("sale", "sorter", "guess")
    db.sql("INSERT INTO sale VALUES (1, '{-9, 1}', NULL), (2, '{9, 1}', 'mine')")
    db.sql(
        "INSERT INTO sale SELECT i, ARRAY[i % 20 - 10, 1] FROM generate_series(10, 5000) AS g (i)"
    )
    with psycopg.connect(url) as session, session.cursor() as cursor:
        with cursor.copy("COPY sale (id, x) FROM STDIN") as copy:
            for number in range(6000, 16000):
                copy.write_row((number, [number % 20 - 10, 1]))
        cursor.execute("INSERT INTO sale SELECT 1, '{1, 1}' WHERE false")
    found = guesses(db)
    assert len(found) == 14993 and set(found.values()) == {"low", "high"}
    assert [row["message"] for row in failures(db)] == []
    assert found == expected(db)


def test_a_table_that_inherits_keeps_its_rows_as_they_are(db: Database) -> None:
    db.score_on_insert("sale", "sorter", "guess")
    db.sql("CREATE TABLE archive () INHERITS (sale)")
    db.sql("INSERT INTO archive VALUES (1, '{-9, 1}', 'as it was')")
    db.sql("INSERT INTO sale (id, x) VALUES (1, '{9, 1}')")
    assert db.sql("SELECT guess FROM ONLY sale") == [{"guess": "high"}]
    assert db.sql("SELECT guess FROM archive") == [{"guess": "as it was"}]
    db.sql("DROP TABLE archive")


def test_a_statement_does_not_read_the_rows_that_were_there(db: Database, url: str) -> None:
    db.sql("INSERT INTO sale (id, x) SELECT i, '{1, 1}' FROM generate_series(1, 10000) AS g (i)")
    db.sql("ANALYZE sale")
    db.score_on_insert("sale", "sorter", "guess")
    with psycopg.connect(url) as session:
        session.execute("INSERT INTO sale (id, x) VALUES (0, '{-9, 1}'), (20000, '{9, 1}')")
        (read,) = session.execute(
            "SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'sale'"
        ).fetchall()
    assert read == (0,)
    found = guesses(db)
    assert (found[0], found[20000]) == ("low", "high")


def test_rows_that_cannot_be_predicted_stay_and_the_others_are(db: Database) -> None:
    number = db.score_on_insert("sale", "sorter", "guess")
    notices = warnings_of(db)
    db.sql(
        "INSERT INTO sale SELECT i, CASE i WHEN 7 THEN NULL WHEN 500 THEN '{NaN, 1}'::real[]"
        " WHEN 501 THEN '{1}' WHEN 900 THEN '{1, NULL}' ELSE '{1, 1}' END"
        " FROM generate_series(1, 1000) AS g (i)"
    )
    found = guesses(db)
    assert {key for key, guess in found.items() if guess is None} == {7, 500, 501, 900}
    assert {row["row_key"] for row in failures(db)} == {"7", "500", "501", "900"}
    assert len(notices) == 4
    (row,) = db.sql("SELECT scoring_id, unscored FROM mmdb.scoring_overview")
    assert tuple(row.values()) == (number, 4)


def test_a_row_of_which_nan_is_predicted_is_said(db: Database) -> None:
    module = db.recover("sorter")
    for parameter in module.parameters():
        parameter.data.fill_(0.0)
    next(module.parameters()).data[0, 0] = math.inf  # the softmax of infinity is NaN, of -inf 0
    db.save("diverged", module, parent="sorter", dataset="d")
    db.score_on_insert("sale", "diverged", "guess")
    db.sql("INSERT INTO sale VALUES (1, '{-1, 1}'), (2, '{1, 1}'), (3, '{-2, 1}')")
    found = guesses(db)
    assert found[2] is None and found[1] == found[3] is not None
    (failure,) = failures(db)
    assert failure["row_key"] == "2" and "predicts NaN" in failure["message"]


def test_a_model_that_is_gone_leaves_the_column_null(db: Database) -> None:
    db.save_candidate(db.run("sorter").leaderboard()[0]["candidate_id"], "brief")
    db.score_on_insert("sale", "brief", "guess")
    db.sql("INSERT INTO sale VALUES (1, '{1, 1}')")
    db.drop_model("brief")
    notices = warnings_of(db)
    db.sql("INSERT INTO sale VALUES (2, '{1, 1}'), (3, '{1, 1}')")
    assert [guess is None for guess in guesses(db).values()] == [False, True, True]
    (row,) = failures(db)
    assert (row["row_count"], row["sqlstate"]) == (2, "MM156") and "brief" in notices[0]


def test_an_alias_is_looked_up_at_each_insert(db: Database) -> None:
    for model in ("sorter", "other"):
        db.save("moved", db.recover(model), dataset="d")
    db.set_alias("moved@1", "now")
    db.score_on_insert("sale", "moved@now", "guess")
    rows = "SELECT i, ARRAY[i - 10, 1] FROM generate_series({}, {}) AS g (i)"
    db.sql("INSERT INTO sale " + rows.format(1, 19))
    first = expected(db)
    assert guesses(db) == first
    db.set_alias("moved@2", "now")
    db.sql("UPDATE sale SET id = id + 100")
    db.sql("INSERT INTO sale " + rows.format(1, 19))
    found = guesses(db)
    second = expected(db, "sale", "other")
    assert {key: found[key] for key in first} == {key: second[key] for key in first} != first


def test_odd_names_are_names(db: Database) -> None:
    db.sql('CREATE SCHEMA "my \'shop"')
    db.sql(
        'CREATE TABLE "my \'shop"."a "" $$; \\ t" ("the %s "" key" text PRIMARY KEY, x real[],'
        ' "gu\'e$ss \\ " text, unused integer)'
    )
    target = '"my \'shop"."a "" $$; \\ t"'
    db.score_on_insert(target, "sorter", "gu'e$ss \\ ")
    db.sql(
        f"INSERT INTO {target} SELECT k, '{{9, 1}}'"
        " FROM unnest(ARRAY['{a,\"b\\ ', 'NULL', 'it''s']) AS u (k)"
    )
    rows = db.sql(f'SELECT x, "gu\'e$ss \\ " AS guess FROM {target}')
    assert all(row["guess"] for row in rows) and len(rows) == 3
    db.stop_scoring(target, "gu'e$ss \\ ")
    db.sql('DROP SCHEMA "my \'shop" CASCADE')


def test_a_column_of_numbers_takes_what_can_be_cast(db: Database) -> None:
    db.sql("ALTER TABLE sale ADD COLUMN wrong integer")
    db.score_on_insert("sale", "sorter", "wrong")
    db.sql("INSERT INTO sale VALUES (1, '{1, 1}')")
    (row,) = failures(db)
    assert row["sqlstate"] == "22P02"
    assert db.sql("SELECT wrong FROM sale") == [{"wrong": None}]


def test_what_cannot_be_scored_is_refused(db: Database) -> None:
    db.sql("CREATE TABLE keyless (x real, guess text)")
    db.sql("CREATE TABLE paired (a integer, b integer, x real, guess text, PRIMARY KEY (a, b))")
    db.sql("CREATE VIEW seen AS SELECT * FROM sale")
    refused = [
        ("keyless", "sorter", "guess", errors.TargetMismatch),
        ("paired", "sorter", "guess", errors.TargetMismatch),
        ("seen", "sorter", "guess", errors.TargetMismatch),
        ("missing", "sorter", "guess", errors.TargetMismatch),
        ("mmdb.setting", "sorter", "value", errors.TargetMismatch),
        ("sale", "sorter", "missing", errors.UnknownColumn),
        ("sale", "sorter", "id", errors.TargetMismatch),
        ("sale", "missing", "guess", errors.ModelNotFound),
        ("a; b", "sorter", "guess", errors.InvalidName),
    ]
    for target, model, column, error in refused:
        with pytest.raises(error):
            db.score_on_insert(target, model, column)
    number = db.score_on_insert("sale", "sorter", "guess")
    with pytest.raises(errors.TargetMismatch, match="already"):
        db.score_on_insert("sale", "sorter", "guess")
    db.stop_scoring("sale", "guess")
    with pytest.raises(errors.ScoringNotFound):
        db.stop_scoring("sale", "guess")
    assert db.sql(f"SELECT 1 FROM pg_proc WHERE starts_with(proname, 'mmdb_score_{number}')") == []
    db.sql("INSERT INTO sale VALUES (1, '{1, 1}')")
    assert guesses(db) == {1: None}
    db.sql("DROP TABLE keyless, paired")


def test_a_planted_function_takes_no_number_away(db: Database) -> None:
    number = db.score_on_insert("sale", "sorter", "guess")
    db.stop_scoring("sale", "guess")
    planted = f"mmdb_score_{number + 1}"
    db.sql(f"CREATE FUNCTION {planted}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'")
    assert db.score_on_insert("sale", "sorter", "guess") == number + 1
    db.sql("INSERT INTO sale VALUES (1, '{9, 1}')")
    assert guesses(db) == expected(db)
    db.stop_scoring("sale", "guess")
    assert len(db.sql(f"SELECT 1 FROM pg_proc WHERE proname = '{planted}'")) == 1
    db.sql(f"DROP FUNCTION {planted}")


def test_a_timeout_ends_the_insert(db: Database, url: str) -> None:
    db.score_on_insert("sale", "sorter", "guess")
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("INSERT INTO sale VALUES (1, '{1, 1}')")  # the session has loaded torch
        session.execute("SET statement_timeout = '1s'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            session.execute(
                "INSERT INTO sale SELECT i, '{1, 1}' FROM generate_series(2, 3000000) AS g (i)"
            )
    assert guesses(db).keys() == {1} and failures(db) == []


def test_who_inserts_needs_no_right_on_mmdb_and_gains_none(
    db: Database, url: str, cluster: Cluster
) -> None:
    for name in ("ann", "app", "eve"):
        db.sql(f"CREATE ROLE {name} LOGIN PASSWORD '{cluster.password}'")
    db.sql("GRANT mmdb_trainer TO ann, eve")
    db.sql("CREATE SCHEMA shop AUTHORIZATION ann")
    db.sql("GRANT USAGE ON SCHEMA shop TO app, eve")
    urls = {name: url.replace("postgres:", f"{name}:", 1) for name in ("ann", "app", "eve")}
    try:
        with mmdb.connect(urls["ann"]) as ann:
            ann.sql(SCHEMA.format("shop.orders"))
            with pytest.raises(errors.RightsMissing):
                ann.score_on_insert("public.sale", "sorter", "guess")
            number = ann.score_on_insert("shop.orders", "sorter", "guess")
            of_number = f"starts_with(proname, 'mmdb_score_{number}_')"
            ann.sql("GRANT INSERT ON shop.orders TO app, eve")
        with psycopg.connect(urls["app"], autocommit=True) as app:
            app.execute("INSERT INTO shop.orders VALUES (1, '{9, 1}'), (2, NULL)")
            for statement in ("SELECT * FROM shop.orders", "SELECT * FROM mmdb.leaderboard"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    app.execute(statement.encode())
        with mmdb.connect(urls["eve"]) as eve:
            eve.sql("CREATE TEMP TABLE bait (id bigint)")
            function = f"SELECT oid::regproc::text AS name FROM pg_proc WHERE {of_number}"
            (row,) = eve.sql(function)
            with pytest.raises(errors.RightsMissing):
                eve.sql(
                    "CREATE TRIGGER t AFTER INSERT ON bait REFERENCING NEW TABLE AS mmdb_new"
                    f" FOR EACH STATEMENT EXECUTE FUNCTION {row['name']}('1', 'id')"
                )
            (row,) = eve.sql("SELECT * FROM mmdb.scoring_failures")
            assert (row["row_key"], row["message"]) == (None, None)
            with pytest.raises(errors.RightsMissing):
                eve.stop_scoring("shop.orders", "guess")
        with mmdb.connect(urls["ann"]) as ann:
            assert guesses(ann, "shop.orders") == expected(ann, "shop.orders") | {2: None}
            assert failures(ann)[0]["message"]
            ann.stop_scoring("shop.orders", "guess")
    finally:
        for name in urls:
            db.sql(f"DROP OWNED BY {name} CASCADE")
            db.sql(f"DROP ROLE {name}")


def test_duckdb_has_none(installed_duckdb_url: str) -> None:
    with mmdb.connect(installed_duckdb_url) as db:
        with pytest.raises(errors.InvalidOption, match="no triggers") as raised:
            db.score_on_insert("t", "m", "c")
    assert "predict_into" in raised.value.hint
