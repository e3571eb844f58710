"""The driver: the only loop with I/O. It feeds the schedule with events and the workers with hops.

Every worker has a thread that does what it is told, one thing at a time, and puts an event into
one queue; this thread takes events out, asks the schedule, and hands out what it assigns.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import perf_counter, sleep

from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.db.url import AnyConnection
from mmdb.errors import (
    CandidateBusy,
    CandidateStopped,
    ConnectionLost,
    InTransaction,
    InvalidOption,
    MmdbError,
    NotANumber,
    ReplayMismatch,
    RunBusy,
    RunFailed,
    WorkerDragged,
    WorkerLost,
)
from mmdb.store import states
from mmdb.train import schedule as sched
from mmdb.train.runs import RunState, load_run
from mmdb.train.save import save_candidate
from mmdb.train.schedule import Assignment, Done, Event, Failed, Lost, Ready, Schedule
from mmdb.train.threads import start_without_signals
from mmdb.train.workers import Worker, workers_of

#: Errors that a second try cannot mend.
FINAL = (NotANumber, ReplayMismatch, CandidateStopped)
#: Seconds between two calls of `on_wait`.
POLL_S = 0.1
#: Seconds before a candidate that another session still trains is tried again.
BUSY_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run came to."""

    run: str
    candidates: int
    failed: int
    hops: int  # done by this call, validations included
    seconds: float
    best_candidate_id: int
    model: str
    version: int


@dataclass(frozen=True, slots=True)
class _Message:
    worker: str
    kind: str  # "ready", "done", "failed", "lost", "broken"
    seconds: float = 0.0
    error: MmdbError | None = None


class _WorkerThread(threading.Thread):
    """Does what it is told with one worker, and reports into the inbox."""

    def __init__(self, worker: Worker, inbox: queue.Queue[_Message]) -> None:
        super().__init__(name=worker.name, daemon=True)
        self.worker = worker
        self._inbox = inbox
        self._orders: queue.Queue[tuple[int, int, int] | str] = queue.Queue()

    def open(self) -> None:
        self._orders.put("open")

    def hop(self, part_id: int, candidate_id: int, epoch: int) -> None:
        self._orders.put((part_id, candidate_id, epoch))

    def stop(self) -> None:
        self._orders.put("stop")
        self.worker.close()

    def run(self) -> None:
        while (order := self._orders.get()) != "stop":
            self._inbox.put(self._open() if isinstance(order, str) else self._hop(*order))

    def _open(self) -> _Message:
        try:
            self.worker.open()
        except MmdbError as error:
            return _Message(self.worker.name, "broken", error=error)
        return _Message(self.worker.name, "ready")

    def _hop(self, part_id: int, candidate_id: int, epoch: int) -> _Message:
        started = perf_counter()
        try:
            while True:
                try:
                    self.worker.hop(part_id, candidate_id, epoch)
                    return _Message(self.worker.name, "done", perf_counter() - started)
                except CandidateBusy:
                    # A session whose connection broke may still be ending its hop.
                    sleep(BUSY_PAUSE_S)
        except WorkerLost as error:
            return _Message(self.worker.name, "lost", error=error)
        except MmdbError as error:
            return _Message(self.worker.name, "failed", error=error)
        except Exception as error:  # an unknown error must end in the run's record, not in a hang
            known = WorkerLost(f"{type(error).__name__}: {error}")
            return _Message(self.worker.name, "failed", error=known)


