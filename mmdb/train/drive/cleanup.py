"""Gives back the space of old checkpoints, and of states on a cluster's nodes."""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from mmdb.db.connection import Connection, Row
from mmdb.db.duck import LOG_BYTES, DuckConnection
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.db.url import AnyConnection
from mmdb.errors import MmdbError, stops_the_caller
from mmdb.store.states import drop_checkpoint
from mmdb.train.ledger.ledger import Ledger
from mmdb.train.ledger.state_history import lasting
from mmdb.train.values.runtime import start_without_signals

#: Bytes that are not worth a vacuum.
LEAST_BYTES = 1 << 20
#: States that DuckDB's log holds before they are written into the file, and its bytes at most.
LOGGED_STATES, MOST_LOGGED = 20, 1 << 30


class Janitor:
    """Vacuums the tables of states in a session of its own, as soon as a state or two are dead.

    PostgreSQL's own vacuum looks at a table once a minute at most; within a minute, hops can write
    the states of all candidates many times over. The login must own the tables or the database, or
    on PostgreSQL 17 have MAINTAIN on them; else PostgreSQL skips them and autovacuum does it.

    DuckDB writes its log into the file after a state or two where they are large, while all workers
    wait. As few states are kept, most need not be written once more if it does so more seldom.
    """

    def __init__(self, connection: AnyConnection) -> None:
        self._url = connection.url if isinstance(connection, PostgresConnection) else None
        self._file = connection if isinstance(connection, DuckConnection) else None
        self._largest = LEAST_BYTES
        self._written = 0
        self._due, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def wrote(self, rows: Iterable[Row]) -> None:
        """Count the checkpoints that hops have left: each takes the place of an older one."""
        largest = self._largest
        for row in rows:
            size = row.get("state_bytes") or 0
            self._largest = max(self._largest, size)
            self._written += size
        if self._file is not None:
            if self._largest > largest:
                wanted = min(LOGGED_STATES * self._largest, MOST_LOGGED)
                self._file.log_up_to(max(wanted, LOG_BYTES))
        elif self._written >= self._largest:
            self._written = 0
            self._begin()
            self._due.set()

    def close(self) -> None:
        """Stop; a vacuum under way is waited for."""
        if self._file is not None:
            try:
                self._file.log_up_to(LOG_BYTES)
            except MmdbError as error:  # the file may be gone
                if stops_the_caller(error):
                    raise
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


#: Seconds after which what failed is tried again.
PAUSE_S = 2.0
#: Seconds that are spent at the end on what is left.
CLOSING_S = 10.0
SETTINGS = {"citus.max_adaptive_executor_pool_size": "1", "citus.node_connection_timeout": "5s"}

NAME = "mmdb sweeper"  # of the thread, and of its session
_log = logging.getLogger(__name__)

_Task = Callable[[PostgresConnection, Ledger], None]


@dataclass(frozen=True, slots=True)
class UselessState:
    """A state in the cache of a node that nobody goes on from any more."""

    candidate_id: int
    part_id: int
    state_hash: str  # in hex
    node: str

    @property
    def key(self) -> tuple[int, str]:
        """What its node has it by."""
        return self.candidate_id, self.state_hash


