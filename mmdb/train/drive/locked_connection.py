"""The driver's own session: it holds the runs' locks, and comes back after a server's crash."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.db.url import AnyConnection
from mmdb.errors import ConnectionLost, NodeLost, RunBusy

T = TypeVar("T")

#: Seconds for which the lock of a session that broke is waited for.
LOCK_S = 30.0
#: Seconds for which a node of a cluster is waited for, and the pause between two tries.
NODE_S, NODE_PAUSE_S = 120.0, 1.0


_NODES = load("nodes")


def hold_session(connection: PostgresConnection) -> int:
    """Return a number by which the hops on a cluster's nodes tell that a session is there."""
    holder = secrets.randbelow(2**31)
    connection.rows(_NODES.hold_session, holder=holder)
    return holder


class LockedConnection:
    """A connection under the locks of the runs that one driver trains.

    Attributes:
        lost: run_id and error of the runs that another driver took over after a crash.
    """

    def __init__(self, connection: AnyConnection) -> None:
        self._connection = connection
        self._runs: dict[int, str] = {}  # run_id -> name
        self._holders: dict[int, int] = {}  # run_id -> number of the session that has its lock
        self.lost: dict[int, RunBusy] = {}

    @property
    def connection(self) -> AnyConnection:
        """The session; `do` says what becomes of it when the server crashes."""
        return self._connection

    def lock(self, run_id: int, name: str) -> None:
        """Take a run's lock.

        Raises:
            RunBusy: another driver trains the run.
        """
        if not self.do(lambda _: self._try_lock(run_id)):
            raise RunBusy(f"Run {name!r} is being trained by another session.")
        self._runs[run_id] = name

    def unlock(self, run_id: int) -> None:
        """Release a run's lock, if it is still held."""
        holder = self._holders.pop(run_id, None)
        if self._runs.pop(run_id, None) is not None:
            with suppress(ConnectionLost):  # it went with the session
                if holder is not None:
                    self._connection.run(_NODES.release_session, holder=holder)
                self._connection.unlock("run", run_id)

    def holders(self, run_id: int) -> tuple[int, ...]:
        """Return the number by which hops on a cluster tell that a run is locked here."""
        return (self._holders[run_id],) if run_id in self._holders else ()

    def _try_lock(self, run_id: int) -> bool:
        """Lock a run; return whether it could be had."""
        if not self._connection.try_lock("run", run_id):
            return False
        if isinstance(self._connection, PostgresConnection) and self._connection.on_citus:
            self._holders[run_id] = hold_session(self._connection)
        return True

    def do(self, work: Callable[[AnyConnection], T]) -> T:
        """Return `work(connection)`; it is done again where a crash of the server broke it off.

        Raises:
            NodeLost: a node of a cluster did not answer for NODE_S.
        """
        deadline = time.monotonic() + NODE_S
        while True:
            try:
                return work(self._connection)
            except ConnectionLost:
                self._revive()
            except NodeLost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(NODE_PAUSE_S)

    def check(self) -> None:
        """Get session and locks back if they are gone: a crash of one session ends all of them."""
        if isinstance(self._connection, PostgresConnection) and not self._connection.alive():
            self._revive()

    def close(self) -> None:
        """Release every lock."""
        for run_id in list(self._runs):
            self.unlock(run_id)

    def _revive(self) -> None:
        assert isinstance(self._connection, PostgresConnection)
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                self._connection.reconnect()
                missing = [run_id for run_id in self._runs if not self._try_lock(run_id)]
                if not missing or time.monotonic() > deadline:
                    return self._give_up(missing)
            except ConnectionLost:  # the server crashed again
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)  # the old session may not have noticed its end yet

    def _give_up(self, run_ids: list[int]) -> None:
        for run_id in run_ids:
            name = self._runs.pop(run_id)
            self._holders.pop(run_id, None)
            self.lost[run_id] = RunBusy(f"Run {name!r} was taken over by another driver.")