class Driver:
    """One call of `train`."""

    def __init__(
        self,
        connection: AnyConnection,
        run: RunState,
        workers: list[Worker],
        on_change: Callable[[Schedule], None],
        on_wait: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._run = run
        self._schedule = run.schedule
        self._inbox: queue.Queue[_Message] = queue.Queue()
        self._threads = {w.name: _WorkerThread(w, self._inbox) for w in workers}
        self._on_change, self._on_wait = on_change, on_wait
        self.hops = 0

    def drive(self) -> None:
        """Train until every candidate has ended.

        Raises:
            MmdbError: no worker can get a session.
        """
        for thread in self._threads.values():
            start_without_signals(thread)
            thread.open()
        try:
            self._on_change(self._schedule)
            while not self._schedule.finished:
                self._take(self._next())
                self._on_change(self._schedule)
        finally:
            for thread in self._threads.values():
                thread.stop()
            for thread in self._threads.values():
                thread.join()

    def _next(self) -> _Message:
        while True:
            try:
                return self._inbox.get(timeout=POLL_S)
            except queue.Empty:
                self._on_wait()

    def _take(self, message: _Message) -> None:
        if message.kind == "broken":
            assert message.error is not None
            raise message.error
        if message.kind == "lost" and isinstance(self._connection, PostgresConnection):
            self._revive(self._connection)
        self.hops += message.kind == "done"
        before = self._schedule
        self._schedule, assignments = sched.step(before, _event(message))
        self._record_closed(before, message.error)
        if message.kind in ("failed", "lost"):
            self._threads[message.worker].open()
        for assignment in assignments:
            self._start(assignment)

    def _revive(self, connection: PostgresConnection) -> None:
        """Get this thread's own session back: a crash of one backend ends all of them.

        Raises:
            RunBusy: another driver took the run over meanwhile.
        """
        if connection.alive():
            return
        connection.reconnect()
        if not connection.try_lock("run", self._run.run_id):
            raise RunBusy(f"Run {self._run.name!r} was taken over by another driver.")

    def _start(self, assignment: Assignment) -> None:
        hop = assignment.hop
        self._threads[assignment.worker].hop(
            self._run.part_ids[hop.part], self._run.candidate_ids[hop.candidate], hop.epoch
        )

    def _record_closed(self, before: Schedule, error: MmdbError | None) -> None:
        pairs = zip(before.progress, self._schedule.progress, strict=True)
        for ordinal, (old, new) in enumerate(pairs):
            if new.closed and not old.closed and error is not None:
                candidate_id = self._run.candidate_ids[ordinal]
                if not isinstance(error, CandidateStopped):  # its end is recorded already
                    self._connection.run(
                        load("runs").add_candidate_event,
                        candidate_id=candidate_id,
                        event="failed",
                        sqlstate=error.sqlstate,
                        message=error.message,
                    )
                states.drop_in_flight(self._connection, candidate_id)


def _event(message: _Message) -> Event:
    if message.kind == "ready":
        return Ready(message.worker)
    if message.kind == "done":
        return Done(message.worker, message.seconds)
    if message.kind == "lost":
        return Lost(message.worker, bystander=isinstance(message.error, WorkerDragged))
    return Failed(message.worker, final=isinstance(message.error, FINAL))


def train(
    connection: AnyConnection,
    name: str,
    *,
    workers: int | None = None,
    on_change: Callable[[Schedule], None] = lambda schedule: None,
    on_wait: Callable[[], None] = lambda: None,
) -> Summary:
    """Train a run to its end, or go on with one that was interrupted, and save its best candidate.

    Args:
        workers: sessions to train with; None for one per processor.
        on_change: called with the schedule after every event.
        on_wait: called every POLL_S seconds while nothing happens; may raise to end the call.
    Raises:
        RunNotFound, DatasetDropped, RunBusy, RunFailed, InTransaction, InvalidOption
    """
    count = _worker_count(workers)
    started = perf_counter()
    if connection.in_transaction:
        raise InTransaction("train cannot run inside a transaction block.")
    run_id = load_run(connection, name).run_id
    if not connection.try_lock("run", run_id):
        raise RunBusy(f"Run {name!r} is being trained by another driver.")
    try:
        run = load_run(connection, name)  # only now: another driver may just have ended
        if run.schedule.finished:
            return _summary(connection, name, 0, started)
        count = min(count, len(run.candidate_ids))  # more would have nothing to do
        driver = Driver(connection, run, workers_of(connection, count), on_change, on_wait)
        with _noted(connection, run_id, count):
            driver.drive()
            return _summary(connection, name, driver.hops, started)
    finally:
        with suppress(ConnectionLost):  # the lock went with the session
            connection.unlock("run", run_id)


@contextmanager
def _noted(connection: AnyConnection, run_id: int, workers: int) -> Iterator[None]:
    """Note in `run_event` how the block begins and ends."""

    def note(event: str) -> None:
        connection.run(load("runs").add_run_event, run_id=run_id, event=event, workers=workers)

    note("started")
    try:
        yield
    except BaseException:
        with suppress(ConnectionLost):
            note("interrupted")
        raise
    note("finished")


def _worker_count(workers: int | None) -> int:
    count = os.cpu_count() or 1 if workers is None else workers
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InvalidOption(f"workers is {workers!r}.", hint="It is a whole number from 1.")
    return count


def _summary(connection: AnyConnection, name: str, hops: int, started: float) -> Summary:
    """Save the head of the leaderboard under the run's name, once, and sum the run up."""
    run = load_run(connection, name)
    best = connection.rows(load("runs").best_candidate, name=name)
    if not best:
        raise RunFailed(f"Every candidate of run {name!r} has failed.")
    for candidate_id in run.candidate_ids:
        states.drop_in_flight(connection, candidate_id)
    model = save_candidate(connection, best[0]["candidate_id"], name)
    return Summary(
        run=name,
        candidates=len(run.candidate_ids),
        failed=sum(p.closed for p in run.schedule.progress),
        hops=hops,
        seconds=perf_counter() - started,
        best_candidate_id=best[0]["candidate_id"],
        model=model["name"],
        version=model["version"],
    )