class Sweeper:
    """One session and one thread, which come with the first thing to do.

    States on their way need neither: the next hop's order tells its node of those that it may drop.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._left: dict[int, UselessState] = {}  # by candidate: its state, which is soon to be one
        self._useless: dict[str, list[UselessState]] = defaultdict(list)  # by node
        self._parts: dict[int, list[UselessState]] = defaultdict(list)  # by candidate: of an epoch
        self._tasks: queue.Queue[_Task | None] = queue.Queue()
        self._failed: deque[_Task] = deque()
        self._retried_at = 0.0  # or, of the first that failed, when it did
        self._connection: PostgresConnection | None = None
        self._ledger: Ledger | None = None  # over the connection
        self._thread: threading.Thread | None = None
        self._ends_at = math.inf

    def hop_done(self, row: Row) -> None:
        """Take note of a train hop: the state before it is of no use any more."""
        left = _state_of(row)
        before, self._left[left.candidate_id] = self._left.get(left.candidate_id), left
        if before is not None and before.part_id != left.part_id:
            self._useless[before.node].append(before)

    def useless_at(self, node: str) -> Sequence[UselessState]:
        """Return what a node may drop; `drop` it where the order that says so has failed."""
        return self._useless.pop(node, [])

    def drop(self, states: Iterable[UselessState]) -> None:
        """Have states dropped by statements of their own."""
        for one in states:
            self._add(partial(_forget_state, one.candidate_id, one.part_id, one.state_hash))

    def epoch_done(self, row: Row) -> None:
        """Take note of an epoch's last hop: of the checkpoints up to it, few are kept."""
        self._add(partial(_prune, row["candidate_id"], row["epoch"], row["state_out"]))

    def part_done(self, row: Row) -> None:
        """Take note of a hop whose state is averaged with those of its epoch's others."""
        self._parts[row["candidate_id"]].append(_state_of(row))

    def merged(self, row: Row, parts: int) -> None:
        """Take note of a merge: the states that it is the mean of are of no use any more."""
        known = self._parts.pop(row["candidate_id"], [])
        for one in known:
            self._useless[one.node].append(one)
        if len(known) != parts:  # another driver has seen them
            self._add(partial(_forget_parts, row["candidate_id"], row["epoch"]))
        self.epoch_done(row)

    def close(self) -> None:
        """Do what is left, as far as it can be done soon, and stop."""
        for node in list(self._useless):
            self.drop(self.useless_at(node))
        if self._thread is not None:
            self._ends_at = time.monotonic() + CLOSING_S
            self._tasks.put(None)
            self._thread.join()

    def _add(self, task: _Task) -> None:
        self._tasks.put(task)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)
            start_without_signals(self._thread)

    def _run(self) -> None:
        while time.monotonic() < self._ends_at:
            try:
                task = self._tasks.get(timeout=PAUSE_S)
            except queue.Empty:
                self._try_again()
                continue
            if task is None:  # the end: nothing comes after it
                self._try_again(all_of_them=True)
                break
            self._try(task)
            if time.monotonic() > self._retried_at + PAUSE_S:
                self._try_again()
        self._disconnect()

    def _try(self, task: _Task) -> bool:
        """Return whether a task is done with; else it is tried again."""
        try:
            if self._connection is None or self._ledger is None:
                self._connection = PostgresConnection(
                    self._url, application_name=NAME, settings=SETTINGS
                )
                self._ledger = Ledger(self._connection, "")
            task(self._connection, self._ledger)
            return True
        except MmdbError:  # a node is gone, or the server: the driver sees to that
            if not self._failed:
                self._retried_at = time.monotonic()
            self._failed.append(task)
            self._disconnect()
            return False
        except Exception as error:  # must not end the thread, which has more to do
            _log.error("A state stays where it is: %s: %s", type(error).__name__, error)
            self._disconnect()
            return True

    def _try_again(self, *, all_of_them: bool = False) -> None:
        """Do what failed, each once; until one fails again, for others may need the same node."""
        for _ in range(len(self._failed)):
            is_done = time.monotonic() < self._ends_at and self._try(self._failed.popleft())
            if not is_done and not all_of_them:
                break
        self._retried_at = time.monotonic()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def _state_of(row: Row) -> UselessState:
    return UselessState(row["candidate_id"], row["part_id"], row["state_out"], row["node"])


def _forget_state(
    candidate_id: int, part_id: int, state_hash: str, connection: PostgresConnection, _: Ledger
) -> None:
    place = {"part_id": part_id, "candidate_id": candidate_id}
    connection.run(load("nodes").drop_state, **place, state_hash=bytes.fromhex(state_hash))


def _forget_parts(
    candidate_id: int, epoch: int, connection: PostgresConnection, ledger: Ledger
) -> None:
    for hop in ledger.train_hops(candidate_id):
        if hop["epoch"] == epoch:
            state = bytes(hop["state_out"]).hex()
            _forget_state(candidate_id, hop["part_id"], state, connection, ledger)


def _prune(
    candidate_id: int, epoch: int, state_out: str, connection: PostgresConnection, ledger: Ledger
) -> None:
    candidate = ledger.candidate(candidate_id)
    place = {"candidate_id": candidate_id, "part_ids": [p["part_id"] for p in candidate.parts]}
    validations = connection.rows(load("nodes").find_validations_at, **place)
    kept = {state_out} | lasting(candidate.row, validations)
    for row in connection.rows(load("nodes").find_checkpoints_at, **place):
        if row["epoch"] <= epoch and bytes(row["state_hash"]).hex() not in kept:
            drop_checkpoint(connection, candidate_id, row)


def forget_states(connection: Connection, candidate_ids: Iterable[int]) -> None:
    """Forget states in flight that this process holds; those of a node go with its sessions."""
    memory: dict[int, object] | None = getattr(connection, "in_flight", None)
    if memory is not None:
        for candidate_id in candidate_ids:
            memory.pop(candidate_id, None)
