"""The slots of worker processes: their registration, and the signs of life that keep it valid."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from mmdb.db import doctor_schema
from mmdb.db.connection import Connection, Row
from mmdb.db.install import Mode
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import EngineError, MmdbError, WorkerExists
from mmdb.train.drive.worker import PoolWorker
from mmdb.train.values.runtime import start_without_signals

#: Seconds between two signs of life, and seconds of silence after which a slot is taken for lost.
BEAT_S, LEASE_S = 1.0, doctor_schema.LEASE_S
#: Tries to get session and name back, BEAT_S apart.
RETRIES = 30

_Q = load("service")


def live_workers(connection: Connection) -> list[Row]:
    """Return worker_id, name, process, node, device and mode of the slots that serve now."""
    if connection.engine == "duckdb":
        return []
    return connection.rows(_Q.live_workers, worker_id=None, lease_s=LEASE_S)


def is_alive(connection: Connection, worker_id: int) -> bool:
    """Return whether a slot serves."""
    return bool(connection.rows(_Q.live_workers, worker_id=worker_id, lease_s=LEASE_S))


def register(
    connection: Connection, workers: Sequence[PoolWorker], process: str, mode: Mode
) -> dict[int, PoolWorker]:
    """Offer open workers as slots; return them by worker_id."""
    found: dict[int, PoolWorker] = {}
    with connection.transaction():
        for worker in workers:
            (row,) = connection.rows(
                _Q.add_worker,
                name=worker.name,
                process=process,
                node=worker.node,
                device=worker.device,
                mode=mode,
            )
            connection.run(_Q.add_beat, worker_id=row["worker_id"])
            found[row["worker_id"]] = worker
    return found


def unregister(connection: Connection, worker_ids: Sequence[int]) -> None:
    """Give slots up, in order."""
    connection.run(_Q.stop_workers, worker_ids=list(worker_ids))


class Pulse(threading.Thread):
    """Holds the name of a worker process, beats for its slots, and hears what is meant for them.

    It has a session of its own, so that no other work holds up the signs of life.
    """

    def __init__(self, url: str, name: str, heard: Callable[[], None]) -> None:
        """Take the name.

        Args:
            heard: called from this thread when slots may have something to do.
        Raises:
            WorkerExists: a process of that name serves.
        """
        super().__init__(name="mmdb pulse", daemon=True)
        self._name, self._heard = name, heard
        self._ended = threading.Event()
        self._worker_ids: list[int] = []
        self.error: MmdbError | None = None  # that ended the thread
        self._connection = PostgresConnection(url, application_name=f"mmdb {name} pulse")
        try:
            self._begin()
        except BaseException:
            self._connection.close()
            raise

    def start_for(self, worker_ids: Sequence[int]) -> None:
        """Begin to beat for slots."""
        self._worker_ids = list(worker_ids)
        start_without_signals(self)

    def stop(self) -> None:
        """End the thread and let go of the name."""
        self._ended.set()
        if self.is_alive():
            self.join()
        self._connection.close()

    def run(self) -> None:
        beat_at, mine = 0.0, {str(worker_id) for worker_id in self._worker_ids}
        while not self._ended.is_set():
            try:
                if time.monotonic() - beat_at > BEAT_S:
                    self._connection.run(_Q.beat, worker_ids=self._worker_ids)
                    beat_at = time.monotonic()
                if mine.intersection(self._connection.notifications(BEAT_S)):
                    self._heard()
            except EngineError:
                if not self._revive():
                    return

    def _begin(self) -> None:
        if not self._connection.rows(_Q.lock_worker_name, name=self._name)[0]["locked"]:
            raise WorkerExists(f"A worker process named {self._name!r} serves this database.")
        self._connection.run(_Q.listen_assignments)

    def _revive(self) -> bool:
        """Come back after a crash of the server; what was said meanwhile was missed."""
        for _ in range(RETRIES):
            if self._ended.is_set():
                return False
            with suppress(EngineError, WorkerExists):  # the old session may still hold the name
                self._connection.reconnect()
                self._begin()
                self._heard()
                return True
            self._ended.wait(BEAT_S)
        self.error = WorkerExists(f"Another process has taken the name {self._name!r}.")
        self._heard()
        return False
