"""A worker process: it offers slots, serves them, and leads where no other does."""

from __future__ import annotations

import os
import platform
import queue
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from mmdb.db.connection import Row
from mmdb.db.install import Mode
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import ConnectionLost, EngineError, LockHeld, MmdbError
from mmdb.train.drive.leader import Deposed, Leader, take_office
from mmdb.train.drive.run_requests import open_requests
from mmdb.train.drive.schedule_worker import ScheduleServer, run_due
from mmdb.train.drive.slot_registry import BEAT_S, Pulse, register, unregister
from mmdb.train.drive.worker import Message, PoolWorker, WorkerThread, mode_of, workers_of
from mmdb.train.hops.orders import from_json
from mmdb.train.ledger.run_options import Decide
from mmdb.train.values.runtime import start_without_signals, trace_of

#: Seconds between two tries to cancel a hop: one that has not quite begun is deaf.
CANCEL_S = 0.5

_Q = load("service")


@dataclass(slots=True)
class _ServedSlot:
    worker_id: int
    thread: WorkerThread
    state: Literal["opening", "idle", "busy", "stopped"] = "idle"
    assignment_id: int | None = None
    cancelled_at: float | None = None  # monotonic seconds; of the assignment


class Serving(threading.Thread):
    """Serves the slots of this process until it is told to stop."""

    def __init__(
        self, url: str, workers: Mapping[int, PoolWorker], stop_at: Callable[[], float | None]
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
            worker.name: _ServedSlot(worker_id, WorkerThread(worker, self._inbox))
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
            while any(slot.state != "stopped" for slot in self._slots.values()):
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

    def _begin(self, slot: _ServedSlot, row: Row) -> None:
        slot.state, slot.assignment_id = "busy", row["assignment_id"]
        slot.thread.do(from_json(row["detail"]))


#: Seconds between two looks at whether to stop.
LOOK_S = 0.1
#: Seconds that hops under way have left after the first SIGTERM.
GRACE_S = 60.0


def default_name() -> str:
    """Return a name that no other process has."""
    return f"{platform.node()}-{os.getpid()}"


class WorkerProcess:
    """Slots of one database, one for each of `devices`."""

    def __init__(
        self,
        url: str,
        devices: Sequence[str],
        *,
        name: str | None = None,
        mode: Mode | None = None,
        grace_s: float = GRACE_S,
        say: Callable[[str], None] = lambda text: None,
        decide: Decide | None = None,
        schedules: Sequence[str] = (),
    ) -> None:
        """Take the name; `run` opens the sessions.

        Args:
            decide: how runs are to be trained that nobody has trained yet.
            mode: where hops compute; None for "server" where the database has functions.
            say: told what a person who watches wants to know.
            schedules: further URLs, whose logins' schedules are served beside that of `url`.
        Raises:
            WrongUrl, NotInstalled, NoServerFunctions, WorkerExists
        """
        self.name = name or default_name()
        self._url, self._grace_s, self._say = url, grace_s, say
        self._decide = decide
        self._logins = (url, *schedules)
        self._stop_at: float | None = None
        self._serving: Serving | None = None
        self._connection = PostgresConnection(url, application_name=f"mmdb {self.name}")
        try:
            self._mode = mode_of(self._connection, mode)
            self._pulse = Pulse(url, self.name, self._heard)
        except BaseException:
            self._connection.close()
            raise
        self._workers = workers_of(
            self._connection,
            len(devices),
            mode=self._mode,
            devices=tuple(devices),
            name=self.name,
        )

    def stop(self) -> None:
        """Begin no hop more, give those under way the grace, and end; again, to end at once.

        It may be called by a signal's handler.
        """
        grace_s = self._grace_s if self._stop_at is None else 0.0
        self._stop_at = time.monotonic() + grace_s

    def run(self, *, once: bool = False) -> None:
        """Serve until stopped, or with `once` until nothing that was submitted is left.

        Raises:
            DeviceMissing: a slot has a device that is not there.
            EngineError: the server is gone, or no slot has a session any more.
        """
        try:
            slots = self._open()
            self._serving = Serving(self._url, slots, lambda: self._stop_at)
            self._pulse.start_for(list(slots))
            start_without_signals(self._serving)
            self._say(f"{self.name} serves: {len(slots)} slots, mode {self._mode}")
            timekeepers = self._keep_time(once)
            try:
                self._take_turns(once)
            finally:
                if self._stop_at is None:
                    self.stop()
                for thread in (*timekeepers, self._serving):
                    thread.join()
                with suppress(EngineError):
                    unregister(self._connection, list(slots))
            if self._serving.error is not None:
                raise self._serving.error
        finally:
            for worker in self._workers:
                worker.close()
            self._pulse.stop()
            self._connection.close()

    def _open(self) -> dict[int, PoolWorker]:
        with ThreadPoolExecutor(len(self._workers)) as threads:
            list(threads.map(lambda worker: worker.open(), self._workers))
        return register(self._connection, self._workers, self.name, self._mode)

    def _keep_time(self, once: bool) -> list[ScheduleServer]:
        """Serve schedules, or with `once` run those that are due."""
        if once:
            for url in self._logins:
                run_due(url)
            return []
        threads = [ScheduleServer(url, lambda: self._stop_at, self._say) for url in self._logins]
        for thread in threads:
            start_without_signals(thread)
        return threads

    def _heard(self) -> None:
        if self._serving is not None:
            self._serving.wake()

    def _take_turns(self, once: bool) -> None:
        """Lead, or wait until nobody else does."""
        look_at = 0.0
        while self._goes_on():
            if time.monotonic() < look_at:
                time.sleep(LOOK_S)
                continue
            look_at = time.monotonic() + BEAT_S
            try:
                if take_office(self._connection):
                    self._dispatch(once)
                if once and not open_requests(self._connection):
                    return
            except ConnectionLost:
                self._connection.reconnect()

    def _dispatch(self, once: bool) -> None:
        self._say(f"{self.name} dispatches")
        try:
            term = Leader(
                self._connection,
                self._url,
                once=once,
                stop_at=lambda: self._stop_at,
                check=self._check,
                say=self._say,
                decide=self._decide,
            )
            with suppress(Deposed):
                term.run()
        except MmdbError as error:  # no slot answers, or the server is gone for the moment
            self._say(f"{self.name} stops dispatching: {error.message}")
        except Exception:  # a defect; the slots go on serving whoever takes over
            self._say(f"{self.name} stops dispatching: {traceback.format_exc()}")
        self._connection.reconnect()  # lays the office down

    def _check(self) -> None:
        if self._stop_at is None and not self._goes_on():
            raise Deposed

    def _goes_on(self) -> bool:
        if self._pulse.error is not None:
            raise self._pulse.error
        return self._stop_at is None and self._serving is not None and self._serving.is_alive()
