"""What a worker process does with its slots: take what is assigned to them, do it, report."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from mmdb.db.connection import Row
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import EngineError, LockHeld, MmdbError
from mmdb.train.failure import trace_of
from mmdb.train.service.registry import BEAT_S, unregister
from mmdb.train.threads import start_without_signals
from mmdb.train.workers.orders import from_json
from mmdb.train.workers.worker import Worker
from mmdb.train.workers.worker_threads import Message, WorkerThread

#: Seconds between two tries to cancel a hop: one that has not quite begun is deaf.
CANCEL_S = 0.5

_Q = load("service")


@dataclass(slots=True)
class _Slot:
    worker_id: int
    thread: WorkerThread
    state: Literal["opening", "idle", "busy", "stopped"] = "idle"
    assignment_id: int | None = None
    cancelled_at: float | None = None  # monotonic seconds; of the assignment


class Serving(threading.Thread):
    """Serves the slots of this process until it is told to stop."""

    def __init__(
        self, url: str, workers: Mapping[int, Worker], stop_at: Callable[[], float | None]
    ) -> None:
        """Take workers that are open, by worker_id.

        Args:
            stop_at: asked often: None, or until when hops under way may last, in monotonic
                seconds; no other assignment is taken then.
        """
        super().__init__(name="mmdb serving", daemon=True)
        self._connection = PostgresConnection(url, application_name="mmdb serving")
        self._inbox: queue.Queue[Message | None] = queue.Queue()
        self._slots = {
            worker.name: _Slot(worker_id, WorkerThread(worker, self._inbox))
            for worker_id, worker in workers.items()
        }
        self._stop_at = stop_at
        self.error: MmdbError | None = None  # that ended the thread

    def wake(self) -> None:
        """Look for assignments, and for those that were given up."""
        self._inbox.put(None)

    def run(self) -> None:
        try:
            for slot in self._slots.values():
                start_without_signals(slot.thread)
            while not self._is_over():
                self._turn(self._next())
        except MmdbError as error:
            self.error = error
        finally:
            for slot in self._slots.values():
                slot.thread.stop()
            for slot in self._slots.values():
                slot.thread.join()
            self._connection.close()

    def _next(self) -> Message | None:
        try:
            return self._inbox.get(timeout=BEAT_S / 4)
        except queue.Empty:
            return None

    def _turn(self, message: Message | None) -> None:
        while True:
            try:
                if message is not None:
                    self._take(message)
                    message = None
                self._break_off()
                self._stop_idle()
                self._assign()
                return
            except LockHeld:
                if self._stop_at() is not None:
                    raise
            except EngineError:
                if self._connection.alive():
                    raise
                self._connection.reconnect()

    def _take(self, message: Message) -> None:
        """Report a hop's end; a session in which one failed is not used for another."""
        slot = self._slots[message.worker]
        if message.kind == "broken":
            unregister(self._connection, [slot.worker_id])
            slot.state = "stopped"
            self.error = message.error
            return
        if slot.assignment_id is not None:
            self._report(slot.assignment_id, message.error)
            slot.assignment_id = None
        if message.kind in ("failed", "lost") or slot.cancelled_at is not None:
            slot.cancelled_at = None
            slot.state = "opening"
            slot.thread.open()
        else:
            slot.state = "idle"

    def _report(self, assignment_id: int, error: MmdbError | None) -> None:
        self._connection.run(
            _Q.finish_assignment,
            assignment_id=assignment_id,
            sqlstate=error.sqlstate if error else None,
            message=error.message if error else None,
            hint=error.hint if error else None,
            trace=trace_of(error) or None if error else None,
        )

    def _break_off(self) -> None:
        """Cancel hops that nobody waits for, or that outlast the grace."""
        busy = {s.assignment_id: s for s in self._slots.values() if s.assignment_id is not None}
        if not busy:
            return
        rows = self._connection.rows(_Q.find_given_up, assignment_ids=list(busy))
        gone = [row["assignment_id"] for row in rows]
        stop_at = self._stop_at()
        if stop_at is not None and time.monotonic() > stop_at:
            gone = list(busy)
        for slot in (busy[assignment_id] for assignment_id in gone):
            if slot.cancelled_at is None or time.monotonic() - slot.cancelled_at > CANCEL_S:
                slot.cancelled_at = time.monotonic()
                slot.thread.cancel()

    def _stop_idle(self) -> None:
        if self._stop_at() is None:
            return
        idle = [slot for slot in self._slots.values() if slot.state in ("idle", "opening")]
        if idle:
            unregister(self._connection, [slot.worker_id for slot in idle])
        for slot in idle:
            slot.state = "stopped"

    def _assign(self) -> None:
        while idle := {s.worker_id: s for s in self._slots.values() if s.state == "idle"}:
            rows = self._connection.rows(_Q.take_assignment, worker_ids=list(idle))
            if not rows:
                return
            self._begin(idle[rows[0]["worker_id"]], rows[0])

    def _begin(self, slot: _Slot, row: Row) -> None:
        slot.state, slot.assignment_id = "busy", row["assignment_id"]
        slot.thread.do(from_json(row["detail"]))

    def _is_over(self) -> bool:
        return all(slot.state == "stopped" for slot in self._slots.values())
