"""Both engines have the same tables, views and functions, and mean the same by the same SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import psycopg
import pytest
from psycopg.rows import tuple_row

from mmdb import errors
from mmdb.api import Database, connect
from mmdb.db.ddl import translate_query, translate_schema
from mmdb.db.postgres import PostgresConnection
from mmdb.db.url import AnyConnection
from mmdb.server.arguments import json_value
from mmdb.server.calls import Declaration, declarations
from tests.cluster import Cluster
from tests.named_queries import named_queries

#: Tables that one engine alone has, with the reason.
POSTGRES_TABLES = {"state_chunk": "on DuckDB, states in flight stay in the file's owner"} | {
    f"tensor_chunk_{k}": "a partition: DuckDB's table has none" for k in range(8)
}
#: Functions that differ, with the reason.
ODD_FUNCTIONS = {
    "predict": "one macro takes what two overloads take",
    "embed": "as predict",
    "train": "a procedure: PostgreSQL's has its result among its arguments",
    "retrain": "a procedure: as train",
    "remake": "a procedure: as train",
}
#: PostgreSQL's types and DuckDB's.
TYPES = {
    "bigint": "BIGINT",
    "bigint[]": "BIGINT[]",
    "boolean": "BOOLEAN",
    "bytea": "BLOB",
    "double precision": "DOUBLE",
    "integer": "INTEGER",
    "integer[]": "INTEGER[]",
    "jsonb": "JSON",
    "numeric": "HUGEINT",  # the sum of bigint; whole numbers in both
    "text": "VARCHAR",
    "timestamp with time zone": "TIMESTAMP WITH TIME ZONE",
}

POSTGRES_COLUMNS = """
SELECT
    c.relname AS relation,
    c.relkind = 'v' AS is_view,
    a.attname AS name,
    format_type(a.atttypid, a.atttypmod) AS type,
    NOT a.attnotnull AS nullable
FROM pg_class AS c
INNER JOIN pg_attribute AS a ON c.oid = a.attrelid
WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0
    AND NOT a.attisdropped
ORDER BY 1, a.attnum
"""
DUCKDB_COLUMNS = """
SELECT
    c.table_name AS relation,
    v.view_name IS NOT NULL AS is_view,
    c.column_name AS name,
    c.data_type AS type,
    c.is_nullable AS nullable
FROM duckdb_columns() AS c
LEFT JOIN duckdb_views() AS v ON c.schema_name = v.schema_name AND c.table_name = v.view_name
WHERE c.schema_name = 'mmdb'
ORDER BY 1, c.column_index
"""
POSTGRES_CONSTRAINTS = """
SELECT
    t.relname AS relation,
    CASE c.contype WHEN 'p' THEN 'PRIMARY KEY' WHEN 'u' THEN 'UNIQUE' ELSE 'CHECK' END AS type,
    (
        SELECT array_agg(a.attname::text ORDER BY k.place)
        FROM unnest(c.conkey) WITH ORDINALITY AS k (number, place)
        INNER JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = k.number
    ) AS columns
FROM pg_constraint AS c
INNER JOIN pg_class AS t ON c.conrelid = t.oid
WHERE c.connamespace = 'mmdb'::regnamespace AND c.contype IN ('p', 'u', 'c')
    AND c.conname !~ '_range$|^setting_password_check$' -- against those who share a server
"""
DUCKDB_CONSTRAINTS = """
SELECT table_name AS relation, constraint_type AS type, constraint_column_names AS columns
FROM duckdb_constraints()
WHERE schema_name = 'mmdb' AND constraint_type IN ('PRIMARY KEY', 'UNIQUE', 'CHECK')
"""
POSTGRES_COMMENTS = """
SELECT c.relname || coalesce('.' || a.attname, '') AS name, d.description AS text
FROM pg_description AS d
INNER JOIN pg_class AS c ON d.classoid = 'pg_class'::regclass AND d.objoid = c.oid
LEFT JOIN pg_attribute AS a ON d.objoid = a.attrelid AND d.objsubid = a.attnum AND a.attnum > 0
WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind IN ('r', 'p', 'v')
"""
DUCKDB_COMMENTS = """
SELECT table_name AS name, comment AS text
FROM duckdb_tables() WHERE schema_name = 'mmdb' AND comment IS NOT NULL
UNION ALL
SELECT view_name, comment FROM duckdb_views() WHERE schema_name = 'mmdb' AND comment IS NOT NULL
UNION ALL
SELECT table_name || '.' || column_name, comment
FROM duckdb_columns() WHERE schema_name = 'mmdb' AND comment IS NOT NULL
"""
POSTGRES_ARGUMENTS = """
SELECT
    p.proname AS name,
    coalesce(p.proargnames[1:p.pronargs], '{}') AS arguments,
    p.pronargdefaults AS defaults
