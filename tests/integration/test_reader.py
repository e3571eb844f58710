"""What a login with nothing but mmdb_reader may not do: every attempt, with its SQLSTATE."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
import torch

import mmdb
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import sql_directory
from mmdb.graph.factories import linear
from tests.cluster import ROOT, Cluster
from tests.integration.test_privileges import listing

DENIED = "42501"
LEFT_ALONE = "no error"
SECRET = "host=127.0.0.1 passfile=s3cret"

ATTEMPTS = {
    # rows
    "insert into a view": ("INSERT INTO mmdb.dataset_overview (name) VALUES ('x')", DENIED),
    "insert into a table": ("INSERT INTO mmdb.factory VALUES ('x', 'os:system')", DENIED),
    "update a view": ("UPDATE mmdb.dataset_overview SET name = 'x'", DENIED),
    "update a table": ("UPDATE mmdb.setting SET value = 'x'", DENIED),
    "delete from a view": ("DELETE FROM mmdb.dataset_overview", DENIED),
    "delete from a table": ("DELETE FROM mmdb.model", DENIED),
    "merge": (
        "MERGE INTO mmdb.setting AS s USING (SELECT 1) AS x ON true WHEN MATCHED THEN DELETE",
        DENIED,
    ),
    "truncate": ("TRUNCATE mmdb.hop", DENIED),
    "lock rows": ("SELECT * FROM mmdb.dataset_overview FOR UPDATE", DENIED),
    "lock a view": ("BEGIN; LOCK TABLE mmdb.dataset_overview IN EXCLUSIVE MODE", DENIED),
    "lock a table": ("BEGIN; LOCK TABLE mmdb.model IN ACCESS SHARE MODE", DENIED),
    "write after a read-only mode": (
        "BEGIN; SET TRANSACTION READ WRITE; SET transaction_read_only = off;"
        " INSERT INTO mmdb.setting VALUES ('x', 'x')",
        DENIED,
    ),
    "advance a sequence": ("SELECT nextval('mmdb.model_model_id_seq')", DENIED),
    "set a sequence": ("SELECT setval('mmdb.model_model_id_seq', 1)", DENIED),
    # bytes, and what is not for readers
    "tensors": ("SELECT data FROM mmdb.tensor_chunk", DENIED),
    "tensors of a partition": ("SELECT data FROM mmdb.tensor_chunk_0", DENIED),
    "blocks": ("SELECT data FROM mmdb.block", DENIED),
    "checkpoints": ("SELECT data FROM mmdb.checkpoint_chunk", DENIED),
    "states": ("SELECT data FROM mmdb.state_chunk", DENIED),
    "digests": ("SELECT digest FROM mmdb.model_origin", DENIED),
    "settings": ("SELECT value FROM mmdb.setting", DENIED),
    "a whole row": ("SELECT b FROM mmdb.block AS b", DENIED),
    "a count": ("SELECT count(*) FROM mmdb.block", DENIED),
    "a type's cast": ("SELECT * FROM mmdb.block WHERE false", DENIED),
    "through xml": ("SELECT query_to_xml('SELECT * FROM mmdb.block', true, true, '')", DENIED),
    "through a table's xml": ("SELECT table_to_xml('mmdb.block', true, true, '')", DENIED),
    "through a view of one's own": (
        "CREATE TEMP VIEW mine AS SELECT * FROM mmdb.block; SELECT * FROM mine",
        DENIED,
    ),
    "through a function of one's own": (
        "CREATE FUNCTION pg_temp.mine() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS"
        " 'SELECT count(*) FROM mmdb.block'; SELECT pg_temp.mine()",
        DENIED,
    ),
    "another schema": ("SELECT * FROM shop.salary", DENIED),
    "the statistics": ("SELECT * FROM pg_statistic", DENIED),
    "passwords": ("SELECT rolpassword FROM pg_authid", DENIED),
    "logins of subscriptions": ("SELECT subconninfo FROM pg_subscription", DENIED),
    "large objects' pages": ("SELECT * FROM pg_largeobject", DENIED),
    "a large object": ("SELECT lo_get(424242)", DENIED),
    "to change a large object": ("SELECT lo_put(424242, 0, 'x')", DENIED),
    # files and programs
    "copy a table": ("COPY mmdb.block TO STDOUT", DENIED),
    "copy a query": ("COPY (SELECT data FROM mmdb.tensor_chunk) TO STDOUT", DENIED),
    "copy to a file": ("COPY (SELECT 1) TO '/tmp/mmdb_reader'", DENIED),
    "copy to a program": ("COPY (SELECT 1) TO PROGRAM 'id'", DENIED),
    "copy from a program": (
        "CREATE TEMP TABLE out (x text); COPY out FROM PROGRAM 'id'",
        DENIED,
    ),
    "copy into a table": ("COPY mmdb.setting FROM STDIN", DENIED),
    "read a file": ("SELECT pg_read_file('/etc/passwd')", DENIED),
    "read bytes of a file": ("SELECT pg_read_binary_file('PG_VERSION')", DENIED),
    "list a folder": ("SELECT pg_ls_dir('.')", DENIED),
    "look at a file": ("SELECT pg_stat_file('PG_VERSION')", DENIED),
    "import a large object": ("SELECT lo_import('/etc/passwd')", DENIED),
    "export a large object": ("SELECT lo_export(424242, '/tmp/mmdb_reader')", DENIED),
    "load a library": ("LOAD '/tmp/evil.so'", DENIED),
    # code
    "plpython": ("DO LANGUAGE plpython3u $$ import os $$", DENIED),
    "a function in plpython": (
        "CREATE FUNCTION pg_temp.f() RETURNS void LANGUAGE plpython3u AS 'pass'",
        DENIED,
    ),
    "a function in C": (
        "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE c AS 'libc.so.6', 'getpid'",
        DENIED,
    ),
    "plpgsql that writes": ("DO $$ BEGIN DELETE FROM mmdb.hop; END $$", DENIED),
    "plpgsql that changes the role": (
        "DO $$ BEGIN EXECUTE 'SET ROLE mmdb_trainer'; END $$",
        DENIED,
    ),
    "an extension": ("CREATE EXTENSION postgres_fdw", DENIED),
    "a foreign server": (
        "CREATE SERVER s FOREIGN DATA WRAPPER postgres_fdw",
        "42704",  # there is no such wrapper: extensions are the superuser's
    ),
    "a subscription": (
        "CREATE SUBSCRIPTION s CONNECTION 'dbname=x' PUBLICATION p WITH (connect = false)",
        DENIED,
    ),
    "a publication": ("CREATE PUBLICATION p FOR TABLE mmdb.model", DENIED),
    # objects
    "a schema": ("CREATE SCHEMA evil", DENIED),
    "a table in public": ("CREATE TABLE public.mine (a integer)", DENIED),
    "a table in mmdb": ("CREATE TABLE mmdb.mine (a integer)", DENIED),
    "a function in mmdb": (
        "CREATE FUNCTION mmdb.lineage(integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        DENIED,
    ),
    "another view": ("CREATE OR REPLACE VIEW mmdb.leaderboard AS SELECT 1", DENIED),
    "an operator": (
        "CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = integer, FUNCTION = pg_sleep)",
        DENIED,
    ),
    "a cast": ("CREATE CAST (text AS boolean) WITH INOUT AS IMPLICIT", DENIED),
    "a rule": (
        "CREATE RULE r AS ON INSERT TO mmdb.leaderboard DO INSTEAD NOTHING",
        DENIED,
    ),
    "a trigger": (
        "CREATE TRIGGER t INSTEAD OF INSERT ON mmdb.leaderboard"
        " FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        DENIED,
    ),
    "an event trigger": (
        "CREATE EVENT TRIGGER t ON ddl_command_start"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        DENIED,
    ),
    "drop a view": ("DROP VIEW mmdb.leaderboard", DENIED),
    "drop a table": ("DROP TABLE mmdb.hop", DENIED),
    "drop the schema": ("DROP SCHEMA mmdb CASCADE", DENIED),
    "alter a view": ("ALTER VIEW mmdb.leaderboard RENAME TO mine", DENIED),
    "own a view": ("ALTER VIEW mmdb.leaderboard OWNER TO eve_reads", DENIED),
    "a comment": ("COMMENT ON VIEW mmdb.leaderboard IS 'x'", DENIED),
    "a policy": ("DROP POLICY factory_add ON mmdb.factory", DENIED),
    "row security": ("ALTER TABLE mmdb.setting DISABLE ROW LEVEL SECURITY", DENIED),
    "a function's settings": (
        "ALTER FUNCTION mmdb.lineage SECURITY DEFINER",
        DENIED,
    ),
    "replace the function": (
        "CREATE OR REPLACE FUNCTION mmdb.warm_up() RETURNS text LANGUAGE sql AS ''",
        DENIED,
    ),
    "default privileges of others": (
        "ALTER DEFAULT PRIVILEGES FOR ROLE postgres GRANT SELECT ON TABLES TO public",
        DENIED,
    ),
    # rights and roles
    "be a trainer": ("SET ROLE mmdb_trainer", DENIED),
    "be an admin": ("SELECT set_config('role', 'mmdb_admin', false)", DENIED),
    "be the superuser": ("SET ROLE postgres", DENIED),
    "be another session": ("SET SESSION AUTHORIZATION postgres", DENIED),
    "grant a table": ("GRANT SELECT ON mmdb.model TO eve_reads", DENIED),
    "grant a schema": ("GRANT CREATE ON SCHEMA mmdb TO eve_reads", "01007"),  # grants nothing
    "grant a view": ("GRANT SELECT ON mmdb.leaderboard TO public", "01007"),
    "grant a role": ("GRANT mmdb_trainer TO eve_reads", DENIED),
    "grant one's own role": ("GRANT mmdb_reader TO eve_reads WITH ADMIN OPTION", DENIED),
    "a role": ("CREATE ROLE evil SUPERUSER", DENIED),
    "alter a role": ("ALTER ROLE eve_reads CREATEROLE", DENIED),
    "alter the group": ("ALTER ROLE mmdb_reader SET search_path = public", DENIED),
    "drop a role": ("DROP ROLE mmdb_trainer", DENIED),
    "take over": ("REASSIGN OWNED BY postgres TO eve_reads", DENIED),
    # the server
    "the server's settings": ("ALTER SYSTEM SET archive_command = 'id'", DENIED),
    "the database's settings": ("ALTER DATABASE {database} SET search_path = public", DENIED),
    "a superuser's setting": ("SET session_preload_libraries = 'evil'", DENIED),
    "triggers off": ("SET session_replication_role = replica", DENIED),
    "checkpoint": ("CHECKPOINT", DENIED),
    "vacuum": ("VACUUM mmdb.model", "01000"),  # skipped with a warning
    "reload": ("SELECT pg_reload_conf()", DENIED),
    "rotate the log": ("SELECT pg_rotate_logfile()", DENIED),
    "a restore point": ("SELECT pg_create_restore_point('x')", DENIED),
    "end another's session": ("SELECT pg_terminate_backend({pid})", DENIED),
    "cancel another's query": ("SELECT pg_cancel_backend({pid})", DENIED),
    "a database": ("CREATE DATABASE evil", DENIED),
    "drop the database": ("DROP DATABASE {database}", "42501"),
}


@pytest.fixture(scope="module")
def owner(cluster: Cluster, template: str) -> Iterator[mmdb.Database]:
    """Yield a superuser's session on a database with something of everything in it."""
    name = "what_a_reader_meets"
    with mmdb.connect(cluster.create_database(name, template)) as db:
        db.sql(
            "CREATE TABLE t AS SELECT i::real AS x, i % 2 AS y FROM generate_series(1, 20) AS g (i)"
        )
        db.create_dataset("d", "SELECT x, y FROM t", partitions=1)
        db.create_run("r", dataset="d", architecture="linear", epochs=1)
        torch.manual_seed(0)
        db.save("m", linear((1,), 2), architecture="linear", dataset="d")
        db.sql(f"INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', '{SECRET}')")
        db.sql("INSERT INTO mmdb.setting (name, value) VALUES ('price_per_worker_hour', '2')")
        db.sql("CREATE SCHEMA shop")
        db.sql("CREATE TABLE shop.salary AS SELECT 1 AS x")
        db.sql("SELECT lo_from_bytea(424242, 'x')")
        db.sql("ANALYZE")
        db.sql(f"CREATE ROLE eve_reads LOGIN PASSWORD '{cluster.password}'")
        db.sql("GRANT mmdb_reader TO eve_reads")
        yield db
    cluster.drop_database(name)
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute("DROP ROLE eve_reads")


