"""A worker of a PostgreSQL that has mmdb's functions: the hop runs inside the server."""

from __future__ import annotations

import time
from collections.abc import Mapping

from mmdb.db.connection import Row
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import Cancelled, ConnectionLost, ServerCrashed, WorkerDragged, WorkerLost
from mmdb.train.workers.orders import MergeOrder, Order, timed_out
from mmdb.train.workers.time_limit import TimeLimit

#: A worker waits for hops as long as it takes, and ends one whose driver is gone.
SETTINGS = {
    "statement_timeout": "0",
    "idle_session_timeout": "0",
    "client_connection_check_interval": "500ms",
}
#: Seconds between tries to open a session that breaks before it is warm.
OPEN_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 1.0, 2.0, 2.0, 2.0, 5.0, 5.0)


class PostgresWorker:
    """A session of its own with the server; the hop runs inside it."""

    settings: Mapping[str, str] = SETTINGS

    def __init__(self, name: str, url: str, device: str = "cpu") -> None:
        self.name, self.node, self.device = name, "", device
        self._url = url
        self._connection: PostgresConnection | None = None
        self._closed = self._is_busy = False

    def open(self) -> None:
        """Connect and load torch; the server may crash again meanwhile."""
        for pause in (*OPEN_PAUSES_S, None):
            try:
                (row,) = self._fresh().rows(load("api").warm_up, device=self.device)
                self.node = row["node"]
                return
            except ConnectionLost:
                if self._closed or pause is None:
                    raise
                time.sleep(pause)

    def _fresh(self) -> PostgresConnection:
        if self._connection is None:
            self._connection = PostgresConnection(
                self._url, application_name=f"mmdb {self.name}", settings=self.settings
            )
        else:
            self._connection.reconnect()
        return self._connection

    def do(self, order: Order) -> list[Row]:
        connection = self._connection
        assert connection is not None
        self._is_busy = True
        try:
            with TimeLimit(order.limit_s, connection.cancel, connection.sever) as limit:
                return self._do(connection, order)
        except (Cancelled, WorkerLost) as error:
            if limit.passed:
                connection.close()
                raise timed_out(order) from error
            raise
        finally:
            self._is_busy = False
            if self._closed:
                connection.close()

    def _do(self, connection: PostgresConnection, order: Order) -> list[Row]:
        try:
            if order.begins:
                connection.rows(load("api").begin_candidate, candidate_id=order.candidate_id)
            return self._call(connection, order)
        except ServerCrashed as error:
            raise WorkerDragged(error.message) from error
        except ConnectionLost as error:
            raise WorkerLost(error.message) from error

    def _call(self, connection: PostgresConnection, order: Order) -> list[Row]:
        query, parameters = order.call()
        rows = connection.rows(query, **parameters)
        return [] if isinstance(order, MergeOrder) else rows

    def cancel(self) -> None:
        if self._connection is not None:
            self._connection.cancel()

    def close(self) -> None:
        self._closed = True
        if self._connection is None:
            return
        self._connection.cancel()
        if self._is_busy:
            self._connection.sever()  # the thread that waits for the hop closes it
        else:
            self._connection.close()
