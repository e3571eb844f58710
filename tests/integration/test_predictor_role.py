"""Role mmdb_predictor: it predicts, and is refused everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import mmdb
from tests.cluster import Cluster
from tests.trained import fill

LOGIN = "asks_only"
NO_RIGHT = "42501"


@pytest.fixture(scope="module")
def session(cluster: Cluster, template: str) -> Iterator[Any]:
    """Yield a session of a login that may only predict, and has a table of its own rows."""
    url = cluster.create_database("predictor", template)
    with mmdb.connect(url) as db:
        fill(db)
        db.sql(f"CREATE ROLE {LOGIN} LOGIN PASSWORD 'x'")
        db.sql(f"GRANT mmdb_predictor TO {LOGIN}")
        db.sql("CREATE TABLE mine AS SELECT id, a, b FROM points")
        db.sql(f"GRANT SELECT ON mine TO {LOGIN}")
        expected = db.predict("search", [1.0, 2.0])
    given = conninfo_to_dict(url)
    address = f"postgresql://{LOGIN}:x@{given['host']}:{given['port']}/predictor"
    with psycopg.connect(address, autocommit=True) as connection:
        found = connection.execute("SELECT mmdb.predict('search', ARRAY[1, 2]::real[])").fetchone()
        assert found is not None and found[0] == pytest.approx(expected)
        yield connection
    cluster.drop_database("predictor")
    with psycopg.connect(cluster.url(), autocommit=True) as owner:
        owner.execute(f"DROP ROLE {LOGIN}")


@pytest.mark.parametrize(
    "x", ["ARRAY[a, b]", "to_jsonb(m)", "row_to_json(m)", "m", "to_jsonb(m)::text"]
)
def test_it_predicts_rows_of_its_own_in_every_form(session: Any, x: str) -> None:
    rows = session.execute(f"SELECT mmdb.predict('search', {x}) FROM mine AS m").fetchall()
    assert len(rows) == 48
    assert all(sum(found) == pytest.approx(1, abs=1e-5) for (found,) in rows)


def test_a_slow_statement_ends(session: Any) -> None:
    with session.transaction(force_rollback=True), pytest.raises(psycopg.errors.QueryCanceled):
        session.execute("SET LOCAL statement_timeout = 200")
        session.execute(
            "SELECT mmdb.predict('search', ARRAY[1, 2]::real[]) FROM generate_series(1, 10000000)"
        )


def test_it_may_neither_read_nor_write_anything_of_mmdbs(session: Any) -> None:
    """Every table, view and sequence, each column of bytes among them."""
    named = session.execute(
        "SELECT c.oid::regclass::text, c.relkind FROM pg_class AS c"
        " WHERE c.relnamespace IN ('mmdb'::regnamespace, 'mmdb_call'::regnamespace)"
        " AND c.relkind IN ('r', 'p', 'v', 'm', 'S')"
    ).fetchall()
    assert len(named) > 60
    for name, kind in named:
        attempts = [f"SELECT * FROM {name}"]
        if kind in "rp":
            attempts += [f"INSERT INTO {name} DEFAULT VALUES", f"DELETE FROM {name}"]
            attempts += [f"TRUNCATE {name}", f"LOCK TABLE {name}"]
        for attempt in attempts:
            assert refusal(session, attempt) == NO_RIGHT, attempt


def test_it_may_call_no_other_function(session: Any) -> None:
    """Each is called with as many NULLs as it takes; the right is asked for before they are."""
    functions = session.execute(
        "SELECT p.oid::regprocedure::text, p.pronamespace::regnamespace::text, p.proname,"
        " ARRAY(SELECT format_type(t.oid, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY"
        " AS u (oid, n) INNER JOIN pg_type AS t ON t.oid = u.oid ORDER BY u.n), p.prokind"
        " FROM pg_proc AS p WHERE p.pronamespace::regnamespace::text IN ('mmdb', 'mmdb_call')"
    ).fetchall()
    assert len(functions) > 200
    for shown, schema, name, types, kind in functions:
        if schema == "mmdb" and name in (
            "predict",
            "generate",
            "too_long",
        ):  # the latter is a domain's check
            continue
        nulls = ", ".join(f"NULL::{one}" for one in types)
        word = "CALL" if kind == "p" else "SELECT"
        call = f'{word} {schema}."{name}"({nulls})'
        assert refusal(session, call) in (NO_RIGHT, "0A000"), shown  # a trigger's is no call


TRIES = [
    "CREATE TABLE mmdb.mine (a int)",
    "CREATE FUNCTION mmdb.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "ALTER FUNCTION mmdb.predict(text, jsonb) SECURITY INVOKER",
    "DROP FUNCTION mmdb.predict(text, jsonb)",
    "ALTER TABLE mmdb.model DISABLE ROW LEVEL SECURITY",
    "SET ROLE mmdb_system",
    "SET ROLE mmdb_trainer",
    "SET ROLE mmdb_reader",
    "SET SESSION AUTHORIZATION mmdb_system",
    "GRANT mmdb_trainer TO CURRENT_USER",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "CREATE VIEW pg_temp.seen AS SELECT * FROM mmdb.tensor_chunk; SELECT * FROM pg_temp.seen",
    "COPY mmdb.model TO STDOUT",
    "EXPLAIN ANALYZE SELECT * FROM mmdb.model",
    "DECLARE c CURSOR FOR SELECT * FROM mmdb.checkpoint",
    "DO $$ BEGIN PERFORM * FROM mmdb.block; END $$",
    "DO LANGUAGE plpython3u $$ plpy.execute('SELECT * FROM mmdb.model') $$",
    "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE plpython3u AS 'return 1'",
]


@pytest.mark.parametrize("attempt", TRIES)
def test_other_ways_are_refused_too(session: Any, attempt: str) -> None:
    assert refusal(session, attempt) == NO_RIGHT


@pytest.mark.parametrize(
    ("model", "x", "state"),
    [
        ("nothing", "ARRAY[1, 2]::real[]", "MM156"),
        ("search'; DROP TABLE mine; --", "ARRAY[1, 2]::real[]", "MM156"),
        ("search", "ARRAY[1]::real[]", "MM170"),
        ("search", "'SELECT * FROM mmdb.model'::text", "MM170"),
        ("search", "'{\"a\": 1}'::jsonb", "MM170"),
    ],
)
def test_a_bad_call_says_what_is_wrong(session: Any, model: str, x: str, state: str) -> None:
    with pytest.raises(psycopg.Error) as raised:
        session.execute(f"SELECT mmdb.predict(%s, {x})", [model])
    assert raised.value.sqlstate == state, raised.value


def test_it_may_have_texts_written(session: Any) -> None:
    with pytest.raises(psycopg.Error, match="does not predict next tokens") as raised:
        session.execute("SELECT * FROM mmdb.generate('search', 'x')")
    assert raised.value.sqlstate == "MM170"


def test_what_a_search_path_offers_is_not_called(session: Any) -> None:
    """Functions and tables of its own, by the names of those that mmdb uses, are left alone."""
    with session.transaction(force_rollback=True):
        session.execute("CREATE TEMP TABLE model AS SELECT 1 AS model_id")
        session.execute("SET LOCAL search_path = pg_temp, mmdb, public")
        found = session.execute("SELECT mmdb.predict('search', ARRAY[1, 2]::real[])").fetchone()
        assert len(found[0]) == 2


@pytest.fixture
def limit(cluster: Cluster, session: Any) -> Iterator[Callable[..., None]]:
    """Yield what sets how many rows a role's statement may predict; limits go with the test."""
    url = cluster.url("predictor")
    with psycopg.connect(url, autocommit=True) as owner:

        def limited(rows: int, role: str = LOGIN) -> None:
            owner.execute(
                "INSERT INTO mmdb.role_limit (role, predict_rows) VALUES (%s, %s)", [role, rows]
            )

        yield limited
        owner.execute("DELETE FROM mmdb.role_limit")