def url_of(db: mmdb.Database) -> str:
    return db.connection.url


@pytest.fixture
def eve(owner: mmdb.Database) -> Iterator[psycopg.Connection[Any]]:
    """Yield a fresh session of a reader, as a BI tool opens one."""
    url = url_of(owner).replace("postgres:", "eve_reads:", 1)
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        yield connection


def state_of(db: mmdb.Database) -> tuple[object, ...]:
    """Return all that an attempt may not change."""
    tables = [row["name"] for row in db.sql(TABLES)]
    counts = {name: db.sql(f"SELECT count(*) AS n FROM {name}")[0]["n"] for name in tables}
    texts = db.sql("SELECT name, value FROM mmdb.setting ORDER BY name")
    roles = db.sql("SELECT rolname, rolsuper, rolcreaterole FROM pg_roles ORDER BY 1")
    objects = db.sql(
        "SELECT c.oid, c.relname, c.relowner, c.relrowsecurity FROM pg_class AS c"
        " INNER JOIN pg_namespace AS n ON c.relnamespace = n.oid"
        " WHERE n.nspname NOT LIKE 'pg\\_%' ORDER BY 1"
    )
    return counts, texts, roles, objects, listing(url_of(db))


TABLES = """
SELECT 'mmdb.' || c.relname AS name
FROM pg_class AS c
WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'r'
"""


