"""Sessions that pages are read through: a few of PostgreSQL, the one of a DuckDB file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, LifoQueue
from threading import BoundedSemaphore

from mmdb.db.duck import DuckConnection
from mmdb.db.install import ensure_duckdb, is_installed
from mmdb.db.postgres import PostgresConnection
from mmdb.db.url import AnyConnection
from mmdb.errors import NotInstalled
from mmdb.report.facts import connect_to_read

#: Sessions of a PostgreSQL server; more readers than that wait.
SESSIONS = 4
#: What they may do: read, for so long a statement.
SETTINGS = {"default_transaction_read_only": "on", "statement_timeout": "30s"}


class PageSessions:
    """Sessions of one database; threads may ask for them at the same time."""

    def __init__(self, url: str) -> None:
        """Open the first session.

        Raises:
            WrongUrl, DatabaseLocked, NotInstalled, MigrationMismatch
        """
        self.url = url
        first = connect_to_read(url)
        self._is_duckdb = isinstance(first, DuckConnection)
        self._free: LifoQueue[AnyConnection] = LifoQueue()
        self._turns = BoundedSemaphore(1 if self._is_duckdb else SESSIONS)
        try:
            if isinstance(first, DuckConnection):
                ensure_duckdb(first)
                self._free.put(first)
            elif not is_installed(first):
                raise NotInstalled("mmdb is not installed in this database.")
            else:
                first.close()  # those that pages use may only read
        except BaseException:
            first.close()
            raise

    @contextmanager
    def session(self) -> Iterator[AnyConnection]:
        """Yield a session; one of PostgreSQL that was lost meanwhile is opened anew.

        Raises:
            WrongUrl, ConnectionLost: the server does not answer.
        """
        with self._turns:
            connection = self._take()
            try:
                yield connection
            finally:
                if isinstance(connection, PostgresConnection) and connection.raw.closed:
                    connection.close()
                else:
                    self._free.put(connection)

    def close(self) -> None:
        """Close the sessions that nobody uses."""
        while True:
            try:
                self._free.get_nowait().close()
            except Empty:
                return

    def _take(self) -> AnyConnection:
        while True:
            try:
                free = self._free.get_nowait()
            except Empty:
                return PostgresConnection(self.url, application_name="mmdb ui", settings=SETTINGS)
            if not isinstance(free, PostgresConnection) or free.alive():
                return free
            free.close()
