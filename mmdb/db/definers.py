"""Named queries as functions of PostgreSQL that run with mmdb's rights, not with the caller's.

People have no right on mmdb's tables: what they may do to them is this closed set of statements,
schema `mmdb_call`. So nobody composes a statement of his own that locks a table, compares what he
may not see, or asks how it was executed. The functions belong to the role `mmdb_system`, whose rows
the policies of teams choose by who calls; names in them are resolved in the catalog alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import pq

from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import Query, load, sql_directory
from mmdb.errors import DatabaseFailed, RightsMissing

_BEFORE = (
    "DROP SCHEMA IF EXISTS mmdb_call CASCADE",
    "CREATE SCHEMA mmdb_call",
    "GRANT USAGE ON SCHEMA mmdb_call TO mmdb_reader, mmdb_system",
    "GRANT CREATE ON SCHEMA mmdb_call TO mmdb_system",
)
_AFTER = (
    "RESET ROLE",
    "REVOKE CREATE ON SCHEMA mmdb_call FROM mmdb_system",
    "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA mmdb_call FROM public",
)
_TYPES = "SELECT t.oid, t.oid::regtype::text AS name FROM pg_catalog.pg_type AS t"


#: Roles whose rights suffice for a statement, the least first: as whom it runs, who may call it.
_LEVELS = (
    ("mmdb_reader", "mmdb_system", "mmdb_reader"),
    ("mmdb_system", "mmdb_system", "mmdb_trainer"),
    ("mmdb_system_admin", "mmdb_system_admin", "mmdb_admin"),
)


def make_definers(connection: PostgresConnection) -> None:
    """Make the functions anew, in the transaction under way.

    Raises:
        DatabaseFailed: PostgreSQL does not know a statement's tables or columns.
    """
    for statement in _BEFORE:
        connection.script(statement)
    types = {row["oid"]: row["name"] for row in connection.select(_TYPES)}
    for query in _queries():
        columns = _columns(connection.raw.pgconn, query, types)
        needs, runs_as, caller = _level(connection, query)
        connection.script(f"SET LOCAL ROLE {runs_as}" if runs_as else "RESET ROLE")
        connection.script(_function(query, columns))
        if caller:
            given = ", ".join(query.parameters.values())
            connection.script(
                f"GRANT EXECUTE ON FUNCTION mmdb_call.{query.definer}({given}) TO {caller}"
            )
    for statement in _AFTER:
        connection.script(statement)


def _level(connection: PostgresConnection, query: Query) -> tuple[str, str, str]:
    """Return the level of _LEVELS whose rights suffice; empty texts for the owner's alone."""
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
        return level
    return "", "", ""


def _queries() -> Iterator[Query]:
    for path in sorted(sql_directory("sql/queries").glob("*.sql")):
        yield from (query for query in load(path.stem) if query.definer is not None)


def _columns(session: pq.abc.PGconn, query: Query, types: dict[int, str]) -> list[tuple[str, str]]:
    """Return name and type of the columns that a statement returns, as PostgreSQL says."""
    session.prepare(b"", query.numbered.encode())
    found = session.describe_prepared(b"")
    if found.status != pq.ExecStatus.COMMAND_OK:
        raise DatabaseFailed(f"{query.definer}: {found.error_message.decode().strip()}")
    return [
        ((found.fname(k) or b"").decode(), types[found.ftype(k)]) for k in range(found.nfields)
    ]


def _function(query: Query, columns: list[tuple[str, str]]) -> str:
    given = ", ".join(query.parameters.values())
    returns = ", ".join(f'"{name}" {kind}' for name, kind in columns)
    return f"""
CREATE FUNCTION mmdb_call.{query.definer}({given})
RETURNS {f"TABLE ({returns})" if columns else "void"}
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $mmdb_call$
#variable_conflict use_column
BEGIN
{"RETURN QUERY " if columns else ""}{query.numbered};
END
$mmdb_call$"""