def meets(eve: psycopg.Connection[Any], statement: str) -> str:
    """Return the SQLSTATE that a session meets; of a warning, where it met no error."""
    warned: list[str] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        warned.append(notice.sqlstate or "")

    eve.add_notice_handler(hear)
    try:
        eve.execute(statement.encode())
    except psycopg.Error as error:
        return error.sqlstate or type(error).__name__
    finally:
        eve.remove_notice_handler(hear)
        if eve.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            eve.execute("ROLLBACK")
    return warned[0] if warned else LEFT_ALONE


def test_every_attempt_is_refused(owner: mmdb.Database) -> None:
    before = state_of(owner)
    (row,) = owner.sql("SELECT pg_backend_pid() AS pid, current_database()::text AS name")
    url = url_of(owner).replace("postgres:", "eve_reads:", 1)
    met = {}
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as eve:
        for name, (statement, _) in ATTEMPTS.items():
            given = statement.replace("{pid}", str(row["pid"])).replace("{database}", row["name"])
            met[name] = meets(eve, given)
            eve.execute("DISCARD ALL")
    assert met == {name: sqlstate for name, (_, sqlstate) in ATTEMPTS.items()}
    assert state_of(owner) == before


def test_no_function_may_be_called_but_lineage(
    owner: mmdb.Database, eve: psycopg.Connection[Any]
) -> None:
    functions = owner.sql(
        "SELECT p.proname AS name, p.prokind::text AS kind, p.pronargs AS count"
        " FROM pg_proc AS p WHERE p.pronamespace = 'mmdb'::regnamespace"
        " AND NOT p.proisstrict"  # which is not called for NULL
    )
    assert len(functions) > 20
    for row in functions:
        call = f"mmdb.{row['name']}({', '.join(['NULL'] * row['count'])})"
        statement = f"CALL {call}" if row["kind"] == "p" else f"SELECT {call}"
        if row["name"] == "predict":
            statement = "SELECT mmdb.predict('m', '{1}'::real[])"
        may = row["name"] in ("lineage", "keeps")  # keeps: whether one is a member of a role
        assert (meets(eve, statement) == DENIED) != may, statement


