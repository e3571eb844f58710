"""What of PostgreSQL's SQL is translated to DuckDB's, and what is refused.

`.venv/bin/python -m tests.unit.db.test_ddl` writes `duckdb_schema.sql` anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from mmdb.api import Database, connect
from mmdb.db.ddl import translate_query, translate_schema
from mmdb.db.install import current_files, schema_files
from mmdb.errors import UntranslatableSql
from tests.named_queries import named_queries

GOLDEN = Path(__file__).with_name("duckdb_schema.sql")

#: Named queries that only PostgreSQL is sent.
POSTGRES_ONLY = {
    "catalog.find_relation": "DuckDB's catalog has other functions",
    "catalog.find_target": "DuckDB's catalog has other functions",
    "catalog.has_written": "only a session inside the server asks",
    "evaluations.may_keep": "DuckDB has no transactions that may not write",
    "citus.add_up_shards": "DuckDB has no nodes",
    "citus.change_one_by_one": "DuckDB has no nodes",
    "citus.find_misplaced": "DuckDB has no nodes",
    "citus.find_undelegated": "DuckDB has no nodes",
    "citus.find_nodes": "DuckDB has no nodes",
    "citus.probe_nodes": "DuckDB has no nodes",
    "citus.find_cluster": "DuckDB has no nodes",
    "citus.find_extension": "DuckDB has no nodes",
    "citus.name_engine": "DuckDB has no nodes",
    "datasets.add_numbered_partition": "DuckDB has no nodes",
    "nodes.draw_part_ids": "DuckDB has no nodes",
    "nodes.find_block_nodes": "DuckDB has no nodes",
    "bench_load.own_pid": "DuckDB runs in the client's process",
    "bench_load.sessions": "DuckDB has no sessions of others",
    "doctor.find_role": "DuckDB has no roles",
    "doctor.find_functions": "DuckDB's functions are made at each connect",
    "doctor.probe_python": "DuckDB runs in the client's Python",
    "doctor.read_probe": "DuckDB runs in the client's Python",
    "doctor.read_cluster_name": "DuckDB has no server",
    "schedules.find_role": "DuckDB has no roles",
    "schedules.find_login": "DuckDB has no roles",
    "schedules.find_path": "no other session runs the statement",
    "schedules.use_path": "no other session runs the statement",
    "schedules.find_now": "the clock is that of the process",
    "schedules.lock_schedule": "one process has the file",
    "schedules.unlock_schedule": "one process has the file",
    "predictions.find_vector": "DuckDB has no pgvector",
    "scoring.find_table": "DuckDB has no triggers",
    "scoring.write_function": "DuckDB has no triggers",
    "scoring.write_trigger": "DuckDB has no triggers",
    "scoring.find_trigger": "DuckDB has no triggers",
    "scoring.name_keys": "DuckDB has no triggers",
    "scoring.count_keys": "DuckDB has no triggers",
    "scoring.split_keys": "DuckDB has no triggers",
    "features.lock": "nobody else writes to the file",
    "gc.lock_models": "nobody else writes to the file",
    "gc.lock_manifests": "nobody else writes to the file",
    "gc.lock_tensors": "nobody else writes to the file",
    "gc.lock_prefixes": "nobody else writes to the file",
    "gc.lock_features": "nobody else writes to the file",
    "gc.lock_architectures": "nobody else writes to the file",
    "install.read_committed": "no other process has the file open",
    "install.lock_install": "no other process has the file open",
    "install.pin_search_path": "DuckDB's functions cannot be shadowed",
    "install.find_extension": "DuckDB runs in the client's Python",
    "install.create_extension": "DuckDB runs in the client's Python",
    "locks.lock_hop": "no other process has the file open",
    "locks.lock_run": "no other process has the file open",
    "locks.hold_run": "no other process has the file open",
    "locks.unlock_run": "no other process has the file open",
    "locks.lock_totals": "no other process has the file open",
    "locks.share_totals": "no other process has the file open",
    "owners.find_actor": "DuckDB has no roles",
    "owners.act_for": "DuckDB has no roles",
    "owners.find_foreign": "DuckDB has no roles",
    "owners.find_others": "DuckDB has no roles",
    "owners.find_author": "DuckDB has no roles",
    "owners.find_stranger": "DuckDB has no roles",
    "owners.find_readable": "DuckDB has no roles",
    "owners.find_usable": "DuckDB has no roles",
    "owners.may_replace": "DuckDB has no roles",
    "owners.find_owner": "DuckDB has no roles",
    "owners.find_principal": "DuckDB has no roles",
    "owners.find_limits": "DuckDB has no roles",
    "owners.find_memory": "DuckDB has no roles",
    "owners.find_predict_rows": "DuckDB has no roles",
    "owners.find_run_limits": "DuckDB has no roles",
    "owners.measure_workers": "DuckDB has no roles",
    "owners.measure_seconds": "DuckDB has no roles",
    "owners.share_model": "DuckDB has no roles",
    "owners.share_dataset": "DuckDB has no roles",
    "owners.share_run": "DuckDB has no roles",
    "operations.count_sessions": "DuckDB has no server",
    "operations.find_broken": "DuckDB has no server",
    "operations.find_extensions": "DuckDB has no server",
    "operations.find_late_sequences": "DuckDB has no server",
    "operations.find_long_transactions": "DuckDB has no server",
    "operations.find_prepared": "DuckDB has no server",
    "operations.find_replicas": "DuckDB has no server",
    "operations.find_roles": "DuckDB has no roles",
    "locks.bound_waits": "DuckDB waits for no lock",
    "operations.find_open_views": "DuckDB has no roles",
    "operations.find_table_rights": "DuckDB has no roles",
    "operations.find_team_policies": "DuckDB has no roles",
    "operations.find_slots": "DuckDB has no server",
    "operations.find_unvacuumed": "DuckDB has no server",
    "operations.probe_disk": "DuckDB has no server",
    "operations.probe_worker_login": "DuckDB has no server",
    "operations.read_archiver": "DuckDB has no server",
    "operations.read_replica": "DuckDB has no server",
    "operations.read_settings": "DuckDB has no server",
    "operations.read_transaction_age": "DuckDB has no server",
    "nodes.is_spread": "a file is on one node",
    "nodes.own_node": "a file is on one node",
    "nodes.node_of_part": "a file is on one node",
    "nodes.place_parts": "a file is on one node",
    "nodes.find_nodes": "a file is on one node",
    "nodes.lock_hop": "a file is on one node",
    "nodes.hold_session": "a file is on one node",
    "nodes.release_session": "a file is on one node",
    "nodes.are_held": "a file is on one node",
    "nodes.open_transactions": "a file is on one node",
    "nodes.share_run": "a file is on one node",
    "nodes.find_end": "a file is on one node",
    "nodes.share_totals": "a file is on one node",
    "nodes.set_session": "a file is on one node",
    "nodes.find_hops_at": "a file is on one node",
    "nodes.last_epoch_at": "a file is on one node",
    "nodes.has_checkpoint": "a file is on one node",
    "nodes.read_in_flight": "a file is on one node",
    "nodes.drop_state": "a file is on one node",
    "nodes.clear_caches": "a file is on one node",
    "nodes.find_validations_at": "a file is on one node",
    "nodes.find_checkpoints_at": "a file is on one node",
    "nodes.find_predicting": "a file is on one node",
    "nodes.find_distributed": "a file is on one node",
    "nodes.distribute_like": "a file is on one node",
    "nodes.find_coordinator": "a file is on one node",
    "replicas.identify": "a DuckDB file has no replicas",
    "replicas.read_position": "a DuckDB file has no replicas",
    "states.read_in_flight": "states in flight stay in the process that owns the file",
    "states.write_in_flight": "states in flight stay in the process that owns the file",
    "states.drop_in_flight": "states in flight stay in the process that owns the file",
    "states.find_database": "states in flight stay in the process that owns the file",
    "states.has_citus": "a file is on one node",
    "states.vacuum": "DuckDB has no vacuum",
    "states.has_distant_workers": "a file has no worker processes",
    "service.assign": "a file has no worker processes",
    "service.beat": "a file has no worker processes",
    "service.finish_assignment": "a file has no worker processes",
    "service.give_up": "a file has no worker processes",
    "service.listen_assignments": "a file has no worker processes",
    "service.listen_outcomes": "a file has no worker processes",
    "service.live_workers": "a file has no worker processes",
    "service.lock_service": "a file has no worker processes",
    "service.lock_worker_name": "a file has no worker processes",
    "service.stop_workers": "a file has no worker processes",
    "service.take_assignment": "a file has no worker processes",
    "zoo.is_read_only": "a file that is open can be written",
    "zoo.share_live": "nobody else writes to the file",
}

QUERIES = {f"{query.file}.{query.name}": query for query in named_queries()}


@pytest.fixture(autouse=True)
def quiet_parser(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "sqlglot")  # which warns before it gives up


def produced() -> str:
    """Return the DuckDB statements of a fresh schema."""
    files = [*schema_files("duckdb"), *current_files("duckdb")]
    shared = [path for path in files if path.parent.name != "engines"]
    statements = [s for path in shared for s in translate_schema(path.read_text())]
    return "".join(f"{statement};\n" for statement in statements)


# -- what is translated -------------------------------------------------------


def test_the_produced_schema_is_the_golden_file() -> None:
    assert produced() == GOLDEN.read_text(), "Run: .venv/bin/python -m tests.unit.db.test_ddl"


def test_the_golden_file_runs_on_duckdb() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA mmdb")
        connection.execute(GOLDEN.read_text())


def test_an_identity_column_becomes_a_sequence() -> None:
    assert translate_schema(
        "CREATE TABLE mmdb.t (t_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL, x real)"
    ) == [
        "CREATE SEQUENCE mmdb.t_t_id_seq",
        "CREATE TABLE mmdb.t (t_id BIGINT DEFAULT NEXTVAL('mmdb.t_t_id_seq') NOT NULL, x REAL)",
    ]


def test_a_foreign_key_is_left_out_and_other_constraints_stay() -> None:
    (table,) = translate_schema(
        "CREATE TABLE mmdb.t (a bigint NOT NULL, CONSTRAINT t_pkey PRIMARY KEY (a),"
        " CONSTRAINT t_a_check CHECK (a > 0), CONSTRAINT t_a_fkey FOREIGN KEY (a)"
        " REFERENCES mmdb.u (a))"
    )
    assert table == (
        "CREATE TABLE mmdb.t (a BIGINT NOT NULL, CONSTRAINT t_pkey PRIMARY KEY (a),"
        " CONSTRAINT t_a_check CHECK (a > 0))"
    )


def test_like_keeps_its_escape_character() -> None:
    query = translate_query(r"SELECT x LIKE 'a\_%' FROM (VALUES ('a_b'), ('axb')) AS t (x)")
    assert duckdb.execute(query).fetchall() == [(True,), (False,)]


def test_nulls_are_ordered_as_in_postgresql() -> None:
    rows = "SELECT x FROM (VALUES (1), (NULL), (2)) AS t (x) ORDER BY x"
    assert duckdb.execute(translate_query(rows)).fetchall() == [(1,), (2,), (None,)]
    assert duckdb.execute(translate_query(f"{rows} DESC")).fetchall() == [(None,), (2,), (1,)]


# -- what is refused ----------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE MATERIALIZED VIEW mmdb.v AS SELECT 1 AS a",
        "CREATE TEMPORARY VIEW v AS SELECT 1 AS a",
        "CREATE VIEW mmdb.v WITH (security_barrier) AS SELECT 1 AS a",
        "CREATE VIEW mmdb.v AS SELECT a FROM mmdb.t WITH CHECK OPTION",
        "CREATE FUNCTION mmdb.f() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "CREATE PROCEDURE mmdb.f() LANGUAGE sql AS 'SELECT 1'",
        "CREATE TRIGGER t BEFORE INSERT ON mmdb.t EXECUTE FUNCTION f()",
        "CREATE RULE r AS ON INSERT TO mmdb.t DO NOTHING",
        "CREATE SEQUENCE mmdb.s",
        "CREATE TYPE mmdb.k AS ENUM ('a')",
        "CREATE EXTENSION plpython3u",
        "CREATE INDEX i ON mmdb.t (a)",
        "CREATE UNIQUE INDEX i ON mmdb.t (a) WHERE b IS NULL",
        "CREATE INDEX i ON mmdb.t USING gin (a)",
        "CREATE INDEX CONCURRENTLY i ON mmdb.t (a)",
        "CREATE UNLOGGED TABLE mmdb.t (a integer)",
        "CREATE TEMPORARY TABLE t (a integer)",
        "CREATE TABLE IF NOT EXISTS mmdb.t (a integer)",
        "CREATE TABLE mmdb.t AS SELECT 1 AS a",
        "CREATE TABLE mmdb.t (a integer) PARTITION BY RANGE (a)",
        "CREATE TABLE mmdb.t PARTITION OF mmdb.u FOR VALUES FROM (1) TO (2)",
        "CREATE TABLE mmdb.t (a integer) INHERITS (mmdb.u)",
        "CREATE TABLE mmdb.t (LIKE mmdb.u INCLUDING ALL)",
        "CREATE TABLE mmdb.t (a integer) TABLESPACE fast",
        "CREATE TABLE mmdb.t (a integer) WITH (fillfactor = 70)",
        "CREATE TABLE mmdb.t (a integer) USING columnar",
        'CREATE TABLE mmdb.t (a text COLLATE "C")',
        "CREATE TABLE mmdb.t (a bytea STORAGE EXTERNAL)",
        "CREATE TABLE mmdb.t (a bytea COMPRESSION lz4)",
        "CREATE TABLE mmdb.t (a integer, b integer GENERATED ALWAYS AS (a + 1) STORED)",
        "CREATE TABLE mmdb.t (a bigint GENERATED ALWAYS AS IDENTITY (START WITH 10))",
        "CREATE TABLE mmdb.t (a integer UNIQUE DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TABLE mmdb.t (a integer, CONSTRAINT k UNIQUE (a) DEFERRABLE)",
        "CREATE TABLE mmdb.t (a integer, CONSTRAINT k UNIQUE NULLS NOT DISTINCT (a))",
        "CREATE TABLE mmdb.t (a integer, CONSTRAINT k PRIMARY KEY (a) INCLUDE (b))",
        "CREATE TABLE mmdb.t (a integer, CONSTRAINT k EXCLUDE USING gist (a WITH =))",
        "CREATE TABLE mmdb.t (a integer CHECK (a > 0) NO INHERIT)",
        "CREATE TABLE mmdb.t (a integer REFERENCES mmdb.u (a))",
        "CREATE TABLE mmdb.t (a integer REFERENCES mmdb.u (a) ON DELETE CASCADE)",
        "CREATE TABLE mmdb.t (a integer, FOREIGN KEY (a) REFERENCES mmdb.u (a) ON DELETE CASCADE)",
        "CREATE TABLE mmdb.t (a integer, FOREIGN KEY (a) REFERENCES mmdb.u (a) MATCH FULL)",
        "CREATE TABLE mmdb.t (a serial)",
        "CREATE TABLE mmdb.t (a numeric)",
        "CREATE TABLE mmdb.t (a varchar(3))",
        "CREATE TABLE mmdb.t (a char(3))",
        "CREATE TABLE mmdb.t (a timestamp)",
        "CREATE TABLE mmdb.t (a json)",
        "CREATE TABLE mmdb.t (a integer[][])",
        "CREATE TABLE mmdb.t (a integer[3])",
        "CREATE TABLE mmdb.t (a mmdb.k)",
        "CREATE TABLE mmdb.t (a text DEFAULT current_user)",
        'CREATE TABLE mmdb."T" (a integer)',
        "ALTER TABLE mmdb.t ALTER COLUMN a SET STORAGE EXTERNAL",
        "ALTER TABLE mmdb.t ALTER COLUMN a TYPE bigint USING a::bigint",
        "ALTER TABLE mmdb.t ADD CONSTRAINT k CHECK (a > 0) NOT VALID",
        "ALTER TABLE mmdb.t DROP COLUMN a CASCADE",
        "ALTER INDEX mmdb.i RENAME TO j",
        "DROP TABLE mmdb.t CASCADE",
        "DROP INDEX mmdb.i",
        "COMMENT ON FUNCTION mmdb.f() IS 'x'",
        "COMMENT ON INDEX mmdb.i IS 'x'",
        "GRANT SELECT ON mmdb.t TO ann",
        "DO $$ BEGIN NULL; END $$",
        "SET LOCAL search_path = pg_catalog",
        "TRUNCATE mmdb.t",
        "COPY mmdb.t FROM STDIN",
        "SELECT 1",
        "LISTEN mmdb",
        "CREATE TABLE mmdb.t (",
    ],
)
def test_a_change_without_a_faithful_form_is_refused(statement: str) -> None:
    with pytest.raises(UntranslatableSql):
        translate_schema(statement)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT encode(a, 'hex') FROM mmdb.t",
        "SELECT decode(a, 'hex') FROM mmdb.t",
        r"SELECT '\xdead'::bytea",
        "SELECT x'de'",
        "SELECT b'101'",
        r"SELECT E'a\nb'",
        "SELECT a FROM mmdb.t FOR UPDATE",
        "SELECT a FROM mmdb.t FOR UPDATE SKIP LOCKED",
        "SELECT a FROM mmdb.t FOR SHARE NOWAIT",
        "SELECT a FROM ONLY mmdb.t",
        "SELECT a FROM mmdb.t TABLESAMPLE SYSTEM (10)",
        "SELECT a FROM mmdb.t FETCH FIRST 3 ROWS WITH TIES",
        "WITH t AS MATERIALIZED (SELECT 1 AS a) SELECT a FROM t",
        "SELECT sum(a) OVER (ORDER BY b ROWS 1 PRECEDING EXCLUDE TIES) FROM mmdb.t",
        "SELECT a / b FROM mmdb.t",
        "SELECT 5 / 2",
        "SELECT CAST(a AS double precision) / b FROM mmdb.t",
        "SELECT a % b FROM mmdb.t",
        "SELECT a # b FROM mmdb.t",
        "SELECT round(a) FROM mmdb.t",
        "SELECT a::numeric FROM mmdb.t",
        "SELECT a::varchar(3) FROM mmdb.t",
        "SELECT a[1] FROM mmdb.t",
        "SELECT a ~ 'x' FROM mmdb.t",
        "SELECT a ->> b FROM mmdb.t",
        "SELECT a #>> '{b,c}' FROM mmdb.t",
        "SELECT a @> b FROM mmdb.t",
        "SELECT a ? 'b' FROM mmdb.t",
        'SELECT a COLLATE "C" FROM mmdb.t',
        'SELECT a AS "Rank" FROM mmdb.t',
        "SELECT to_char(a, 'YYYY') FROM mmdb.t",
        "SELECT extract(hour FROM a) FROM mmdb.t",
        "SELECT date_trunc('day', a) FROM mmdb.t",
        "SELECT a AT TIME ZONE 'utc' FROM mmdb.t",
        "SELECT generate_series(1, 3)",
        "SELECT string_agg(a, ',') FROM mmdb.t",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM mmdb.t",
        "SELECT format('%I', a) FROM mmdb.t",
        "SELECT hashtext(a) FROM mmdb.t",
        "SELECT a @> ARRAY[b] FROM mmdb.t",
        "SELECT random()",
        "SELECT clock_timestamp()",
        "SELECT current_user",
        "SELECT pg_advisory_lock(1)",
        "INSERT INTO mmdb.t (a) VALUES (1) ON CONFLICT ON CONSTRAINT k DO NOTHING",
        "INSERT INTO mmdb.t (a) OVERRIDING SYSTEM VALUE VALUES (1)",
        "DELETE FROM mmdb.t USING mmdb.u WHERE t.a = u.a",
        "MERGE INTO mmdb.t USING mmdb.u ON t.a = u.a WHEN MATCHED THEN DELETE",
        "CALL mmdb.train('run')",
        "EXPLAIN SELECT 1",
    ],
)
def test_a_query_without_a_faithful_form_is_refused(query: str) -> None:
    with pytest.raises(UntranslatableSql):
        translate_query(query)


def test_the_error_names_what_is_wrong_and_where() -> None:
    with pytest.raises(UntranslatableSql) as caught:
        translate_query("SELECT a FROM mmdb.t FOR UPDATE")
    assert caught.value.message.startswith("Select with locks has no known form in DuckDB: SELECT")
    assert "mmdb/db/ddl.py" in caught.value.hint


# -- the named queries --------------------------------------------------------


def test_the_list_of_postgresql_only_queries_names_queries_that_exist() -> None:
    assert set(POSTGRES_ONLY) <= set(QUERIES)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with connect("duckdb://") as opened:
        yield opened


@pytest.mark.parametrize("name", sorted(set(QUERIES) - set(POSTGRES_ONLY)))
def test_a_named_query_is_valid_on_duckdb(name: str, database: Database) -> None:
    query = QUERIES[name]
    parameters = {parameter: None for parameter in query.parameters}
    database.sql(f"EXPLAIN {query.duckdb}", parameters)


if __name__ == "__main__":
    GOLDEN.write_text(produced())
