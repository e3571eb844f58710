"""What a session learns without asking mmdb: its rights, PostgreSQL's catalogs and statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql

from tests.bench.attack.hidden import CANARY

#: Relations of mmdb's schemas that are no views, with what the role may do to them.
_RIGHTS = """
SELECT c.oid::regclass::text, right_
FROM pg_catalog.pg_class AS c
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) AS right_
WHERE c.relnamespace::regnamespace::text ~ '^mmdb' AND c.relkind IN ('r', 'p', 'm', 'f')
    AND c.relname <> 'migration' AND has_any_column_privilege(c.oid, right_)
UNION ALL
SELECT c.oid::regclass::text, right_
FROM pg_catalog.pg_class AS c CROSS JOIN unnest(ARRAY['DELETE', 'TRUNCATE', 'TRIGGER']) AS right_
WHERE c.relnamespace::regnamespace::text ~ '^mmdb' AND c.relkind IN ('r', 'p', 'm', 'f', 'v')
    AND has_table_privilege(c.oid, right_)
UNION ALL
SELECT c.oid::regclass::text, 'of a sequence' FROM pg_catalog.pg_class AS c
WHERE c.relnamespace::regnamespace::text ~ '^mmdb'
    AND CASE c.relkind WHEN 'S' THEN has_sequence_privilege(c.oid, 'USAGE, SELECT, UPDATE') END
UNION ALL
SELECT n.nspname, 'CREATE' FROM pg_catalog.pg_namespace AS n
WHERE n.nspname ~ '^mmdb' AND has_schema_privilege(n.oid, 'CREATE')
UNION ALL
SELECT a.attrelid::regclass || '.' || a.attname, 'bytes in a view' FROM pg_catalog.pg_attribute AS a
INNER JOIN pg_catalog.pg_class AS c ON a.attrelid = c.oid
WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'v'
    AND a.atttypid IN ('bytea'::regtype, 'bytea[]'::regtype)
    AND has_column_privilege(c.oid, a.attnum, 'SELECT')
"""
_RELATIONS = """
SELECT c.oid::regclass::text FROM pg_catalog.pg_class AS c
WHERE c.relnamespace::regnamespace::text ~ '^mmdb' AND c.relkind IN ('r', 'p', 'v')
    AND c.relname <> 'migration' ORDER BY 1
"""
_SHOWN = """
SELECT c.oid::regclass::text FROM pg_catalog.pg_class AS c
INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
WHERE (n.nspname IN ('pg_catalog', 'information_schema') AND c.relkind IN ('r', 'v')
        OR n.nspname = 'mmdb' AND c.relkind = 'v')
    AND has_table_privilege(c.oid, 'SELECT')
    AND c.relname NOT IN ('pg_stat_activity', 'profile_overview', 'worker_status') ORDER BY 1
"""
#: Statistics that say more than how much there is.
_STATISTICS = (
    "SELECT 'pg_stats', tablename FROM pg_catalog.pg_stats WHERE schemaname ~ '^mmdb' "
    "AND tablename <> 'migration'",
    "SELECT 'pg_stats_ext', tablename FROM pg_catalog.pg_stats_ext WHERE schemaname ~ '^mmdb'",
    "SELECT 'pg_sequences', sequencename FROM pg_catalog.pg_sequences "
    "WHERE schemaname ~ '^mmdb' AND last_value IS NOT NULL",
    "SELECT 'pg_largeobject_metadata', oid::text FROM pg_catalog.pg_largeobject_metadata",
    "SELECT 'pg_stat_activity', query FROM pg_catalog.pg_stat_activity "
    "WHERE usename <> current_user AND query <> '<insufficient privilege>' AND query <> ''",
)


def leaks(session: psycopg.Connection[Any]) -> Iterator[str]:
    """Yield what a session may that nobody but the owner may."""
    yield from (f"{right} on {name}" for name, right in session.execute(_RIGHTS).fetchall())
    for query in _STATISTICS:
        yield from (f"{view} shows {what}" for view, what in session.execute(query).fetchall())
    for (name,) in session.execute(_RELATIONS).fetchall():
        for statement in ("LOCK TABLE {} IN ROW SHARE MODE NOWAIT", "LOCK TABLE {} NOWAIT"):
            if not _is_denied(session, statement.format(name)):
                yield f"{statement.format(name)} is allowed"
    yield from _canaries(session)


def _is_denied(session: psycopg.Connection[Any], statement: str) -> bool:
    try:
        with session.transaction(force_rollback=True):
            session.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False


def _canaries(session: psycopg.Connection[Any]) -> Iterator[str]:
    """Yield what shows a hidden text; tables of predictions and the machines are no secrets."""
    for (name,) in session.execute(_SHOWN).fetchall():
        query = sql.SQL(
            "SELECT count(*) FROM {} AS t WHERE replace(t::text, {}, '') LIKE {}"
        ).format(sql.SQL(name), f"predicted_{CANARY}", f"%{CANARY}%")
        try:
            with session.transaction(force_rollback=True):
                row = session.execute(query).fetchone()
        except psycopg.Error:
            continue  # it may not be read after all
        if row and row[0]:
            yield f"{name} shows what is hidden in {row[0]} rows"
