"""The names, ids and keys by which other tools know a database and its views."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid5

from mmdb.db.connection import Connection, Row
from mmdb.db.duck import DuckConnection
from mmdb.db.queries import load
from mmdb.db.url import AnyConnection


@dataclass(frozen=True, slots=True)
class DatabaseIdentity:
    """A database, as OpenLineage names it."""

    namespace: str  # of datasets: postgres://host:port or duckdb:///path
    database: str
    identity: UUID  # the same after dump and restore, and under another host's name
    jobs: str = "mmdb"  # namespace of jobs

    def table(self, schema: str | None, table: str) -> str:
        """Return a table's name within the namespace.

        >>> database = DatabaseIdentity("postgres://db:5432", "shop", UUID(int=0))
        >>> database.table("public", "orders"), database.table(None, "orders")
        ('shop.public.orders', 'shop.orders')
        """
        return ".".join(part for part in (self.database, schema, table) if part)

    def id(self, *parts: str | int) -> str:
        """Return the UUID of what these parts name; equal parts have an equal one.

        >>> DatabaseIdentity("", "", UUID(int=0)).id("run", "search")
        'd42dfaff-c5c0-55f7-a623-fd893ea5160e'
        """
        return str(uuid5(self.identity, json.dumps(parts)))


def identity_of(connection: AnyConnection, jobs: str = "mmdb") -> DatabaseIdentity:
    """Return where an open database is.

    Raises:
        RightsMissing: the role may not read mmdb's tables.
    """
    (row,) = connection.rows(load("standards").find_installation)
    identity = uuid5(NAMESPACE_URL, f"urn:mmdb:database:{moment(row['applied_at'])}")
    if isinstance(connection, DuckConnection):
        if connection.path == ":memory:":
            return DatabaseIdentity("duckdb://memory", "memory", identity, jobs)
        path = Path(connection.path).resolve()
        return DatabaseIdentity(f"duckdb://{path}", path.stem, identity, jobs)
    info = connection.raw.info
    host = "localhost" if info.host.startswith("/") or not info.host else info.host
    return DatabaseIdentity(f"postgres://{host}:{info.port}", info.dbname, identity, jobs)


def moment(time: datetime) -> str:
    """Return a time as events write it, in UTC with microseconds.

    >>> moment(datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC))
    '2026-01-02T03:04:05.000006Z'
    """
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def declared_keys(connection: Connection) -> list[Row]:
    """Return the columns of each: view_name, key, column_name, kind, refers_to, refers_column."""
    return connection.rows(load("standards").find_view_keys)
