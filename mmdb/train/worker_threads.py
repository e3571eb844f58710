"""One thread for each worker: it does what it is told, one thing at a time, and reports."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Literal

from mmdb.errors import CandidateBusy, MmdbError, WorkerLost
from mmdb.train.workers import Worker

#: Seconds before a candidate that another session still trains is tried again.
BUSY_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Message:
    """What a worker's thread reports."""

    worker: str
    kind: Literal["ready", "done", "failed", "lost", "broken"]
    seconds: float = 0.0  # of a hop that is done
    error: MmdbError | None = None


class WorkerThread(threading.Thread):
    """Does what it is told with one worker, and reports into the inbox."""

    def __init__(self, worker: Worker, inbox: queue.Queue[Message]) -> None:
        super().__init__(name=worker.name, daemon=True)
        self.worker = worker
        self._inbox = inbox
        self._orders: queue.Queue[tuple[int, int, int] | Literal["open", "stop"]] = queue.Queue()

    def open(self) -> None:
        """Get a fresh session; reports "ready" or "broken"."""
        self._orders.put("open")

    def hop(self, part_id: int, candidate_id: int, epoch: int) -> None:
        """Do a hop; reports "done", "failed" or "lost"."""
        self._orders.put((part_id, candidate_id, epoch))

    def stop(self) -> None:
        """End the session, whatever it is doing, and the thread."""
        self._orders.put("stop")
        self.worker.close()

    def run(self) -> None:
        try:
            while (order := self._orders.get()) != "stop":
                self._inbox.put(self._open() if order == "open" else self._hop(*order))
        finally:
            self.worker.close()  # again: `stop` may have come while a session was being opened

    def _open(self) -> Message:
        try:
            self.worker.open()
        except MmdbError as error:
            return Message(self.worker.name, "broken", error=error)
        return Message(self.worker.name, "ready")

    def _hop(self, part_id: int, candidate_id: int, epoch: int) -> Message:
        started = perf_counter()
        try:
            while True:
                try:
                    self.worker.hop(part_id, candidate_id, epoch)
                    return Message(self.worker.name, "done", perf_counter() - started)
                except CandidateBusy:
                    # A session whose connection broke may still be ending its hop.
                    sleep(BUSY_PAUSE_S)
        except WorkerLost as error:
            return Message(self.worker.name, "lost", error=error)
        except MmdbError as error:
            return Message(self.worker.name, "failed", error=error)
        except Exception as error:  # an unknown error must end in the run's record, not in a hang
            known = WorkerLost(f"{type(error).__name__}: {error}")
            return Message(self.worker.name, "failed", error=known)