def test_every_view_may_be_read_and_none_shows_bytes(
    owner: mmdb.Database, eve: psycopg.Connection[Any]
) -> None:
    views = owner.sql(TABLES.replace("'r'", "'v'"))
    assert len(views) > 25
    for row in views:
        shown = eve.execute(f"SELECT * FROM {row['name']}".encode())
        assert "bytea" not in {shown.pgresult.ftype(k) for k in range(shown.pgresult.nfields)}  # type: ignore[union-attr]


def test_a_new_view_is_for_readers_unless_it_shows_bytes(
    owner: mmdb.Database, eve: psycopg.Connection[Any]
) -> None:
    assert isinstance(owner.connection, PostgresConnection)
    rights = (sql_directory("sql/engines") / "postgres_rights.sql").read_text()
    owner.sql("CREATE VIEW mmdb.fresh AS SELECT 1 AS a")
    owner.sql("CREATE VIEW mmdb.bare AS SELECT tensor_id, data FROM mmdb.tensor_chunk")
    try:
        owner.connection.script("SET search_path = pg_catalog, pg_temp;" + rights)
        assert meets(eve, "SELECT * FROM mmdb.fresh") == LEFT_ALONE
        assert meets(eve, "SELECT tensor_id FROM mmdb.bare") == DENIED
    finally:
        owner.sql("RESET search_path")
        owner.sql("DROP VIEW mmdb.fresh, mmdb.bare")


