"""Workers: one long-lived session each, which does the hops it is given, one at a time."""

from __future__ import annotations

import time
from typing import Protocol

from mmdb.db.duck import DuckConnection
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.db.url import AnyConnection
from mmdb.errors import ConnectionLost, ServerCrashed, WorkerDragged, WorkerLost
from mmdb.train.child import Child
from mmdb.train.dispatch import Dispatcher

#: A worker waits for hops as long as it takes, and ends one whose driver is gone.
SETTINGS = {
    "statement_timeout": "0",
    "idle_session_timeout": "0",
    "client_connection_check_interval": "500ms",
}
#: Seconds between tries to open a session that breaks before it is warm.
OPEN_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 1.0, 2.0, 2.0, 2.0, 5.0, 5.0)


class Worker(Protocol):
    """One worker; its methods are called from one thread, `close` from any."""

    name: str

    def open(self) -> None:
        """Get a fresh, warm session.

        Raises:
            EngineError: none can be had.
        """

    def hop(self, part_id: int, candidate_id: int, epoch: int, publish: bool) -> float:
        """Do a hop and return its seconds; `publish` as in `Dispatcher.run_hop`.

        Raises:
            WorkerLost: the session ended; the hop may be committed or not.
            MmdbError: the hop failed.
        """

    def close(self) -> None:
        """End the session, whatever it is doing."""


class PostgresWorker:
    """A session of its own with the server; the hop runs inside it."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self._url = url
        self._connection: PostgresConnection | None = None
        self._closed = False

    def open(self) -> None:
        """Connect and load torch; the server may crash again meanwhile."""
        for pause in (*OPEN_PAUSES_S, None):
            try:
                if self._connection is None:
                    self._connection = PostgresConnection(
                        self._url, application_name=f"mmdb {self.name}", settings=SETTINGS
                    )
                else:
                    self._connection.reconnect()
                self._connection.rows(load("api").warm_up)
                return
            except ConnectionLost:
                if self._closed or pause is None:
                    raise
                time.sleep(pause)

    def hop(self, part_id: int, candidate_id: int, epoch: int, publish: bool) -> float:
        assert self._connection is not None
        query = load("api").train_hop
        try:
            rows = self._connection.rows(
                query,
                part_id=part_id,
                candidate_id=candidate_id,
                epoch=epoch,
                publish=publish,
            )
        except ServerCrashed as error:
            raise WorkerDragged(error.message) from error
        except ConnectionLost as error:
            raise WorkerLost(error.message) from error
        return float(rows[0]["total_s"])

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.cancel()
            self._connection.close()


class DuckWorker:
    """A child process that computes; this process, which owns the file, reads and writes."""

    #: A process that dies so often while it starts will not start.
    STARTS = 3

    def __init__(self, name: str, owner: DuckConnection) -> None:
        self.name = name
        self._closed = False
        self._connection = owner.cursor()
        self._child: Child | None = None
        self._dispatcher: Dispatcher | None = None

    def open(self) -> None:
        """Start a process and load torch; it may be killed meanwhile."""
        for left in reversed(range(self.STARTS)):
            self._drop()
            child = self._child = Child()
            if self._closed:  # meanwhile, from another thread
                self._drop()
                raise WorkerLost("The worker was closed.")
            try:
                child.warm_up()
            except WorkerLost:
                if self._closed or not left:
                    raise
                continue
            self._dispatcher = Dispatcher(self._connection, child, f"mmdb {self.name}")
            return

    def hop(self, part_id: int, candidate_id: int, epoch: int, publish: bool) -> float:
        assert self._dispatcher is not None
        row = self._dispatcher.run_hop(part_id, candidate_id, epoch, publish=publish)
        return float(row["total_s"])

    def close(self) -> None:
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()


def workers_of(connection: AnyConnection, count: int) -> list[Worker]:
    """Return `count` workers for the database that `connection` is open on."""
    names = [f"worker {k}" for k in range(count)]
    if isinstance(connection, PostgresConnection):
        return [PostgresWorker(name, connection.url) for name in names]
    return [DuckWorker(name, connection) for name in names]
