"""The driver: the only loop with I/O. It trains any number of runs over one pool of workers.

The workers' threads put what happens into one queue; this thread takes it out, tells the run that
it concerns, and hands out what the runs' schedules assign.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
    HopTimedOut,
    MmdbError,
    NotANumber,
    PartitionEvicted,
    ReplayMismatch,
    RightsMissing,
    StateCorrupt,
    StateNotFound,
    WorkerDragged,
)
from mmdb.train.control import Control
from mmdb.train.janitor import Janitor
from mmdb.train.job import Job, forget_states, take_up
from mmdb.train.orders import GroupOrder, HopOrder, MergeOrder, Order
from mmdb.train.parallel.group import Group
from mmdb.train.parallel.rendezvous import Rendezvous
from mmdb.train.schedule import Assignment, Done, Failed, Lost, Ready
from mmdb.train.seeds import MERGE, VALIDATION
from mmdb.train.service.fair import Shares
from mmdb.train.service.requests import last_request, priority_of, requests_since
from mmdb.train.summary import Summary, summarise
from mmdb.train.threads import start_without_signals
from mmdb.train.watch import Watch
from mmdb.train.worker_threads import Message, WorkerThread
from mmdb.train.workers import Worker

#: Errors of a candidate that a second try cannot mend.
FINAL = (NotANumber, CandidateStopped, HopTimedOut)
#: Errors that end the run and leave its candidates as they are.
ENDING = (Cancelled, EnvironmentChanged, ReplayMismatch, RightsMissing, DatasetDropped)
#: Errors of the engine, such as a full disk: the hop is done again.
TROUBLE = (EngineError, PartitionEvicted, CandidateBusy, StateNotFound, StateCorrupt, BlockCorrupt)
#: After so many of them in a row the run ends.
MAX_TROUBLES = 5
#: Seconds between two calls of `on_wait`, at least.
POLL_S = 0.1
#: Seconds between two looks at what people ask: a cancel is to be heeded within one second, and on
#: DuckDB each look takes milliseconds of the process that stores states.
ATTEND_S = 0.5


@dataclass(slots=True)
class _Round:
    """An assignment under way: one worker's hop, or a group's round with a worker for each rank."""

    job: Job
    assignment: Assignment
    waits_for: set[str]  # workers that have not answered yet
    worst: Message | None = None  # of those that failed


@dataclass(slots=True)
class _Slot:
    """A worker of the pool."""

    thread: WorkerThread
    round: _Round | None = None
    retiring: bool = False
    broken: MmdbError | None = None
    sessions: int = 0  # that it has had


@dataclass(slots=True, kw_only=True)
class _Standing:
    """A run of this driver."""

    job: Job
    started: float = field(default_factory=perf_counter)
    troubles: int = 0  # of the engine, in a row
    is_noted: bool = False  # that it was started


class Driver:
    """Trains runs over workers; both may come and go from `on_wait`.

    Attributes:
        outcomes: what became of runs that have ended: their summary, or the error.
    """

    def __init__(
        self,
        connection: AnyConnection,
        *,
        watch: Watch | None = None,
        on_wait: Callable[[], None] = lambda: None,
        on_end: Callable[[str, MmdbError | None], None] = lambda run, error: None,
    ) -> None:
        """Drive over a session.

        Args:
            on_wait: called about every POLL_S seconds; may raise to end `drive`.
            on_end: called with a run that has ended, and the error that ended it.
        """
        self._control = Control(connection)
        self._watch, self._on_wait, self._on_end = watch or Watch(), on_wait, on_end
        self._inbox: queue.Queue[Message] = queue.Queue()
        self._slots: dict[str, _Slot] = {}
        self._idle: list[str] = []
        self._runs: dict[str, _Standing] = {}
        self._shares = Shares()
        self._janitor = Janitor(connection)
        self._rendezvous: Rendezvous | None = None
        self._seen = self._control.do(last_request)
        self._polled_at = self._attended_at = perf_counter()
        self.outcomes: dict[str, Summary | MmdbError] = {}

    # -- runs and workers --------------------------------------------------------

    def add_worker(self, worker: Worker) -> None:
        """Take a worker into the pool."""
        thread = WorkerThread(worker, self._inbox)
        self._slots[worker.name] = _Slot(thread)
        start_without_signals(thread)
        thread.open()

    def retire_worker(self, name: str) -> None:
        """Let a worker go after its present hop."""
        slot = self._slots.get(name)
        if slot is not None:
            slot.retiring = True
            if slot.round is None:
                self._dismiss(name)

    def add_run(self, name: str) -> None:
        """Train a run, or go on with one that was interrupted.

        Raises:
            RunNotFound, DatasetDropped, RunBusy: another driver trains it.
        """
        job = take_up(self._control, name, self._watch)
        self._runs[name] = _Standing(job=job)
        self._shares.add(name, self._control.do(lambda c: priority_of(c, name)))
        self.outcomes.pop(name, None)
        for worker, slot in self._slots.items():
            if slot.thread.worker.node and worker in self._idle:
                job.take(Ready(worker, slot.thread.worker.node))

    def is_finished(self, name: str) -> bool:
        """Return whether nothing of a run is left to do."""
        return self._runs[name].job.finished

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that are being trained."""
        return tuple(self._runs)

    def drive(self, *, forever: bool = False) -> None:
        """Train until every run has ended; `forever` waits for more.

        Raises:
            MmdbError: no worker can get a session, or what `on_wait` raised.
        """
        try:
            self._settle()
            while self._runs or forever:
                self._take(self._next())
                self._settle()
        except BaseException as error:
            for name in list(self._runs):
                self._end(name, error)
            raise
        finally:
            self._dismiss_all()
            self._janitor.close()
            if self._rendezvous is not None:
                self._rendezvous.close()
            self._control.close()

    # -- the loop ------------------------------------------------------------------

    def _next(self) -> Message | None:
        """Return the next message, or None where something else may have changed."""
        if perf_counter() - self._polled_at > POLL_S:
            self._poll()
            return None
        with suppress(queue.Empty):
            return self._inbox.get(timeout=POLL_S)
        return None

    def _poll(self) -> None:
        self._on_wait()
        self._watch.tick(time.time())
        if perf_counter() - self._attended_at > ATTEND_S:
            self._attend()
            self._attended_at = perf_counter()
        for standing in self._runs.values():
            if standing.job.schedule.stale and not self._idle:
                standing.job.schedule.replan()
        self._polled_at = perf_counter()

    def _attend(self) -> None:
        """Heed what people asked of runs and candidates since the last look."""
        for row in self._control.do(lambda c: requests_since(c, self._seen)):
            self._seen = row["request_id"]
            if row["run"] not in self._runs:
                continue
            if row["request"] == "cancel":
                self._end(row["run"], Cancelled(f"Run {row['run']!r} was cancelled."))
            else:
                self._shares.add(row["run"], row["priority"])
        for standing in self._runs.values():
            standing.job.attend()

    def _take(self, message: Message | None) -> None:
        if message is None:
            return
        slot = self._slots.get(message.worker)
        if slot is None:
            return  # dismissed meanwhile
        if message.kind == "ready":
            self._welcome(slot)
        elif message.kind == "broken":
            self._break(slot, message)
        elif slot.round is not None:
            self._finish(slot, slot.round, message)

    def _settle(self) -> None:
        """End what is finished, and give every idle worker something to do."""
        for run_id, error in list(self._control.lost.items()):
            del self._control.lost[run_id]
            for name, standing in list(self._runs.items()):
                if standing.job.run.run_id == run_id:
                    self._end(name, error)
        self._assign()
        for standing in self._runs.values():
            standing.job.think_ahead()
        told = [standing.job.tell() for standing in self._runs.values()]
        if any(told):
            self._assign()
        for name, standing in list(self._runs.items()):
            if standing.job.finished:
                self._end(name, None)

    def _assign(self) -> None:
        while self._idle and self._assign_next():
            pass

    def _assign_next(self) -> bool:
        """Start a hop of the run whose turn it is; return whether one could start."""
        for name in self._shares.order(self._runs):
            standing = self._runs[name]
            alone = len(self._runs) == 1 or standing.job.schedule.wants > 1
            offers = [self._idle] if alone else [[worker] for worker in self._idle]
            for offer in offers:
                try:
                    assignments = standing.job.assign(offer)
                except MmdbError as error:  # of the search: it finds nothing that can train
                    self._end(name, error)
                    return True
                for assignment in assignments:
                    self._start(standing.job, assignment)
                if assignments:
                    return True
                if standing.job.finished:
                    return False
            if self._must_gather(standing.job):
                return False
        return False

    def _must_gather(self, job: Job) -> bool:
        """Return whether workers are to stay idle for a run that needs several at once.

        Given to other runs one by one as they become idle, they would never be idle together.
        """
        wants = job.schedule.wants
        waits = not job.schedule.finished and not job.schedule.running
        return waits and len(self._idle) < wants <= len(self._slots)

    # -- workers ---------------------------------------------------------------------

    def _welcome(self, slot: _Slot) -> None:
        """A worker has a fresh, warm session."""
        worker = slot.thread.worker
        slot.broken = None
        slot.sessions += 1
        if slot.retiring:
            return self._dismiss(worker.name)
        self._watch.worker(worker.name, node=worker.node, device=worker.device)
        for standing in self._runs.values():
            standing.job.take(Ready(worker.name, worker.node))
        self._idle.append(worker.name)

    def _break(self, slot: _Slot, message: Message) -> None:
        """Go on without a worker that gets no session, as long as there is another."""
        assert message.error is not None
        slot.broken = message.error
        self._watch.worker_gone(message.worker, time.time())
        if all(other.broken for other in self._slots.values()):
            raise message.error

    def _dismiss(self, name: str) -> None:
        slot = self._slots.pop(name)
        self._idle = [worker for worker in self._idle if worker != name]
        self._lose(name, None)
        self._watch.worker_gone(name, time.time())
        slot.thread.stop()

    def _dismiss_all(self) -> None:
        threads = [slot.thread for slot in self._slots.values()]
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join()
        self._slots.clear()

    def _lose(self, worker: str, owner: Job | None) -> None:
        """A session is gone, and the states that it held with it: tell the runs but its owner."""
        for standing in self._runs.values():
            if standing.job is not owner:
                standing.job.take(Lost(worker, bystander=True))

    # -- hops --------------------------------------------------------------------------

    def _start(self, job: Job, assignment: Assignment) -> None:
        members = _members(assignment)
        started = _Round(job, assignment, set(members))
        now, hop = time.time(), assignment.hop
        for worker, order in zip(members, _orders(job, assignment, self._meet), strict=True):
            self._idle.remove(worker)
            slot = self._slots[worker]
            slot.round = started
            slot.thread.do(order)
            part = assignment.group[members.index(worker)][1] if assignment.group else hop.part
            self._watch.hop_started(job.name, worker, hop.candidate, hop.epoch, part, now)
        self._shares.begin(job.name, len(members))
        standing = self._runs[job.name]
        if not standing.is_noted:
            standing.is_noted = True
            self._note(job, "started")

    def _meet(self, members: Sequence[str]) -> Sequence[Group]:
        """Return the places of a group's members; the same as before where they stayed."""
        if self._rendezvous is None:
            self._rendezvous = Rendezvous()
        return self._rendezvous.group(self._sessions(members))

    def _sessions(self, members: Sequence[str]) -> list[str]:
        return [f"{worker}#{self._slots[worker].sessions}" for worker in members]

    def _finish(self, slot: _Slot, round: _Round, message: Message) -> None:
        """Take in what became of an order; a group's round ends with its last member."""
        worker, now = message.worker, time.time()
        slot.round = None
        round.waits_for.discard(worker)
        if message.kind == "done":
            row = message.rows[0] if message.rows else None
            self._watch.hop_done(worker, now, row.get("objective") if row else None)
        else:
            self._watch.hop_failed(worker, now)
            if round.worst is None and self._rendezvous is not None:
                self._rendezvous.part(self._sessions(_members(round.assignment)))
            if round.worst is None or message.kind == "lost":
                round.worst = message
        if message.kind == "done" and round.worst is None:
            if slot.retiring:
                self._dismiss(worker)
            else:
                self._idle.append(worker)
        else:  # it may hold half of what a broken round left
            slot.thread.open()
            self._lose(worker, round.job)
        if round.waits_for:
            return
        members = _members(round.assignment)
        self._shares.end(round.job.name, message.seconds, len(members))
        if round.job.name in self._runs and self._runs[round.job.name].job is round.job:
            self._conclude(self._runs[round.job.name], round, message)

    def _conclude(self, standing: _Standing, round: _Round, message: Message) -> None:
        """Tell a run what became of its assignment."""
        job, assignment = round.job, round.assignment
        if round.worst is not None:
            if round.worst.kind == "lost":
                self._control.check()
            self._weigh(standing, round)
            return
        standing.troubles = 0
        job.hops += len(_members(assignment)) if assignment.hop.part != MERGE else 0
        if job.makes_durable(assignment):
            self._janitor.wrote(message.rows[:1])
        job.take(Done(assignment.worker, message.seconds))
        hop = assignment.hop
        if hop.part == VALIDATION:
            objective = message.rows[0]["objective"]
            if objective is not None:
                job.hear(hop.candidate, hop.epoch, objective)

    def _weigh(self, standing: _Standing, round: _Round) -> None:
        """End a candidate, or the run over trouble that no candidate is to blame for."""
        assert round.worst is not None
        job, worst, worker = standing.job, round.worst, round.assignment.worker
        error = worst.error
        for member, _ in round.assignment.group[1:]:
            job.take(Lost(member, bystander=True))
        if isinstance(error, ENDING):
            return self._end(job.name, error)
        if worst.kind == "lost":
            bystander = isinstance(error, WorkerDragged)
            return job.take(Lost(worker, bystander=bystander), error)
        if isinstance(error, TROUBLE):
            standing.troubles += 1
            if standing.troubles >= MAX_TROUBLES:
                return self._end(job.name, error)
            return job.take(Lost(worker, bystander=True), error)
        job.take(Failed(worker, final=isinstance(error, FINAL)), error)

    # -- ends ----------------------------------------------------------------------------

    def _end(self, name: str, error: BaseException | None) -> None:
        """Let a run go: finished, or broken off by `error`."""
        standing = self._runs.pop(name)
        self._shares.remove(name)
        job = standing.job
        for slot in self._slots.values():
            if slot.round is not None and slot.round.job is job:
                slot.thread.cancel()
        try:
            if error is None:
                seconds = perf_counter() - standing.started
                self.outcomes[name] = self._control.do(
                    lambda c: summarise(c, name, job.hops, seconds)
                )
            if standing.is_noted:
                self._note(job, "finished" if error is None else "interrupted")
        except MmdbError as other:  # every candidate has failed; or the server is gone for good
            error = error or other
            with suppress(EngineError):
                if standing.is_noted:
                    self._note(job, "interrupted")
        if isinstance(error, MmdbError):
            self.outcomes[name] = error
        forget_states(self._control.connection, job.candidate_ids)
        self._watch.end(name)
        self._control.unlock(job.run.run_id)
        self._on_end(name, error if isinstance(error, MmdbError) else None)

    def _note(self, job: Job, event: str) -> None:
        """Note in `run_event` what happens to a run."""
        query = load("runs").add_run_event
        row = {"run_id": job.run.run_id, "event": event, "workers": len(self._slots)}
        self._control.do(lambda c: c.run(query, **row))


def _orders(
    job: Job, assignment: Assignment, meet: Callable[[Sequence[str]], Sequence[Group]]
) -> list[Order]:
    """Return what each worker of an assignment is told: one, or a group's in order of ranks."""
    hop, limit_s = assignment.hop, job.hop_limit_s
    candidate_id = job.candidate_id(hop.candidate)
    if hop.part == MERGE:
        return [MergeOrder(candidate_id=candidate_id, epoch=hop.epoch, limit_s=limit_s)]
    if len(assignment.group) > 1:  # a group of one is an ordinary hop, validation among them
        part_ids = tuple(job.run.part_ids[part] for _, part in assignment.group)
        return [
            GroupOrder(
                part_ids=part_ids,
                candidate_id=candidate_id,
                epoch=hop.epoch,
                group=group,
                limit_s=limit_s,
            )
            for group in meet([worker for worker, _ in assignment.group])
        ]
    return [
        HopOrder(
            part_id=job.run.part_ids[hop.part],
            candidate_id=candidate_id,
            epoch=hop.epoch,
            publish=assignment.publish,
            limit_s=limit_s,
        )
    ]


def _members(assignment: Assignment) -> Sequence[str]:
    return [worker for worker, _ in assignment.group] or [assignment.worker]
