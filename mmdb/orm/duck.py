"""A DuckDB file that this process has open, as SQLAlchemy takes connections: to read.

Each statement is a read-only transaction of its own, as on PostgreSQL in autocommit mode: whoever
keeps a session open sees what was written meanwhile, and holds up no checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import duckdb

from mmdb.db.duck import DuckConnection
from mmdb.errors import ReadOnly


class Cursor:
    """As the DB-API's; the rows of a statement are read at once."""

    rowcount = -1
    lastrowid = None
    arraysize = 1

    def __init__(self, raw: duckdb.DuckDBPyConnection) -> None:
        self._raw = raw
        self._rows: deque[tuple[Any, ...]] = deque()
        self.description: Any = None

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement in a transaction that may not write.

        Raises:
            ReadOnly: there are several, the first of which could end the transaction.
        """
        if len(self._raw.extract_statements(statement)) != 1:
            raise ReadOnly("The ORM reads by one statement at a time.")
        self._raw.execute("BEGIN TRANSACTION READ ONLY")
        try:
            done = self._raw.execute(statement, list(parameters))
            self.description = done.description
            self._rows = deque(done.fetchall())
        finally:
            self._raw.execute("ROLLBACK")

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None after the last."""
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows."""
        count = min(size or self.arraysize, len(self._rows))
        return [self._rows.popleft() for _ in range(count)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left."""
        return self.fetchmany(len(self._rows)) if self._rows else []

    def close(self) -> None:
        """Forget the rows."""
        self._rows.clear()


class ReadConnection:
    """As the DB-API's: a session of its own on an open file."""

    def __init__(self, connection: DuckConnection) -> None:
        self._raw = connection.cursor().raw

    def cursor(self) -> Cursor:
        """Return a cursor."""
        return Cursor(self._raw)

    def commit(self) -> None:
        """Do nothing: each statement was a transaction."""

    rollback = commit

    def close(self) -> None:
        """End the session; the file stays open."""
        self._raw.close()
