"""Named queries as functions of PostgreSQL that run with mmdb's rights, not with the caller's.

People have no right on mmdb's tables: what they may do to them is this closed set of statements,
schema `mmdb_call`. So nobody composes a statement of his own that locks a table, compares what he
may not see, or asks how it was executed. The functions belong to the role `mmdb_system`, whose rows
the policies of teams choose by who calls; names in them are resolved in the catalog alone.

With teams the views are such functions too: PostgreSQL moves a reader's comparison below a policy
where it takes it for harmless, and EXPLAIN says then how many hidden rows it met. What a function
returns has been chosen before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import TopologicalSorter

from psycopg import pq

from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import Query, load, sql_directory
from mmdb.errors import DatabaseFailed, RightsMissing

_BEFORE = (
    "SET LOCAL citus.enable_ddl_propagation = off",  # a setting that other servers do not read
    "DROP SCHEMA IF EXISTS mmdb_call CASCADE",
    "DROP SCHEMA IF EXISTS mmdb_view CASCADE",
    "CREATE SCHEMA mmdb_call",
    "GRANT USAGE ON SCHEMA mmdb_call TO mmdb_reader, mmdb_system",
    "GRANT CREATE ON SCHEMA mmdb_call TO mmdb_system",
)
#: What the server's Python reads rows by: values with the bytes that PostgreSQL has in memory, as
#: another type. Both functions of PostgreSQL return what they are given.
_RAW = (
    *(
        f"CREATE FUNCTION mmdb_call.raw({element}[]) RETURNS bytea LANGUAGE internal"
        " IMMUTABLE STRICT PARALLEL SAFE AS 'byteasend'"
        for element in ("float8", "float4", "int8", "text")
    ),
    "CREATE FUNCTION mmdb_call.from_bits(bigint) RETURNS float8 LANGUAGE internal"
    " IMMUTABLE STRICT PARALLEL SAFE AS 'int8up'",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA mmdb_call TO mmdb_trainer",
)
_AFTER = (
    "RESET ROLE",
    "REVOKE CREATE ON SCHEMA mmdb_call FROM mmdb_system",
    "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA mmdb_call FROM public",
)
_TYPES = "SELECT t.oid, t.oid::regtype::text AS name FROM pg_catalog.pg_type AS t"
#: Views of mmdb's rows, their text, and the views that it reads.
_VIEWS = """
SELECT
    c.relname AS name,
    pg_catalog.pg_get_viewdef(c.oid) AS body,
    ARRAY(SELECT DISTINCT b.relname::text FROM pg_catalog.pg_rewrite AS r
        INNER JOIN pg_catalog.pg_depend AS d
            ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
            AND d.refclassid = 'pg_class'::regclass
        INNER JOIN pg_catalog.pg_class AS b ON d.refobjid = b.oid
        WHERE r.ev_class = c.oid AND b.oid <> c.oid AND b.relkind = 'v'
            AND b.relnamespace = c.relnamespace) AS reads
