"""Gives back the space of checkpoints that are gone, while a run goes on."""

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

#: Bytes that are not worth a vacuum.
LEAST_BYTES = 1 << 20


class Janitor:
    """Vacuums the tables of states in a session of its own, as soon as a state or two are dead.

    PostgreSQL's own vacuum looks at a table once a minute at most; within a minute, hops can write
    the states of all candidates many times over. The login must own the tables or the database, or
    on PostgreSQL 17 have MAINTAIN on them; else PostgreSQL skips them and autovacuum does it.
    """

    def __init__(self, connection: AnyConnection) -> None:
        self._url = connection.url if isinstance(connection, PostgresConnection) else None
        self._largest = LEAST_BYTES
        self._written = 0
        self._due, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def wrote(self, rows: Iterable[Row]) -> None:
        """Count the checkpoints that hops have left: each takes the place of an older one."""
        if self._url is None:
            return
        for row in rows:
            size = row.get("state_bytes") or 0
            self._largest = max(self._largest, size)
            self._written += size
        if self._written >= self._largest:
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
        while not self._closed.is_set():
            with suppress(MmdbError):  # the server may be gone; the driver will see to it
                self._serve()
            self._closed.wait(1.0)

    def _serve(self) -> None:
        """Vacuum each time that it is due, over one session as long as that lasts."""
        assert self._url is not None
        connection = PostgresConnection(self._url, application_name="mmdb janitor")
        try:
            while self._due.wait() and not self._closed.is_set():
                self._due.clear()
                connection.run(load("states").vacuum)
        finally:
            connection.close()