def test_lineage_is_the_same_whatever_lies_in_a_session(
    owner: mmdb.Database, eve: psycopg.Connection[Any]
) -> None:
    ask = b"SELECT * FROM mmdb.lineage('model:m@1', 'up') ORDER BY 1, 2, 3, 4, 5"
    wanted = eve.execute(ask).fetchall()
    assert wanted
    heard: list[str] = []
    eve.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
    for statement in (
        "CREATE TEMP TABLE model (model_id bigint, name text, version integer)",
        "CREATE TEMP TABLE lineage_edge (parent text, child text)",
        "CREATE TEMP TABLE pg_class (oid oid)",
        "CREATE FUNCTION pg_temp.lower(text) RETURNS text LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE NOTICE 'hijacked'; RETURN $1; END $$",
        "CREATE FUNCTION pg_temp.same(text, text) RETURNS boolean LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE NOTICE 'hijacked'; RETURN true; END $$",
        "CREATE OPERATOR pg_temp.= (LEFTARG = text, RIGHTARG = text, FUNCTION = pg_temp.same)",
        "SET search_path = pg_temp, mmdb, public",
    ):
        eve.execute(statement.encode())
    assert eve.execute(ask).fetchall() == wanted
    assert heard == []
    for text in ("x'; DROP TABLE mmdb.hop; --", "model:m@1' OR true", "table:mmdb.setting"):
        try:
            found = eve.execute("SELECT * FROM mmdb.lineage(%s, 'down')", (text,)).fetchall()
        except psycopg.Error as error:
            found = []
            assert (error.sqlstate or "").startswith("MM")
        assert found == []


def test_a_leaky_function_sees_nothing_that_the_views_do_not_show(
    owner: mmdb.Database, eve: psycopg.Connection[Any]
) -> None:
    """A cheap function in WHERE may run before a view's own conditions: on its columns alone."""
    heard: set[str] = set()
    eve.add_notice_handler(lambda notice: heard.add(notice.message_primary or ""))
    eve.execute(
        b"CREATE FUNCTION pg_temp.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS"
        b" $$ BEGIN RAISE NOTICE '%', $1; RETURN true; END $$"
    )
    columns = owner.sql(
        "SELECT c.table_name::text AS view, c.column_name::text AS name"
        " FROM information_schema.columns AS c INNER JOIN information_schema.views AS v"
        " USING (table_schema, table_name) WHERE table_schema = 'mmdb'"
    )
    for column in columns:
        condition = f"pg_temp.leak({column['name']}::text)"
        eve.execute(f"SELECT * FROM mmdb.{column['view']} WHERE {condition}".encode())
    assert {"d", "m", "2"} <= heard  # a dataset, a model and the price: it does hear
    assert not [text for text in heard if "s3cret" in text or "\\x" in text]


def test_statistics_say_nothing_of_what_is_not_shown(
    owner: mmdb.Database, eve: psycopg.Connection[Any]
) -> None:
    seen = (
        "SELECT count(*) AS n FROM pg_stats"
        " WHERE schemaname IN ('mmdb', 'shop') AND tablename <> 'migration'"
    )
    assert owner.sql(seen)[0]["n"] > 0
    assert eve.execute(seen.encode()).fetchone() == (0,)