#: Statements that predict 48 rows or more, in ways that might be taken for several statements.
FORTY_EIGHT = {
    "a scan": "SELECT mmdb.predict('search', ARRAY[a, b]) FROM mine",
    "objects": "SELECT mmdb.predict('search', m) FROM mine AS m",
    "two calls a row": "SELECT mmdb.predict('search', ARRAY[a, b]), mmdb.predict('search@1', "
    "ARRAY[b, a]) FROM mine WHERE id <= 24",
    "a loop": "DO $$ BEGIN FOR k IN 1..48 LOOP PERFORM mmdb.predict('search', ARRAY[1, k]::real[]);"
    " END LOOP; END $$",
    "a loop that commits": "DO $$ BEGIN FOR k IN 1..48 LOOP PERFORM mmdb.predict('search', "
    "ARRAY[1, k]::real[]); COMMIT; END LOOP; END $$",
    "a loop that takes roles": "DO $$ BEGIN FOR k IN 1..48 LOOP SET ROLE mmdb_predictor; "
    "PERFORM mmdb.predict('search', ARRAY[1, k]::real[]); RESET ROLE; "
    "PERFORM mmdb.predict('search', ARRAY[1, k]::real[]); END LOOP; END $$",
    "a function of its own": "CREATE FUNCTION pg_temp.f(k int) RETURNS real[] LANGUAGE plpgsql "
    "SECURITY DEFINER AS $$ BEGIN RETURN mmdb.predict('search', ARRAY[1, k]::real[]); END $$; "
    "SELECT pg_temp.f(k) FROM generate_series(1, 48) AS k",
    "its settings": "SET LOCAL mmdb.team = 'rich'; SET LOCAL mmdb.predict_rows = 1000; "
    "SELECT mmdb.predict('search', ARRAY[a, b]) FROM mine",
    "a search path": "CREATE TEMP TABLE role_limit (role text, predict_rows bigint); "
    "CREATE FUNCTION pg_temp.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS "
    "'SELECT clock_timestamp()'; SET LOCAL search_path = pg_temp, public, mmdb; "
    "SELECT mmdb.predict('search', ARRAY[a, b]) FROM mine",
}


