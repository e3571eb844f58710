"""Deletes the states that hops on the nodes of a cluster have left behind.

A hop writes to its own node alone: the state that it has gone on from may lie on another one, and
so may checkpoints that are not kept. A delete here concerns one node, so it needs no other, and
none of it is urgent: where a node is gone, it is done once that is back.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from mmdb.db.connection import Row
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import MmdbError
from mmdb.store.states import drop_checkpoint
from mmdb.train.dispatch.ledger import Ledger
from mmdb.train.dispatch.retention import lasting
from mmdb.train.threads import start_without_signals

#: Seconds after which what failed is tried again.
PAUSE_S = 2.0
#: Seconds that are spent at the end on what is left.
CLOSING_S = 10.0
SETTINGS = {"citus.max_adaptive_executor_pool_size": "1", "citus.node_connection_timeout": "5s"}

_Task = Callable[[PostgresConnection], None]


class Sweeper:
    """One session and one thread, which come with the first thing to do."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._left: dict[int, tuple[int, str]] = {}  # candidate_id -> part_id and hash of its state
        self._tasks: queue.Queue[_Task | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._closing_at: float | None = None
        self._asked, self._ended = 0, 0

    def count_tasks(self) -> int:
        """Return how much is left to do."""
        return self._asked - self._ended

    def hop_done(self, row: Row) -> None:
        """Take note of a train hop: the state before it is of no use any more."""
        candidate_id, left = row["candidate_id"], (row["part_id"], row["state_out"])
        before, self._left[candidate_id] = self._left.get(candidate_id), left
        if before is not None and before[0] != row["part_id"]:
            self._add(partial(_forget_state, candidate_id, *before))

    def epoch_done(self, row: Row) -> None:
        """Take note of an epoch's last hop: of the checkpoints up to it, few are kept."""
        self._add(partial(_prune, row["candidate_id"], row["epoch"], row["state_out"]))

    def close(self) -> None:
        """Do what is left, as far as it can be done soon, and stop."""
        if self._thread is not None:
            self._closing_at = time.monotonic()
            self._tasks.put(None)
            self._thread.join()

    def _add(self, task: _Task) -> None:
        self._asked += 1
        self._tasks.put(task)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mmdb sweeper", daemon=True)
            start_without_signals(self._thread)

    def _run(self) -> None:
        connection: PostgresConnection | None = None
        failed: deque[_Task] = deque()
        while (task := self._next(failed)) is not None:
            try:
                if connection is None:
                    connection = PostgresConnection(
                        self._url, application_name="mmdb sweeper", settings=SETTINGS
                    )
                task(connection)
                self._ended += 1
            except MmdbError:  # a node is gone, or the server; the driver sees to it
                failed.append(task)
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _next(self, failed: deque[_Task]) -> _Task | None:
        """Return what to do next; what failed is tried again after a pause, at the end once."""
        while True:
            if self._closing_at is not None and time.monotonic() > self._closing_at + CLOSING_S:
                return None
            try:
                task = self._tasks.get(timeout=PAUSE_S)
            except queue.Empty:
                task = None
            if task is not None:
                return task
            if self._closing_at is not None and self._tasks.empty():
                return None
            if failed:
                return failed.popleft()


def _forget_state(
    candidate_id: int, part_id: int, state_hash: str, connection: PostgresConnection
) -> None:
    place = {"part_id": part_id, "candidate_id": candidate_id}
    connection.run(load("nodes").drop_state, **place, state_hash=bytes.fromhex(state_hash))


def _prune(candidate_id: int, epoch: int, state_out: str, connection: PostgresConnection) -> None:
    candidate = Ledger(connection, "").read(candidate_id)
    place = {"candidate_id": candidate_id, "part_ids": [p["part_id"] for p in candidate.parts]}
    validations = connection.rows(load("nodes").find_validations_at, **place)
    kept = {state_out} | lasting(candidate.row, validations)
    for row in connection.rows(load("nodes").find_checkpoints_at, **place):
        if row["epoch"] <= epoch and bytes(row["state_hash"]).hex() not in kept:
            drop_checkpoint(connection, candidate_id, row)