FROM pg_proc AS p
WHERE p.pronamespace = 'mmdb'::regnamespace AND p.prorettype <> 'trigger'::regtype
ORDER BY 1
"""
POSTGRES_DEFAULTS = """
SELECT pg_get_function_arg_default(p.oid, i) AS default
FROM pg_proc AS p, generate_series(1, p.pronargs) AS i
WHERE p.pronamespace = 'mmdb'::regnamespace AND p.proname = %(name)s
ORDER BY i
"""


@pytest.fixture(scope="module")
def postgres(cluster: Cluster, template: str) -> Iterator[Database]:
    url = cluster.create_database("mmdb_parity", template)
    with connect(url) as opened:
        yield opened
    cluster.drop_database("mmdb_parity")


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with connect(f"duckdb:///{tmp_path_factory.mktemp('parity') / 'zoo.duckdb'}") as opened:
        yield opened


# -- objects ------------------------------------------------------------------


def columns(rows: list[Any], types: dict[str, str], *, views: bool) -> dict[str, list[Any]]:
    """Return name, type and, for tables, nullability of each relation's columns."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        if row["is_view"] == views and row["relation"] not in POSTGRES_TABLES:
            column = (row["name"], types.get(row["type"], row["type"]))
            found.setdefault(row["relation"], []).append(
                column if views else (*column, row["nullable"])
            )
    return found


@pytest.mark.parametrize("views", [False, True], ids=["tables", "views"])
def test_relations_have_the_same_columns(postgres: Database, duckdb: Database, views: bool) -> None:
    ours = columns(postgres.sql(POSTGRES_COLUMNS), TYPES, views=views)
    theirs = columns(duckdb.sql(DUCKDB_COLUMNS), {}, views=views)
    assert sorted(ours) == sorted(theirs)
    for relation, expected in ours.items():
        assert theirs[relation] == expected, relation


def test_tables_have_the_same_keys_and_checks(postgres: Database, duckdb: Database) -> None:
    def described(rows: list[Any]) -> list[tuple[str, str, list[str]]]:
        return sorted(
            (row["relation"], row["type"], list(row["columns"]))
            for row in rows
            if row["relation"] not in POSTGRES_TABLES
        )

    ours = described(postgres.sql(POSTGRES_CONSTRAINTS))
    assert described(duckdb.sql(DUCKDB_CONSTRAINTS)) == ours


def test_comments_are_the_same(postgres: Database, duckdb: Database) -> None:
    ours = {row["name"]: row["text"] for row in postgres.sql(POSTGRES_COMMENTS)}
    theirs = {row["name"]: row["text"] for row in duckdb.sql(DUCKDB_COMMENTS)}
    assert theirs == {name: text for name, text in ours.items() if name not in POSTGRES_TABLES}


def test_every_column_of_a_view_has_a_comment(postgres: Database) -> None:
    commented = {row["name"] for row in postgres.sql(POSTGRES_COMMENTS)}
    seen = columns(postgres.sql(POSTGRES_COLUMNS), {}, views=True)
    names = {f"{view}.{name}" for view, of_it in seen.items() for name, *_ in of_it}
    assert names - commented == set()


# -- functions ----------------------------------------------------------------


def test_functions_have_the_same_names_and_arguments(postgres: Database, duckdb: Database) -> None:
    ours = postgres.sql(POSTGRES_ARGUMENTS)
    theirs = {
        row["name"]: row["arguments"]
        for row in duckdb.sql(
            "SELECT function_name AS name, parameters AS arguments FROM duckdb_functions()"
            " WHERE schema_name = 'mmdb'"
        )
    }
    of_roles = {"caller", "caller_owns", "caller_is", "keeps", "new_owner"}  # not on DuckDB
    of_roles |= {"set_price", "too_long"}
    assert {row["name"] for row in ours} == set(theirs) | of_roles
    for row in ours:
        if row["name"] not in {*ODD_FUNCTIONS, *of_roles}:
            assert list(row["arguments"]) == theirs[row["name"]], row["name"]


