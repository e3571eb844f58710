"""Workers whose hops run inside PostgreSQL, or on one node of a Citus cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from mmdb.db.citus import keys_of_nodes
from mmdb.db.connection import Row
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import (
    Cancelled,
    CandidateBusy,
    ConnectionLost,
    MmdbError,
    NodeLost,
    ServerCrashed,
    WorkerDragged,
    WorkerLost,
)
from mmdb.train.drive.locked_connection import hold_session
from mmdb.train.hops.orders import MergeOrder, Order, timed_out, to_json
from mmdb.train.ledger.ledger import Ledger
from mmdb.train.values.runtime import TimeLimit

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
                self._url,
                application_name=f"mmdb {self.name}",
                settings=self.settings,
                on_wait=self._check_open,
            )
        else:
            self._connection.reconnect()
        return self._connection

    def _check_open(self) -> None:
        if self._closed:  # from another thread, which waits for this one
            raise WorkerLost("The worker was closed.")

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


_Q = load("nodes")

#: The session keeps its connection with the node, whose session is warm; a node that does not
#: answer is given up soon.
CITUS_SETTINGS = SETTINGS | {
    "citus.max_cached_connection_lifetime": "-1",
    "citus.node_connection_timeout": "10s",
}
#: Seconds for which a node that is gone is waited for, and the pauses between two tries.
NODE_S = 1800.0
FIRST_PAUSE_S, LAST_PAUSE_S = 0.2, 2.0


class CitusWorker(PostgresWorker):
    """Its hops are computed by one session of its node, which Citus keeps for this one."""

    settings: Mapping[str, str] = CITUS_SETTINGS

    def __init__(self, name: str, url: str, node: str, device: str = "cpu") -> None:
        super().__init__(name, url, device)
        self.node = node
        self._holder: int | None = None  # names the present session to its hops
        self._misses_node = False  # its own or another one: the session itself may be as it was

    def open(self) -> None:
        """Connect, and load torch on the node; wait until the node is there.

        Raises:
            NodeLost: it did not come back within NODE_S, or belongs to the cluster no more.
        """
        deadline, pause = time.monotonic() + NODE_S, FIRST_PAUSE_S
        while True:
            try:
                return self._warm(self._present())
            except _Gone as error:
                raise NodeLost(str(error)) from None
            except (ConnectionLost, NodeLost):
                if self._closed or time.monotonic() > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_S)

    def _present(self) -> PostgresConnection:
        """Return the session if only a node did not answer; else a fresh one."""
        is_kept, self._misses_node = self._misses_node, False
        if is_kept and self._connection is not None and self._connection.alive():
            return self._connection
        self._holder = None  # its lock goes with the session
        return self._fresh()

    def _warm(self, connection: PostgresConnection) -> None:
        keys = keys_of_nodes(connection)
        if self.node not in keys:
            raise _Gone(f"Node {self.node} holds no partitions any more.")
        detail = {"worker": f"mmdb {self.name}", "device": self.device}
        query, key = load("api").warm_node, keys[self.node]
        (row,) = connection.rows(query, part_id=key, detail=json.dumps(detail))
        reached = row["about"]["node"]
        if reached != self.node:  # the shard has moved meanwhile
            raise NodeLost(f"Node {self.node} was not reached, but {reached}.")
        self._disown(connection)
        self._hold(connection)

    def _hold(self, connection: PostgresConnection) -> int:
        """Return the number by which hops tell that this session is there."""
        if self._holder is None:
            self._holder = hold_session(connection)
        return self._holder

    def _disown(self, connection: PostgresConnection) -> None:
        """Let no hop that was called for the present number be recorded any more."""
        holder, self._holder = self._holder, None
        if holder is not None and not connection.raw.closed:
            with suppress(MmdbError):  # the session is gone, and the lock with it
                connection.rows(_Q.release_session, holder=holder)

    def _do(self, connection: PostgresConnection, order: Order) -> list[Row]:
        try:
            return super()._do(connection, order)
        except NodeLost as error:
            self._misses_node = True
            raise WorkerDragged(error.message) from error
        except CandidateBusy as error:  # the driver's own session broke meanwhile
            raise WorkerDragged(error.message) from error

    def _call(self, connection: PostgresConnection, order: Order) -> list[Row]:
        try:
            if isinstance(order, MergeOrder):
                return self._merge(connection, order)
            holders = (*order.holders, self._hold(connection))
            return self._order(connection, replace(order, holders=holders))
        except MmdbError:  # the hop may live on, on a node that does not answer
            self._disown(connection)
            raise

    def _merge(self, connection: PostgresConnection, order: MergeOrder) -> list[Row]:
        """Have a node compute the mean, and record it: so each of the two writes for itself."""
        ledger = Ledger(connection, f"mmdb {self.name}", self.node)
        place = {"candidate_id": order.candidate_id, "epoch": order.epoch}
        done = ledger.merges(order.candidate_id).get(order.epoch)
        if done is not None:
            return [place | {"state_out": bytes(done["state_out"]).hex()}]
        (row,) = self._order(connection, order)
        with connection.transaction():
            run_id = ledger.read(order.candidate_id).row["run_id"]
            ledger.add_merge(run_id, {**row, "state_out": bytes.fromhex(row["state_out"])})
        return [row]

    def _order(self, connection: PostgresConnection, order: Order) -> list[Row]:
        place = {"part_id": order.place, "detail": to_json(order)}
        return connection.rows(load("api").run_order, **place)


class _Gone(Exception):
    """The cluster has no such node any more, or it holds nothing: there is nothing to wait for."""


def processors(connection: PostgresConnection) -> dict[str, int]:
    """Return how many processors each node has that holds partitions."""
    found = {}
    for node, key in keys_of_nodes(connection).items():
        (row,) = connection.rows(load("api").warm_node, part_id=key, detail="{}")
        found[node] = int(row["about"]["processors"])
    return found
