"""One thread for each worker: it does what it is told, one thing at a time, and reports."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from mmdb.db.connection import Row
from mmdb.errors import (
    Cancelled,
    CandidateBusy,
    EngineError,
    MmdbError,
    TrainingFailed,
    WorkerLost,
)
from mmdb.train.failure import trace_of
from mmdb.train.workers.orders import Order
from mmdb.train.workers.worker import Worker

#: Seconds for which a candidate that another session still trains is waited for, and the pause
#: between two tries.
BUSY_S, BUSY_PAUSE_S = 60.0, 0.2


@dataclass(frozen=True, slots=True)
class Message:
    """What a worker's thread reports."""

    worker: str
    kind: Literal["ready", "done", "failed", "lost", "broken"]
    seconds: float = 0.0  # of a hop that is done, with its way there and back
    rows: tuple[Row, ...] = ()  # of hops that are done; see `Worker.do`
    error: MmdbError | None = None


#: What a thread may be told.
_Order = Order | Literal["open", "stop"]


class WorkerThread(threading.Thread):
    """Does what it is told with one worker, and reports into the inbox."""

    def __init__(
        self, worker: Worker, inbox: queue.Queue[Message] | queue.Queue[Message | None]
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