def test_dblink_opens_no_other_session(owner: mmdb.Database, eve: psycopg.Connection[Any]) -> None:
    if not owner.sql("SELECT 1 FROM pg_available_extensions WHERE name = 'dblink'"):
        pytest.skip("this server has no dblink")
    owner.sql("CREATE EXTENSION dblink SCHEMA public")
    try:
        for statement, sqlstate in (
            ("SELECT dblink_connect('user=postgres')", "2F003"),  # a password is required
            ("SELECT dblink_exec('user=postgres', 'DELETE FROM mmdb.hop')", "2F003"),
            ("SELECT dblink_connect_u('user=postgres')", DENIED),
        ):
            assert meets(eve, statement) == sqlstate
    finally:
        owner.sql("DROP EXTENSION dblink")


# -- what PostgreSQL lets anybody do ------------------------------------------

#: Attempts that succeed with PostgreSQL's own defaults, and their SQLSTATE after docs/roles.md.
LET = {
    "a temporary table": ("CREATE TEMP TABLE mine (a integer)", DENIED),
    "a temporary function": (
        "CREATE FUNCTION pg_temp.f() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        DENIED,
    ),
    "a large object": ("SELECT lo_from_bytea(0, 'x')", DENIED),
    "an empty large object": ("SELECT lo_create(0)", DENIED),
    "another empty large object": ("SELECT lo_creat(1)", DENIED),
    "the lock of a run": ("SELECT pg_advisory_lock(1835889763, 1)", DENIED),
    "the lock of a candidate": ("SELECT pg_try_advisory_xact_lock(1835889762, 1)", DENIED),
    "a message in the log": ("SELECT pg_logical_emit_message(false, 'x', 'x')", DENIED),
    "a notification": ("SELECT pg_notify('mmdb_assignment', '1')", DENIED),
}


def hardened(role: str, database: str) -> str:
    """Return the statements of docs/roles.md that make a login and close what is open."""
    text = (ROOT / "docs" / "roles.md").read_text()
    (block,) = re.findall(r"<!-- a hardened login -->\n```sql\n(.*?)```", text, re.DOTALL)
    return str(block).replace(" bi ", f" {role} ").replace("DATABASE shop", f"DATABASE {database}")


def test_what_anybody_may_do_is_closed_by_the_login_of_the_docs(
    owner: mmdb.Database, eve: psycopg.Connection[Any], cluster: Cluster
) -> None:
    (row,) = owner.sql("SELECT current_database()::text AS name")
    assert {name: meets(eve, statement) for name, (statement, _) in LET.items()} == dict.fromkeys(
        LET, LEFT_ALONE
    )
    assert isinstance(owner.connection, PostgresConnection)
    owner.connection.script(hardened("bi_reads", row["name"]))
    try:
        owner.sql(f"ALTER ROLE bi_reads PASSWORD '{cluster.password}'")
        url = url_of(owner).replace("postgres:", "bi_reads:", 1)
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as bi:
            assert meets(bi, "CREATE TEMP TABLE mine (a integer)") == "25006"
            bi.execute("SET default_transaction_read_only = off")  # anybody may
            met = {name: meets(bi, statement) for name, (statement, _) in LET.items()}
            assert met == {name: sqlstate for name, (_, sqlstate) in LET.items()}
            assert bi.execute("SELECT count(*) FROM mmdb.model_overview").fetchone() == (1,)
            read_write = "BEGIN; SET transaction_read_only = off; DELETE FROM mmdb.hop"
            assert meets(bi, read_write) == DENIED
        owner.sql("ALTER ROLE bi_reads SET statement_timeout = '200ms'")
        with psycopg.connect(url, autocommit=True) as bi:
            assert meets(bi, "SELECT pg_sleep(60)") == "57014"
        trainer = url_of(owner).replace("postgres:", "eve_reads:", 1)
        owner.sql("GRANT mmdb_trainer TO eve_reads")
        with closing(PostgresConnection(trainer)) as session:  # it still has its locks
            assert not session.try_lock("run", 1)  # the open login's session took it, above
            assert session.try_lock("run", 2)
            assert session.try_lock("hop", 2)
    finally:
        owner.sql("REVOKE mmdb_trainer FROM eve_reads")
        owner.sql("DROP OWNED BY bi_reads")
        owner.sql("DROP ROLE bi_reads")