PLAIN_FUNCTIONS = [d for d in declarations() if d.name not in ODD_FUNCTIONS]


@pytest.mark.parametrize("declaration", PLAIN_FUNCTIONS, ids=lambda d: d.name)
def test_a_function_has_the_same_defaults(
    declaration: Declaration,
    postgres: Database,
    duckdb: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[Any] = []

    def record(backend: object, *arguments: object) -> None:
        taken.extend(arguments)
        raise errors.InputError("recorded")

    exposed = getattr(import_module(declaration.module), declaration.function)
    monkeypatch.setattr(exposed, "function", record)
    mandatory = [a.name for a in declaration.arguments if a.default is None]
    call = f"mmdb.{declaration.name}({', '.join(f'{name} := NULL' for name in mandatory)})"
    with pytest.raises(errors.InputError, match="recorded"):
        duckdb.sql(f"FROM {call}" if declaration.is_set else f"SELECT {call}")
    assert [plain(value) for value in taken] == postgres_defaults(postgres, declaration.name)


def postgres_defaults(postgres: Database, name: str) -> list[Any]:
    """Return the default of each argument; None where it has none."""
    texts = [row["default"] for row in postgres.sql(POSTGRES_DEFAULTS, {"name": name})]
    return [plain(postgres.sql(f"SELECT {text or 'NULL'} AS value")[0]["value"]) for text in texts]


def plain(value: Any) -> Any:
    """Return a value as both engines can be compared by: JSON read, numbers as float."""
    if isinstance(value, str) and value[:1] in ('"', "{"):
        return json_value(value)
    return float(value) if type(value).__name__ in ("Decimal", "int", "float") else value


# -- SQL ----------------------------------------------------------------------

TABLES = """
CREATE TABLE mmdb.left_table (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL, k text, x double precision, n integer,
    j jsonb, b bytea, t timestamptz NOT NULL DEFAULT now(), r real,
    CONSTRAINT left_table_pkey PRIMARY KEY (id), CONSTRAINT left_table_n_check CHECK (n > -100)
);
CREATE TABLE mmdb.right_table (k text NOT NULL, y integer, CONSTRAINT right_pkey PRIMARY KEY (k));
INSERT INTO mmdb.left_table (k, x, n, j) VALUES
    ('a', 1.5, 3, '{"v": 1.5, "w": null, "x.y": "dot", "o": {"p": 7}}'),
    ('b', NULL, -2, '{"v": 2}'),
    ('c_d', 4.0, NULL, NULL),
    (NULL, -0.5, 7, '{}');
INSERT INTO mmdb.right_table (k, y) VALUES ('a', 1), ('b', 2), ('z', NULL);
"""

#: One query for each construct that mmdb/db/ddl.py lets through.
SAME = [
    "SELECT id, k, x, n FROM mmdb.left_table ORDER BY x",
    "SELECT id FROM mmdb.left_table ORDER BY x DESC, id",
    "SELECT id FROM mmdb.left_table ORDER BY x DESC NULLS LAST LIMIT 2",
    "SELECT id FROM mmdb.left_table ORDER BY x IS NULL DESC, n NULLS FIRST LIMIT 2 OFFSET 1",
    "SELECT n + 1, n - 1, n * 2, -n FROM mmdb.left_table ORDER BY id",
    "SELECT CAST(n AS double precision) / 2 FROM mmdb.left_table ORDER BY id",
    "SELECT n / CAST(nullif(n - 3, 0) AS double precision) FROM mmdb.left_table ORDER BY id",
    "SELECT CAST(x AS real), x::text, CAST('5' AS bigint), CAST('t' AS boolean)"
    " FROM mmdb.left_table WHERE x = 1.5",
    "SELECT n = 3, n <> 3, n < 3, n <= 3, n > 3, n >= 3 FROM mmdb.left_table ORDER BY id",
    "SELECT n IS NULL, n IS NOT NULL, n IS DISTINCT FROM 3, n IS NOT DISTINCT FROM 3"
    " FROM mmdb.left_table ORDER BY id",
    "SELECT n = 3 AND x > 0, n = 3 OR x > 0, NOT n = 3, TRUE FROM mmdb.left_table ORDER BY id",
    "SELECT n BETWEEN 1 AND 5, n IN (3, 7), n NOT IN (3) FROM mmdb.left_table ORDER BY id",
    "SELECT id FROM mmdb.left_table WHERE k IN (SELECT r.k FROM mmdb.right_table AS r) ORDER BY 1",
    "SELECT id FROM mmdb.left_table AS l WHERE EXISTS"
    " (SELECT 1 FROM mmdb.right_table AS r WHERE r.k = l.k) ORDER BY id",
    "SELECT id FROM mmdb.left_table WHERE n = ANY(ARRAY[3, 7]) ORDER BY id",
    "SELECT ARRAY[3, 7, NULL] @> ARRAY[coalesce(n, 0)], ARRAY[n] @> ARRAY[3, coalesce(n, 0)]"
    " FROM mmdb.left_table ORDER BY id",
    "SELECT k LIKE 'c_d', k LIKE '%', k NOT LIKE 'a%' FROM mmdb.left_table ORDER BY id",
    r"SELECT k LIKE 'c\_d', k LIKE 'c\%' FROM mmdb.left_table ORDER BY id",
    "SELECT k || '!', upper(k), lower(k), length(k) FROM mmdb.left_table ORDER BY id",
    "SELECT replace(k, '_', '__'), replace(k, '', 'x'), replace(k, 'c_d', '')"
    " FROM mmdb.left_table ORDER BY id",
    "SELECT coalesce(n, 0), nullif(n, 3) FROM mmdb.left_table ORDER BY id",
    "SELECT CASE WHEN n > 0 THEN 'up' WHEN n < 0 THEN 'down' ELSE '?' END"
    " FROM mmdb.left_table ORDER BY id",
    "SELECT j ->> 'v', j ->> 'w', j ->> 'x.y', j ->> 'none', j -> 'o' ->> 'p'"
    " FROM mmdb.left_table ORDER BY id",
    "SELECT CAST(j ->> 'v' AS double precision) FROM mmdb.left_table ORDER BY id",
    "SELECT id FROM mmdb.left_table WHERE j ->> 'v' = '2' AND j ->> 'w' IS NULL",
    "SELECT count(*), count(x), count(DISTINCT k), min(n), max(n), sum(n), sum(x), min(k)"
    " FROM mmdb.left_table",
    "SELECT count(*) FILTER (WHERE n > 0) FROM mmdb.left_table",
    "SELECT n > 0 AS up, count(*), sum(x) FROM mmdb.left_table GROUP BY n > 0"
    " HAVING count(*) > 0 ORDER BY 1",
    "SELECT sum(n), min(n), max(k), count(*) FROM mmdb.left_table WHERE id < 0",
    "SELECT DISTINCT n > 0 FROM mmdb.left_table ORDER BY 1",
    "SELECT DISTINCT ON (n > 0) n > 0, id FROM mmdb.left_table ORDER BY n > 0, id DESC",
    "SELECT l.id, r.y FROM mmdb.left_table AS l INNER JOIN mmdb.right_table AS r ON l.k = r.k"
    " ORDER BY 1",
    "SELECT l.id, r.y FROM mmdb.left_table AS l LEFT JOIN mmdb.right_table AS r USING (k)"
    " ORDER BY 1",
    "SELECT l.id, r.y FROM mmdb.left_table AS l FULL JOIN mmdb.right_table AS r ON l.k = r.k"
    " ORDER BY 1, 2",
    "SELECT count(*) FROM mmdb.left_table CROSS JOIN mmdb.right_table",
    "SELECT id, row_number() OVER (PARTITION BY n > 0 ORDER BY x DESC, id) FROM mmdb.left_table"
    " ORDER BY id",
    "SELECT id, sum(n) OVER (ORDER BY id) FROM mmdb.left_table ORDER BY id",
    "WITH up AS (SELECT id FROM mmdb.left_table WHERE n > 0) SELECT count(*) FROM up",
    "WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 4)"
    " SELECT i FROM c ORDER BY i",
    "SELECT k FROM mmdb.left_table UNION SELECT k FROM mmdb.right_table ORDER BY 1",
    "SELECT k FROM mmdb.left_table INTERSECT SELECT k FROM mmdb.right_table ORDER BY 1",
    "SELECT k FROM mmdb.left_table EXCEPT SELECT k FROM mmdb.right_table ORDER BY 1",
    "SELECT s.n FROM (SELECT max(l.n) AS n FROM mmdb.left_table AS l) AS s",
    "SELECT (SELECT max(r.y) FROM mmdb.right_table AS r), (1 + 2) * 3",
    "SELECT v.a, v.b FROM (VALUES (1, 'x'), (2, NULL)) AS v (a, b) ORDER BY 1",
    "SELECT to_timestamp(1.5) = to_timestamp(1.5), extract(epoch FROM to_timestamp(1.5))",
    "SELECT t <= now(), t > now() - CAST('1 day' AS interval) FROM mmdb.left_table ORDER BY id",
    "SELECT floor(x), floor(-x), floor(CAST(n AS double precision) / 3)"
    " FROM mmdb.left_table ORDER BY id",
    "SELECT abs(x), abs(-x), abs(n) FROM mmdb.left_table ORDER BY id",
    "SELECT floor(extract(epoch FROM to_timestamp(7199.9)) / CAST(3600 AS double precision))",
    "SELECT v.a ~ '^[0-9]{1,2}([.][0-9]+)?$'"
    " FROM (VALUES (1, '12'), (2, '1.5'), (3, '123'), (4, 'a1'), (5, NULL), (6, '1.')) AS v (i, a)"
    " ORDER BY v.i",
    "SELECT octet_length(b) FROM mmdb.left_table ORDER BY id",
    "SELECT ARRAY['a', 'b'] = CAST(ARRAY['a', 'b'] AS text[])",
    r"SELECT 'it''s', 'a\b', '$.x', 1e3",
    "INSERT INTO mmdb.right_table (k, y) VALUES ('a', 9)"
    " ON CONFLICT (k) DO UPDATE SET y = excluded.y RETURNING k, y",
    "INSERT INTO mmdb.right_table (k, y) VALUES ('a', 7) ON CONFLICT (k) DO NOTHING RETURNING k",
    "UPDATE mmdb.left_table SET n = n + 1 WHERE n > 0 RETURNING id, n",
    "UPDATE mmdb.left_table SET n = r.y FROM mmdb.right_table AS r WHERE left_table.k = r.k"
    " RETURNING id, n",
    "DELETE FROM mmdb.left_table WHERE n IS NULL RETURNING id",
]


@pytest.fixture(scope="module")
def filled(postgres: Database, duckdb: Database) -> tuple[Database, Database]:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            postgres.sql(statement)
    for statement in translate_schema(TABLES):
        duckdb.sql(statement)
    return postgres, duckdb


def tuples(connection: AnyConnection, query: str) -> list[list[Any]]:
    """Return the rows of a query, whose columns may have no names."""
    if isinstance(connection, PostgresConnection):
        cursor = connection.raw.cursor(row_factory=tuple_row)
        rows: Any = cursor.execute(query.encode()).fetchall()
    else:
        rows = connection.raw.execute(query).fetchall()
    return [[plain(value) for value in row] for row in rows]


class _RollBack(Exception):
    """Undoes what a test wrote."""


@pytest.mark.parametrize("query", SAME)
def test_a_query_means_the_same(query: str, filled: tuple[Database, Database]) -> None:
    results = []
    for database, text in zip(filled, (query, translate_query(query)), strict=True):
        with pytest.raises(_RollBack), database.connection.transaction():
            results.append(tuples(database.connection, text))
            raise _RollBack
    ours, theirs = results
    assert theirs == ours
    assert ours or "RETURNING k" in query


# -- named queries ------------------------------------------------------------


#: What only a database on Citus has, where tests/citus/test_engine.py asks, or one with teams.
ON_CITUS = re.compile(
    r"\bpg_dist_|\bcitus_|\bcreate_distributed_table|\brun_command_on_workers\b|\bget_shard_id_for_|\bmmdb\.(node_status|share_\w+)\b"
)
NAMED = [(query.file, query) for query in named_queries() if not ON_CITUS.search(query.sql)]


@pytest.mark.parametrize(("file", "query"), NAMED, ids=lambda v: getattr(v, "name", v))
def test_a_named_query_is_valid_on_postgresql(file: str, query: Any, postgres: Database) -> None:
    connection = postgres.connection.raw
    assert isinstance(connection, psycopg.Connection)
    result = connection.pgconn.prepare(b"", query.numbered.encode())
    assert result.status == psycopg.pq.ExecStatus.COMMAND_OK, result.error_message.decode()
