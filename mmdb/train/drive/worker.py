"""Workers: one long-lived session each, in a thread that does one thing at a time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, Protocol

from mmdb.db.citus import is_spread, keys_of_nodes
from mmdb.db.connection import Row
from mmdb.db.install import Mode, installed_mode
from mmdb.db.postgres import PostgresConnection
from mmdb.db.url import AnyConnection
from mmdb.errors import (
    Cancelled,
    CandidateBusy,
    EngineError,
    InvalidOption,
    MmdbError,
    NoServerFunctions,
    TrainingFailed,
    WorkerLost,
)
from mmdb.train.drive.child_worker import ClientWorker, DuckWorker
from mmdb.train.drive.server_worker import CitusWorker, PostgresWorker
from mmdb.train.hops.orders import Order
from mmdb.train.values.runtime import trace_of


class PoolWorker(Protocol):
    """One worker; its methods are called from one thread, `cancel` and `close` from any.

    Attributes:
        node: the machine that computes; known once it is open.
        device: where it computes: "cpu", "cuda:0", ...
    """

    name: str
    node: str
    device: str

    def open(self) -> None:
        """Get a fresh, warm session.

        Raises:
            EngineError: none can be had.
        """

    def do(self, order: Order) -> Sequence[Row]:
        """Do what an order says and return the rows of its hops.

        An objective is None where nothing was validated.

        Raises:
            WorkerLost: the session ended; the hop may be committed or not.
            HopTimedOut: it took longer than `order.limit_s`; the session is ended.
            Cancelled: see `cancel`.
            MmdbError: the hop failed.
        """

    def cancel(self) -> None:
        """Break off the hop under way, if any; `open` comes before the next one."""

    def close(self) -> None:
        """End the session, whatever it is doing."""


def workers_of(
    connection: AnyConnection,
    count: int,
    *,
    mode: Mode | None = None,
    devices: tuple[str, ...] = ("cpu",),
    name: str = "worker",
    nodes: Sequence[str] = (),
) -> list[PoolWorker]:
    """Return `count` workers for the database that `connection` is open on.

    On a cluster each belongs to a node; there are as many on each, as far as possible, and one at
    least.

    Args:
        nodes: of a cluster, those to work on; all that hold partitions if left out.
        mode: on PostgreSQL; None for "server" where mmdb's functions are installed, else "client".
        devices: dealt out in turn.
    Raises:
        NoServerFunctions: mode is "server" and the database has no functions.
        InvalidOption: mode is "client" on a cluster.
    """
    slots = [(f"{name} {k}", devices[k % len(devices)]) for k in range(count)]
    if not isinstance(connection, PostgresConnection):
        return [DuckWorker(slot, connection, device) for slot, device in slots]
    spread = is_spread(connection)
    if mode_of(connection, mode) == "client":
        if spread:
            raise InvalidOption("On Citus hops run in the servers.", hint="Leave the mode out.")
        return [ClientWorker(slot, connection.url, device) for slot, device in slots]
    if not spread:
        return [PostgresWorker(slot, connection.url, device) for slot, device in slots]
    places = nodes or sorted(keys_of_nodes(connection))
    slots += [(f"{name} {k}", devices[k % len(devices)]) for k in range(count, len(places))]
    return [
        CitusWorker(slot, connection.url, places[k % len(places)], device)
        for k, (slot, device) in enumerate(slots)
    ]


def mode_of(connection: PostgresConnection, mode: Mode | None) -> Mode:
    """Return where hops compute, if `mode` leaves it open.

    Raises:
        NoServerFunctions
    """
    installed = installed_mode(connection)
    if mode == "server" and installed == "client":
        raise NoServerFunctions()
    return mode or installed


#: Seconds for which a candidate that another session still trains is waited for, and the pause
#: between two tries.
BUSY_S, BUSY_PAUSE_S = 60.0, 0.2


@dataclass(frozen=True, slots=True)
class Message:
    """What a worker's thread reports."""

    worker: str
    kind: Literal["ready", "done", "failed", "lost", "broken"]
    seconds: float = 0.0  # of a hop that is done, with its way there and back
    rows: tuple[Row, ...] = ()  # of hops that are done; see `PoolWorker.do`
    error: MmdbError | None = None


#: What a thread may be told.
_Order = Order | Literal["open", "stop"]


class WorkerThread(threading.Thread):
    """Does what it is told with one worker, and reports into the inbox."""

    def __init__(
        self, worker: PoolWorker, inbox: queue.Queue[Message] | queue.Queue[Message | None]
    ) -> None:
        super().__init__(name=worker.name, daemon=True)
        self.worker = worker
        self._inbox = inbox
        self._is_cancelled = threading.Event()
        self._orders: queue.Queue[_Order] = queue.Queue()

    def open(self) -> None:
        """Get a fresh session; reports "ready" or "broken"."""
        self._orders.put("open")

    def do(self, order: Order) -> None:
        """Do a hop, or what else an order says; reports "done", "failed" or "lost"."""
        self._is_cancelled.clear()
        self._orders.put(order)

    def cancel(self) -> None:
        """Break off the hop under way, which then reports "failed" or "lost"."""
        self._is_cancelled.set()
        self.worker.cancel()

    def stop(self) -> None:
        """End the session, whatever it is doing, and the thread."""
        self._orders.put("stop")
        self.worker.close()

    def run(self) -> None:
        try:
            while (order := self._orders.get()) != "stop":
                self._inbox.put(self._open() if order == "open" else self._do(order))
        finally:
            self.worker.close()  # again: `stop` may have come while a session was being opened

    def _open(self) -> Message:
        try:
            self.worker.open()
        except MmdbError as error:
            return Message(self.worker.name, "broken", error=error)
        except Exception as error:  # no memory, no process: must end in an error, not in a hang
            known = EngineError(f"{type(error).__name__}: {error}")
            return Message(self.worker.name, "broken", error=known)
        return Message(self.worker.name, "ready")

    def _do(self, order: Order) -> Message:
        started = perf_counter()
        try:
            while True:
                try:
                    rows = tuple(self.worker.do(order))
                    return Message(self.worker.name, "done", perf_counter() - started, rows)
                except CandidateBusy:
                    # A session whose connection broke may still be ending its hop.
                    if perf_counter() - started > BUSY_S:
                        raise
                    if self._is_cancelled.wait(BUSY_PAUSE_S):
                        raise Cancelled("The hop was cancelled.") from None
        except WorkerLost as error:
            return Message(self.worker.name, "lost", error=error)
        except MmdbError as error:
            return Message(self.worker.name, "failed", error=error)
        except Exception as error:  # an unknown error must end in the run's record, not in a hang
            return Message(self.worker.name, "failed", error=_unknown(error))


def _unknown(error: Exception) -> TrainingFailed:
    known = TrainingFailed(f"{type(error).__name__}: {error}")
    known.trace = trace_of(error)
    return known