FROM pg_catalog.pg_class AS c
WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'v' AND EXISTS (
    SELECT 1 FROM pg_catalog.pg_rewrite AS r
    INNER JOIN pg_catalog.pg_depend AS d
        ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
        AND d.refclassid = 'pg_class'::regclass
    INNER JOIN pg_catalog.pg_class AS t ON d.refobjid = t.oid
    WHERE r.ev_class = c.oid AND t.oid <> c.oid AND t.relnamespace = c.relnamespace
)
"""


_DEFINER = """LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $mmdb_call$
#variable_conflict use_column
BEGIN
"""
#: What a statement asks before it begins: with teams whose rows it may see, without them, where it
#: writes, that nobody's code has been called by PostgreSQL in a session of more rights.
_KNOW_CALLER, _CHECK_CALLER = "PERFORM mmdb.know_caller();\n", "PERFORM mmdb.caller();\n"
_WRITES = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM) mmdb\.")
#: Roles whose rights suffice for a statement, the least first: as whom it runs, who may call it.
_LEVELS = (
    ("mmdb_reader", "mmdb_system", "mmdb_reader"),
    ("mmdb_system", "mmdb_system", "mmdb_trainer"),
    ("mmdb_system_admin", "mmdb_system_admin", "mmdb_admin"),
)
#: Statements that readers call although they may not read what these read.
_FOR_READERS = {"owners_find_memory"}


def make_definers(connection: PostgresConnection, *, teams: bool, inside: bool) -> None:
    """Make the functions anew, and with teams the views over them, in the transaction under way.

    Args:
        inside: whether the server runs Python, which takes a superuser to install.
    Raises:
        DatabaseFailed: PostgreSQL does not know a statement's tables or columns.
    """
    for statement in (*_BEFORE, *(_RAW if inside else ())):
        connection.script(statement)
    views = _fence_views(connection) if teams else None
    types = {row["oid"]: row["name"] for row in connection.select(_TYPES)}
    for query in _queries():
        body = views.sub(r"mmdb_view.\1", query.numbered) if views else query.numbered
        columns = _columns(connection.raw.pgconn, query, types)
        runs_as, caller = _level(connection, query)
        connection.script(f"SET LOCAL ROLE {runs_as}" if runs_as else "RESET ROLE")
        asked = _CHECK_CALLER if _WRITES.search(body) else ""
        connection.script(_function(query, body, columns, _KNOW_CALLER if teams else asked))
        if query.definer in _FOR_READERS:
            caller = "mmdb_reader"
        if caller:
            given = ", ".join(query.parameters.values())
            connection.script(
                f"GRANT EXECUTE ON FUNCTION mmdb_call.{query.definer}({given}) TO {caller}"
            )
    for statement in _AFTER:
        connection.script(statement)


def _fence_views(connection: PostgresConnection) -> re.Pattern[str]:
    """Move what the views select behind functions; return the pattern of the views' names."""
    views = {row["name"]: row for row in connection.select(_VIEWS)}
    named = re.compile(rf"(?<!')\bmmdb\.({'|'.join(views)})\b(?!\()")
    connection.script("CREATE SCHEMA mmdb_view AUTHORIZATION mmdb_system")
    for name in TopologicalSorter({n: v["reads"] for n, v in views.items()}).static_order():
        body = named.sub(r"mmdb_view.\1", views[name]["body"])
        connection.script("SET LOCAL ROLE mmdb_system")
        connection.script(f"CREATE VIEW mmdb_view.{name} AS {body}")
        connection.script(
            f"CREATE FUNCTION mmdb_call.view_{name}() RETURNS SETOF mmdb_view.{name} "
            f"{_DEFINER}{_KNOW_CALLER}"
            f"RETURN QUERY SELECT * FROM mmdb_view.{name};\nEND\n$mmdb_call$"
        )
        connection.script(f"GRANT EXECUTE ON FUNCTION mmdb_call.view_{name}() TO mmdb_reader")
        connection.script("RESET ROLE")
        connection.script(
            f"CREATE OR REPLACE VIEW mmdb.{name} AS SELECT r.* FROM mmdb_call.view_{name}() AS r"
        )
    return named


def _level(connection: PostgresConnection, query: Query) -> tuple[str, str]:
    """Return as whom a statement runs and who may call it; empty texts for the owner's alone."""
    nulls = f"({', '.join('NULL' for _ in query.parameters)})" if query.parameters else ""
    for level in _LEVELS:
        connection.script(f"RESET ROLE; SAVEPOINT level; SET LOCAL ROLE {level[0]}")
        try:
            connection.script(f"PREPARE mmdb_level AS {query.numbered}")
            connection.script(f"EXPLAIN EXECUTE mmdb_level{nulls}")
        except RightsMissing:
            continue
        finally:
            connection.script("ROLLBACK TO level; RELEASE level; DEALLOCATE ALL")
        return level[1:]
    return "", ""


def _queries() -> Iterator[Query]:
    for path in sorted(sql_directory("sql/queries").glob("*.sql")):
        for query in load(path.stem):
            if query.definer is not None:
                yield query
                if query.many is not None:
                    yield query.many


def _columns(session: pq.abc.PGconn, query: Query, types: dict[int, str]) -> list[tuple[str, str]]:
    """Return name and type of the columns that a statement returns, as PostgreSQL says."""
    session.prepare(b"", query.numbered.encode())
    found = session.describe_prepared(b"")
    if found.status != pq.ExecStatus.COMMAND_OK:
        raise DatabaseFailed(f"{query.definer}: {found.error_message.decode().strip()}")
    return [((found.fname(k) or b"").decode(), types[found.ftype(k)]) for k in range(found.nfields)]


def _function(query: Query, body: str, columns: list[tuple[str, str]], before: str) -> str:
    given = ", ".join(query.parameters.values())
    returns = ", ".join(f'"{name}" {kind}' for name, kind in columns)
    return (
        f"CREATE FUNCTION mmdb_call.{query.definer}({given}) "
        f"RETURNS {f'TABLE ({returns})' if columns else 'void'} "
        f"{_DEFINER}{before}{'RETURN QUERY ' if columns else ''}{body};\nEND\n$mmdb_call$"
    )