@pytest.mark.parametrize("way", FORTY_EIGHT)
def test_a_statement_predicts_as_many_rows_as_it_may(
    session: Any, limit: Callable[..., None], way: str
) -> None:
    limit(1_000_000, "rich")
    limit(47)
    refused = attempted(session, FORTY_EIGHT[way])
    assert refused is not None and refused.sqlstate == "MM414", refused
    assert "47 rows" in str(refused) and "mmdb.role_limit" in (refused.diag.message_hint or "")
    session.execute("SELECT mmdb.predict('search', ARRAY[a, b]) FROM mine WHERE id <= 47")


def test_who_catches_the_error_predicts_no_more(session: Any, limit: Callable[..., None]) -> None:
    limit(10)
    session.execute(
        "CREATE FUNCTION pg_temp.most() RETURNS int LANGUAGE plpgsql AS $$"
        " DECLARE done int := 0; BEGIN FOR k IN 1..30 LOOP BEGIN"
        " PERFORM mmdb.predict('search', ARRAY[1, k]::real[]); done := done + 1;"
        " EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; RETURN done; END $$"
    )
    for _ in range(2):  # the next statement begins anew
        assert session.execute("SELECT pg_temp.most()").fetchone() == (10,)


def test_publics_limit_holds_for_who_has_none(session: Any, limit: Callable[..., None]) -> None:
    limit(47, "public")
    assert refusal(session, FORTY_EIGHT["a scan"]) == "MM414"
    limit(48)
    assert refusal(session, FORTY_EIGHT["a scan"]) is None


def refusal(session: Any, statement: str) -> str | None:
    """Return the SQLSTATE of the error that a statement meets; None: it meets none."""
    error = attempted(session, statement)
    return None if error is None else error.sqlstate


def attempted(session: Any, statement: str) -> psycopg.Error | None:
    """Return the error that a statement meets, and undo it where it meets none.

    One that commits is sent as it is.
    """
    around = nullcontext() if "COMMIT;" in statement else session.transaction(force_rollback=True)
    try:
        with around:
            session.execute(statement)
    except psycopg.Error as error:
        return error
    return None
