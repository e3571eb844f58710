"""Workers whose hops compute in a child process; this process reads and writes the database.

DuckDB has one owner process; a PostgreSQL without PL/Python has nothing inside that could compute.
"""

from __future__ import annotations

import platform
import time

from mmdb.db.connection import Connection, Row
from mmdb.db.duck import DuckConnection
from mmdb.db.postgres import PostgresConnection
from mmdb.errors import Cancelled, ConnectionLost, ServerCrashed, WorkerDragged, WorkerLost
from mmdb.train.drive.child import ChildProcess
from mmdb.train.drive.server_worker import OPEN_PAUSES_S, SETTINGS
from mmdb.train.hops.orders import Order, timed_out
from mmdb.train.hops.runner import HopRunner
from mmdb.train.values.runtime import TimeLimit


class _ChildWorker:
    """What the two have in common: the child process."""

    #: A process that dies so often while it starts will not start.
    STARTS = 3

    def __init__(self, name: str, device: str) -> None:
        self.name, self.node, self.device = name, platform.node(), device
        self._closed = self._cancelled = False
        self._child: ChildProcess | None = None
        self._dispatcher: HopRunner | None = None

    def _start(self, connection: Connection) -> None:
        """Start a process and load torch; it may be killed meanwhile."""
        for left in reversed(range(self.STARTS)):
            self._drop()
            child = self._child = ChildProcess(self.device)
            self._check_open()
            try:
                child.warm_up()
            except WorkerLost:
                if self._closed or not left:
                    raise
                continue
            self._cancelled = False
            self._dispatcher = HopRunner(connection, child, f"mmdb {self.name}")
            return

    def do(self, order: Order) -> list[Row]:
        assert self._dispatcher is not None
        try:
            with TimeLimit(order.limit_s, self._kill) as limit:
                return order.run(self._dispatcher)
        except WorkerLost as error:
            if limit.passed:
                raise timed_out(order) from error
            if self._cancelled:
                raise Cancelled("The hop was cancelled.") from error
            raise

    def cancel(self) -> None:
        self._cancelled = True
        self._kill()

    def close(self) -> None:
        self._closed = True
        self._drop()

    def _check_open(self) -> None:
        if self._closed:  # from another thread, which waits for this one
            self._drop()
            raise WorkerLost("The worker was closed.")

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()


class DuckWorker(_ChildWorker):
    """A child process beside the process that owns the file."""

    def __init__(self, name: str, owner: DuckConnection, device: str = "cpu") -> None:
        super().__init__(name, device)
        self._connection = owner.cursor()

    def open(self) -> None:
        """Start a process and load torch."""
        self._start(self._connection)


class ClientWorker(_ChildWorker):
    """A child process and a session of its own with a PostgreSQL that needs no PL/Python."""

    def __init__(self, name: str, url: str, device: str = "cpu") -> None:
        super().__init__(name, device)
        self._url = url
        self._connection: PostgresConnection | None = None

    def open(self) -> None:
        """Connect, start a process and load torch; the server may crash again meanwhile."""
        for pause in (*OPEN_PAUSES_S, None):
            try:
                return self._start(self._fresh())
            except ConnectionLost:
                if self._closed or pause is None:
                    raise
                time.sleep(pause)

    def _fresh(self) -> PostgresConnection:
        if self._connection is None:
            self._connection = PostgresConnection(
                self._url,
                application_name=f"mmdb {self.name}",
                settings=SETTINGS | {"idle_in_transaction_session_timeout": "0"},
                on_wait=self._check_open,
            )
        elif self._connection.in_transaction or not self._connection.alive():
            self._connection.reconnect()
        return self._connection

    def do(self, order: Order) -> list[Row]:
        try:
            return super().do(order)
        except ServerCrashed as error:
            raise WorkerDragged(error.message) from error
        except ConnectionLost as error:
            raise WorkerLost(error.message) from error

    def cancel(self) -> None:
        super().cancel()
        if self._connection is not None:
            self._connection.cancel()

    def close(self) -> None:
        super().close()
        if self._connection is not None:
            self._connection.cancel()
            self._connection.close()
