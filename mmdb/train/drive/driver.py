"""The driver: the only loop with I/O. It trains any number of runs over one pool of workers.

The workers' threads put what happens into one queue; this thread takes it out, tells the run that
it concerns, and hands out what the runs' schedules assign.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TypeVar

from mmdb.db.citus import is_spread
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.db.totals import seal_some
from mmdb.db.url import AnyConnection
from mmdb.errors import Cancelled, EngineError, MmdbError, NodeLost, WorkerDragged
from mmdb.train.drive.cleanup import Janitor, forget_states
from mmdb.train.drive.cluster_ledger import ClusterLedger
from mmdb.train.drive.fair_queue import ENDING, FINAL, MAX_TROUBLES, TROUBLE, FairQueue
from mmdb.train.drive.job import RunJob, take_up
from mmdb.train.drive.locked_connection import LockedConnection
from mmdb.train.drive.replanning import Replanner
from mmdb.train.drive.run_requests import last_request, priority_of, requests_since
from mmdb.train.drive.run_state import RunState, note_event
from mmdb.train.drive.worker import Message, PoolWorker
from mmdb.train.drive.worker_pool import (
    OrderRound,
    WorkerPool,
    WorkerSlot,
    members_of,
    orders_of,
    tell_done,
)
from mmdb.train.ledger.run_options import Decide
from mmdb.train.replay.summary import Summary, summarise
from mmdb.train.schedule import Done, Failed, HopAssignment, Lost, Ready
from mmdb.train.values.seeds import MERGE, VALIDATION
from mmdb.train.watch import Watch

#: Seconds between two calls of `on_wait`, at least.
POLL_S = 0.1
#: Seconds between two looks at what people ask: a cancel is to be heeded within one second, and on
#: DuckDB each look takes milliseconds of the process that stores states.
ATTEND_S = 0.8
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class _ActiveRun:
    """A run of this driver."""

    job: RunJob
    planning_s: float  # in which it was taken up, and planned
    started: float = field(default_factory=perf_counter)
    troubles: int = 0  # of the engine, in a row
    first_hop_at: float | None = None  # when it was noted that it was started
    replanner: Replanner | None = None  # of a run that begins with a plan


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
        decide: Decide | None = None,
        workers_on: Callable[[str], Sequence[PoolWorker]] | None = None,
    ) -> None:
        """Drive over a session.

        Args:
            workers_on: of a cluster, returns new workers for a node that partitions have come to;
                those of a node that has none any more are then let go.
            decide: how a run is to be trained that nobody has trained yet.
            on_wait: called about every POLL_S seconds; may raise to end `drive`.
            on_end: called with a run that has ended, and the error that ended it.
        """
        self._control = LockedConnection(connection)
        self._watch, self._on_wait, self._on_end = watch or Watch(), on_wait, on_end
        self._decide, self._workers_on = decide, workers_on
        self._pool = WorkerPool(self._watch)
        self._runs: dict[str, _ActiveRun] = {}
        self._fair_queue = FairQueue()
        self._janitor = Janitor(connection)
        self._ledger: ClusterLedger | None = None  # where the tables lie on nodes
        if isinstance(connection, PostgresConnection) and self._control.do(is_spread):
            self._ledger = ClusterLedger(connection.url)
        self._seen = self._control.do(last_request)
        self._polled_at = self._attended_at = perf_counter()
        self.outcomes: dict[str, Summary | MmdbError] = {}

    # -- runs and workers --------------------------------------------------------

    def add_worker(self, worker: PoolWorker) -> None:
        """Take a worker into the pool."""
        self._pool.add(worker)

    def retire_worker(self, name: str) -> None:
        """Let a worker go after its present hop."""
        slot = self._pool.find(name)
        if slot is not None:
            slot.retiring = True
            if slot.round is None:
                self._dismiss(slot)

    def add_run(self, name: str, workers: int | None = None) -> RunState:
        """Train a run, or go on with one that was interrupted; return it as it was taken up.

        Args:
            workers: that it is planned for; those that are there now if left out.
        Raises:
            RunNotFound, DatasetDropped, RunBusy: another driver trains it.
        """
        planned, began = workers or len(self._pool) or None, perf_counter()
        job = take_up(self._control, name, self._watch, self._decide, planned)
        self._runs[name] = _ActiveRun(job=job, planning_s=perf_counter() - began)
        self._fair_queue.add(name, self._control.do(lambda c: priority_of(c, name)))
        self.outcomes.pop(name, None)
        self._introduce(job)
        return job.run

    def add_runs(self, names: Sequence[str], workers: int | None) -> list[RunState]:
        """Train several runs, or none where one of them cannot be; see `add_run`."""
        try:
            return [self.add_run(name, workers) for name in names]
        except BaseException as error:
            for name in self.runs:
                self._end(name, error)
            raise

    def do(self, work: Callable[[AnyConnection], T]) -> T:
        """Return `work(connection)`, done again where the server crashed; the runs stay locked."""
        return self._control.do(work)

    @property
    def _jobs(self) -> list[RunJob]:
        return [active.job for active in self._runs.values()]

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
            self._advance()
            while self._runs or forever:
                self._take(self._next())
                self._advance()
        except BaseException as error:
            for name in list(self._runs):
                self._end(name, error)
            raise
        finally:
            self._pool.close()
            self._janitor.close()
            if self._ledger is not None:
                self._ledger.close()
            self._control.close()

    # -- the loop ------------------------------------------------------------------

    def _next(self) -> Message | None:
        """Return the next message, or None where something else may have changed."""
        if perf_counter() - self._polled_at > POLL_S:
            self._poll()
            return None
        return self._pool.next(POLL_S)

    def _poll(self) -> None:
        self._on_wait()
        self._watch.tick(time.time())
        if perf_counter() - self._attended_at > ATTEND_S:
            self._attend()
            self._check_plan()
            self._attended_at = perf_counter()
        if self._ledger is not None:
            self._follow_partitions(self._ledger)
        for active in self._runs.values():
            active.job.wake()
            schedule = active.job.schedule
            if schedule.stale and not self._pool.idle and not schedule.unreachable():
                schedule.replan()
        self._polled_at = perf_counter()

    def _check_plan(self) -> None:
        """Plan a run anew that is about to miss its plan, which knows of no run beside it."""
        for active in list(self._runs.values()) if len(self._runs) == 1 else ():
            if active.replanner is None or active.first_hop_at is None:
                continue
            elapsed_s, count = perf_counter() - active.first_hop_at, len(self._pool)
            view = self._watch.view(active.job.name, time.time())
            if said := active.replanner.check(view, elapsed_s, count):
                self._note(active.job, "replanned", said)

    def _follow_partitions(self, ledger: ClusterLedger) -> None:
        """Heed that partitions were moved to other nodes, or a node has another address."""
        if ledger.is_due():
            for job in self._jobs:
                self._attempt(job, job.look)
        waits = self._pool.is_lost  # there is nothing else to do
        moved = [job for job in self._jobs if self._attempt(job, partial(job.move, waits=waits))]
        if not moved:
            return
        needed = {n for job in self._jobs for nodes in job.run.placement.values() for n in nodes}
        if needed and self._workers_on is not None:
            self._pool.staff(needed, self._workers_on)
            for name in [s.worker.name for s in self._pool if s.worker.node not in needed]:
                self.retire_worker(name)
        for job in moved:
            self._introduce(job)

    def _attempt(self, job: RunJob, step: Callable[[], bool]) -> bool:
        """Return what a step of a run says; an error ends that run alone."""
        try:
            return step()
        except MmdbError as error:
            self._end(job.name, error)
            return False

    def _introduce(self, job: RunJob) -> None:
        """Tell a run which workers are up."""
        for slot in self._pool:
            if slot.sessions and not slot.broken:
                job.take(Ready(slot.worker.name, slot.worker.node))

    def _attend(self) -> None:
        """Heed what people asked of runs and candidates since the last look."""
        run_ids = [job.run.run_id for job in self._jobs]
        query = load("runs").find_news
        news = self._control.do(lambda c: c.rows(query, run_ids=run_ids)) if run_ids else []
        if any((row["run_request"] or 0) > self._seen for row in news):
            self._heed_requests()
        by_run = {row["run_id"]: row for row in news}
        for job in self._jobs:
            if job.is_behind(by_run.get(job.run.run_id)):
                job.attend()

    def _heed_requests(self) -> None:
        rows = self._control.do(lambda c: requests_since(c, self._seen))
        for row in {row["run"]: row for row in rows}.values():  # a run's last request holds
            self._seen = max(self._seen, row["request_id"])
            if row["run"] not in self._runs:
                continue
            if row["request"] == "cancel":
                self._end(row["run"], Cancelled(f"Run {row['run']!r} was cancelled."))
            else:
                self._fair_queue.add(row["run"], row["priority"])

    def _take(self, message: Message | None) -> None:
        if message is None:
            return
        slot = self._pool.find(message.worker)
        if slot is None:
            return  # dismissed meanwhile
        if message.kind == "ready":
            self._welcome(slot)
        elif message.kind == "broken":
            assert message.error is not None
            self._break(slot, message.error)
        elif slot.round is not None:
            self._finish(slot, slot.round, message)

    def _advance(self) -> None:
        """Give every idle worker something to do, tell the searches, and end what is finished."""
        for run_id, error in list(self._control.lost.items()):
            del self._control.lost[run_id]
            for name, active in list(self._runs.items()):
                if active.job.run.run_id == run_id:
                    self._end(name, error)
        self._assign()
        changed = False
        for name, active in list(self._runs.items()):
            try:
                changed |= active.job.tell()
                active.job.think_ahead()
            except MmdbError as error:
                self._end(name, error)
                changed = True
        if changed:
            self._assign()
        finished = [name for name, active in self._runs.items() if active.job.finished]
        for name in finished:
            self._end(name, None)
        if finished:
            self._assign()

    def _assign(self) -> None:
        """Give every idle worker something to do."""
        while self._pool.idle and self._assign_next():
            pass

    def _assign_next(self) -> bool:
        """Start a hop of the run whose turn it is; return whether one could start."""
        for name in self._fair_queue.order(self._runs):
            active = self._runs[name]
            alone = len(self._runs) == 1 or active.job.schedule.wants > 1
            idle = list(self._pool.idle)
            offers = [idle] if alone else [[worker] for worker in idle]
            usable = self._pool.usable // len(self._runs) if active.job.schedule.shares else None
            for offer in offers:
                try:
                    assignments = active.job.assign(offer, usable)
                    if not assignments and self._pool.is_settled:
                        active.job.check_reach()
                except MmdbError as error:  # the search finds nothing that can train; a lost node
                    self._end(name, error)
                    return True
                for assignment in assignments:
                    self._start(active.job, assignment)
                if assignments:
                    return True
                if active.job.finished:
                    return False
            if self._pool.must_gather(active.job):
                return False
        return False

    # -- workers ---------------------------------------------------------------------

    def _welcome(self, slot: WorkerSlot) -> None:
        """A worker has a fresh, warm session."""
        if slot.retiring:
            return self._dismiss(slot)
        self._pool.welcome(slot)
        for active in self._runs.values():
            active.job.take(Ready(slot.worker.name, slot.worker.node))

    def _break(self, slot: WorkerSlot, error: MmdbError) -> None:
        """A worker gets no session: its node may be gone, or have another address now.

        Raises:
            MmdbError: there is no other worker left.
        """
        self._pool.break_(slot, error)
        if self._ledger is not None:
            self._ledger.look_soon()
            self._follow_partitions(self._ledger)
        if self._pool.is_lost:
            raise error

    def _dismiss(self, slot: WorkerSlot) -> None:
        self._pool.dismiss(slot)
        self._lose(slot.worker.name, None)

    def _lose(self, worker: str, owner: RunJob | None) -> None:
        """A session is gone, and the states that it held with it: tell the runs but its owner."""
        for active in self._runs.values():
            if active.job is not owner:
                active.job.take(Lost(worker, bystander=True))

    # -- hops --------------------------------------------------------------------------

    def _start(self, job: RunJob, assignment: HopAssignment) -> None:
        members = members_of(assignment)
        active = self._runs[job.name]
        if active.first_hop_at is None:  # before its first hop, which would delete the same totals
            active.first_hop_at = perf_counter()
            self._note(job, "started")
            if self._decide and not any(member.past.part_ids for member in job.run.members):
                run, seconds = job.run, active.planning_s
                active.replanner = Replanner(self._control, run, self._decide, seconds)
        started = OrderRound(job, assignment, set(members), self._pool.sessions(members))
        now, hop = time.time(), assignment.hop
        orders = orders_of(job, assignment, self._pool.meet)
        if self._ledger is not None:
            orders = self._ledger.begun(started, orders)
        for rank, (worker, order) in enumerate(zip(members, orders, strict=True)):
            self._pool.start(worker, order, started)
            part = assignment.group[rank][1] if assignment.group else hop.part
            self._watch.hop_started(job.name, worker, hop.candidate, hop.epoch, part, now)
        for other in assignment.fused:
            self._watch.hop_joined(assignment.worker, other)
        self._fair_queue.begin(job.name, len(members))

    def _finish(self, slot: WorkerSlot, round: OrderRound, message: Message) -> None:
        """Take in what became of an order; a group's round ends with its last member."""
        worker, now = message.worker, time.time()
        slot.round = None
        round.waits_for.discard(worker)
        round.rows += message.rows
        if message.kind == "done":
            tell_done(self._watch, round.assignment, message, now)
        else:
            self._watch.hop_failed(worker, now)
            if round.worst is None:
                self._pool.part(round.sessions)
            if round.worst is None or message.kind == "lost":
                round.worst = message
        if message.kind == "done" and round.worst is None and not slot.is_cancelled:
            if slot.retiring:
                self._dismiss(slot)
            else:
                self._pool.idle.append(worker)
        else:  # it may hold half of what a broken round left, or a cancel that came too late
            slot.thread.open()
            self._lose(worker, round.job)
        if round.waits_for:
            return
        if self._ledger is not None and round.worst is not None:
            self._ledger.failed(round)
        self._fair_queue.end(round.job.name, message.seconds, len(round.members))
        active = self._runs.get(round.job.name)
        if active is not None and active.job is round.job:
            self._conclude(active, round, message)

    def _conclude(self, active: _ActiveRun, round: OrderRound, message: Message) -> None:
        """Tell a run what became of its assignment."""
        job, assignment = round.job, round.assignment
        if round.worst is not None:
            job.recall(assignment, done=False)
            if round.worst.kind == "lost":
                self._control.check()
            self._weigh(active, round)
            return
        active.troubles = 0
        job.recall(assignment, done=True)
        if assignment.hop.part != MERGE:
            job.hops += len(round.members) + len(assignment.fused)
        # A vacuum over all nodes costs more than it saves: autovacuum does it there.
        if self._ledger is None:
            self._janitor.wrote(job.durable(assignment, round.rows))
        else:
            self._ledger.done(round)
        job.take(Done(assignment.worker, message.seconds))
        if assignment.hop.part == VALIDATION:
            try:
                job.hear_all(assignment, round.rows)
            except MmdbError as error:
                self._end(job.name, error)

    def _weigh(self, active: _ActiveRun, round: OrderRound) -> None:
        """End a candidate, or the run over trouble that no candidate is to blame for."""
        assert round.worst is not None
        job, worst, worker = active.job, round.worst, round.assignment.worker
        error = worst.error
        for member, _ in round.assignment.group[1:]:
            job.take(Lost(member, bystander=True))
        if isinstance(error, ENDING):
            return self._end(job.name, error)
        if worst.kind == "lost":
            bystander = isinstance(error, WorkerDragged)
            job.take(Lost(worker, bystander=bystander), error)
            if error is not None and isinstance(error.__cause__, NodeLost):
                job.rest(round.assignment.hop.candidate)
            return
        if isinstance(error, TROUBLE):
            active.troubles += 1
            if active.troubles >= MAX_TROUBLES:
                return self._end(job.name, error)
            return job.take(Lost(worker, bystander=True), error)
        job.take(Failed(worker, final=isinstance(error, FINAL)), error)

    # -- ends ----------------------------------------------------------------------------

    def _end(self, name: str, error: BaseException | None) -> None:
        """Let a run go: finished, or broken off by `error`."""
        active = self._runs.pop(name)
        self._fair_queue.remove(name)
        job = active.job
        self._pool.cancel(job)
        try:
            if error is None:
                seconds = perf_counter() - active.started
                self.outcomes[name] = self._control.do(
                    lambda c: summarise(c, name, job.hops, seconds)
                )
            if active.first_hop_at is not None:
                self._note(job, "finished" if error is None else "interrupted")
        except MmdbError as other:  # every candidate has failed; or the server is gone for good
            error = error or other
            with suppress(EngineError):
                if active.first_hop_at is not None:
                    self._note(job, "interrupted")
        if isinstance(error, MmdbError):
            self.outcomes[name] = error
        forget_states(self._control.connection, job.candidate_ids)
        self._watch.end(name)
        self._control.unlock(job.run.run_id)
        if error is None:
            try:
                seal_some(self._control.connection)
            except MmdbError:  # views add up the hops then, and the next run tries again
                self._control.check()
        self._on_end(name, error if isinstance(error, MmdbError) else None)

    def _note(self, job: RunJob, event: str, message: str | None = None) -> None:
        note_event(self._control, job.run.run_id, event, len(self._pool), message)
