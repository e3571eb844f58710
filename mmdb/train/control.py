"""The driver's own session: it holds the run's lock, and comes back after a crash of the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from mmdb.db.postgres import PostgresConnection
from mmdb.db.url import AnyConnection
from mmdb.errors import ConnectionLost, RunBusy

T = TypeVar("T")

#: Seconds for which the lock of a session that broke is waited for.
LOCK_S = 30.0


class Control:
    """A connection under the lock of one run."""

    def __init__(self, connection: AnyConnection, run_id: int, run: str) -> None:
        """Take the run's lock.

        Raises:
            RunBusy: another driver trains the run.
        """
        self._connection, self._run_id, self._run = connection, run_id, run
        if not connection.try_lock("run", run_id):
            raise RunBusy(f"Run {run!r} is being trained by another driver.")

    def do(self, work: Callable[[AnyConnection], T]) -> T:
        """Return `work(connection)`; it is done again where a crash of the server broke it off.

        Raises:
            RunBusy: another driver took the run over meanwhile.
        """
        while True:
            try:
                return work(self._connection)
            except ConnectionLost:
                self._revive()

    def check(self) -> None:
        """Get session and lock back if they are gone: a crash of one session ends all of them."""
        if isinstance(self._connection, PostgresConnection) and not self._connection.alive():
            self._revive()

    def close(self) -> None:
        """Release the lock."""
        with suppress(ConnectionLost):  # it went with the session
            self._connection.unlock("run", self._run_id)

    def _revive(self) -> None:
        assert isinstance(self._connection, PostgresConnection)
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                self._connection.reconnect()
                if self._connection.try_lock("run", self._run_id):
                    return
                if time.monotonic() > deadline:
                    raise RunBusy(f"Run {self._run!r} was taken over by another driver.")
            except ConnectionLost:  # the server crashed again
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)  # the old session may not have noticed its end yet
