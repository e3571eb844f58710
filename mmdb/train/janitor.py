"""Gives back the space of states that are gone, while a run goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress

from mmdb.db.connection import Row
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.db.url import AnyConnection
from mmdb.errors import MmdbError
from mmdb.train.threads import start_without_signals

#: Bytes of states that hops may have written before the space of older ones is given back: small
#: states are not worth a vacuum each.
LEAST_BYTES = 16 << 20


class Janitor:
    """Vacuums the tables of states in a session of its own, each time as much was written as lives.

    PostgreSQL's own vacuum looks at a table once a minute at most; within a minute, hops can write
    the states of all candidates many times over. The login must own the tables or the database, or
    on PostgreSQL 17 have MAINTAIN on them; else PostgreSQL skips them and autovacuum does it.
    """

    def __init__(self, connection: AnyConnection) -> None:
        self._url = connection.url if isinstance(connection, PostgresConnection) else None
        self._live: dict[int, int] = {}  # bytes of the last state, by candidate
        self._written = 0
        self._due, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def wrote(self, rows: Iterable[Row]) -> None:
        """Count the states that hops have left."""
        if self._url is None:
            return
        for row in rows:
            size = row.get("state_bytes") or 0
            self._live[row["candidate_id"]] = max(size, self._live.get(row["candidate_id"], 0))
            self._written += size
        if self._written > max(LEAST_BYTES, sum(self._live.values()) // 2):
            self._written = 0
            self._begin()
            self._due.set()

    def close(self) -> None:
        """Stop; a vacuum under way is waited for."""
        self._closed.set()
        self._due.set()
        if self._thread is not None:
            self._thread.join()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mmdb janitor", daemon=True)
            start_without_signals(self._thread)

    def _run(self) -> None:
        while self._due.wait() and not self._closed.is_set():
            self._due.clear()
            with suppress(MmdbError):  # the server may be gone; the driver will see to it
                assert self._url is not None
                connection = PostgresConnection(self._url, application_name="mmdb janitor")
                try:
                    connection.run(load("states").vacuum)
                finally:
                    connection.close()
