"""The driver: the only loop with I/O. It feeds the schedule with events and the workers with hops.

The workers' threads put what happens into one queue; this thread takes it out, asks the schedule,
and hands out what it assigns.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from mmdb.db.queries import load
from mmdb.db.url import AnyConnection
from mmdb.errors import (
    BlockCorrupt,
    Cancelled,
    CandidateBusy,
    CandidateStopped,
    DatasetDropped,
    EngineError,
    EnvironmentChanged,
    InTransaction,
    InvalidOption,
    MmdbError,
    NotANumber,
    PartitionEvicted,
    ReplayMismatch,
    RightsMissing,
    RunFailed,
    StateCorrupt,
    StateNotFound,
    WorkerDragged,
)
from mmdb.store import states
from mmdb.train import schedule as sched
from mmdb.train.control import Control
from mmdb.train.runs import RunState, load_run
from mmdb.train.save import save_candidate
from mmdb.train.schedule import Assignment, Done, Event, Failed, Lost, Ready, Schedule
from mmdb.train.threads import start_without_signals
from mmdb.train.worker_threads import Message, WorkerThread
from mmdb.train.workers import Worker, workers_of

#: Errors of a candidate that a second try cannot mend.
FINAL = (NotANumber, CandidateStopped)
#: Errors that end the run and leave its candidates as they are.
ENDING = (Cancelled, EnvironmentChanged, ReplayMismatch, RightsMissing, DatasetDropped)
#: Errors of the engine, such as a full disk: the hop is done again.
TROUBLE = (EngineError, PartitionEvicted, CandidateBusy, StateNotFound, StateCorrupt, BlockCorrupt)
#: After so many of them in a row the run ends.
MAX_TROUBLES = 5
#: Seconds between two calls of `on_wait`, at least.
POLL_S = 0.1


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


class Driver:
    """One call of `train`."""

    def __init__(
        self,
        control: Control,
        run: RunState,
        workers: list[Worker],
        on_change: Callable[[Schedule], None],
        on_wait: Callable[[], None],
    ) -> None:
        self._control = control
        self._run = run
        self._schedule = run.schedule
        self._inbox: queue.Queue[Message] = queue.Queue()
        self._threads = {w.name: WorkerThread(w, self._inbox) for w in workers}
        self._on_change, self._on_wait = on_change, on_wait
        self._waited_at = perf_counter()
        self._broken: set[str] = set()
        self._troubles = 0  # of the engine, in a row
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

    def _next(self) -> Message:
        while True:
            if perf_counter() - self._waited_at > POLL_S:
                self._on_wait()
                self._waited_at = perf_counter()
            with suppress(queue.Empty):
                return self._inbox.get(timeout=POLL_S)

    def _take(self, message: Message) -> None:
        if message.kind == "broken":
            self._break(message)
            return
        if message.kind == "lost":
            self._control.check()
        if message.kind == "failed":
            self._weigh(message.error)
        if message.kind == "done":
            self.hops += 1
            self._troubles = 0
        before = self._schedule
        self._schedule, assignments = sched.step(before, _event(message))
        self._record_closed(before, message.error)
        if message.kind in ("failed", "lost"):
            self._threads[message.worker].open()
        for assignment in assignments:
            self._start(assignment)

    def _break(self, message: Message) -> None:
        """Go on without a worker that gets no session, as long as there is another."""
        assert message.error is not None
        self._broken.add(message.worker)
        if len(self._broken) == len(self._threads):
            raise message.error

    def _weigh(self, error: MmdbError | None) -> None:
        """End the run, which can be resumed, over trouble that no candidate is to blame for."""
        if isinstance(error, ENDING):
            raise error
        if isinstance(error, TROUBLE):
            self._troubles += 1
            if self._troubles >= MAX_TROUBLES:
                raise error

    def _start(self, assignment: Assignment) -> None:
        hop = assignment.hop
        self._threads[assignment.worker].hop(
            self._run.part_ids[hop.part],
            self._run.candidate_ids[hop.candidate],
            hop.epoch,
            assignment.publish,
        )

    def _record_closed(self, before: Schedule, error: MmdbError | None) -> None:
        pairs = zip(before.progress, self._schedule.progress, strict=True)
        for ordinal, (old, new) in enumerate(pairs):
            if new.closed and not old.closed and error is not None:
                candidate_id = self._run.candidate_ids[ordinal]
                self._control.do(partial(_close_candidate, candidate_id=candidate_id, error=error))


def _close_candidate(connection: AnyConnection, *, candidate_id: int, error: MmdbError) -> None:
    with connection.transaction():
        if not isinstance(error, CandidateStopped):  # its end is recorded already
            connection.run(
                load("runs").add_candidate_event,
                candidate_id=candidate_id,
                event="failed",
                sqlstate=error.sqlstate,
                message=error.message,
            )
        states.drop_in_flight(connection, candidate_id)


def _event(message: Message) -> Event:
    if message.kind == "ready":
        return Ready(message.worker)
    if message.kind == "done":
        return Done(message.worker, message.seconds)
    if message.kind == "lost":
        return Lost(message.worker, bystander=isinstance(message.error, WorkerDragged))
    if isinstance(message.error, TROUBLE):
        return Lost(message.worker, bystander=True)
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
        on_wait: called about every POLL_S seconds; may raise to end the call.
    Raises:
        RunNotFound, DatasetDropped, RunBusy, RunFailed, InTransaction, InvalidOption
    """
    count = _worker_count(workers)
    started = perf_counter()
    if connection.in_transaction:
        raise InTransaction("train cannot run inside a transaction block.")
    control = Control(connection, load_run(connection, name).run_id, name)
    try:
        run = load_run(connection, name)  # only now: another driver may just have ended
        if run.schedule.finished:
            return _summary(connection, name, 0, started)
        count = min(count, len(run.candidate_ids))  # more would have nothing to do
        driver = Driver(control, run, workers_of(connection, count), on_change, on_wait)
        with _noted(control, run.run_id, count):
            driver.drive()
            return control.do(lambda c: _summary(c, name, driver.hops, started))
    finally:
        control.close()


@contextmanager
def _noted(control: Control, run_id: int, workers: int) -> Iterator[None]:
    """Note in `run_event` how the block begins and ends."""

    def note(event: str) -> None:
        query = load("runs").add_run_event
        control.do(lambda c: c.run(query, run_id=run_id, event=event, workers=workers))

    note("started")
    try:
        yield
    except BaseException:
        with suppress(EngineError):  # what broke off the run may have taken the server along
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
