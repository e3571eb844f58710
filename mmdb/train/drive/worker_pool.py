"""The workers of a driver: who of them is idle, and what they are told to do."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from mmdb.db.connection import Row
from mmdb.errors import MmdbError
from mmdb.train.drive.cleanup import UselessState
from mmdb.train.drive.job import RunJob
from mmdb.train.drive.worker import Message, PoolWorker, WorkerThread
from mmdb.train.group.rendezvous import Rendezvous
from mmdb.train.hops.orders import FusedOrder, GroupOrder, HopOrder, MergeOrder, Order
from mmdb.train.schedule import HopAssignment
from mmdb.train.values.runtime import start_without_signals
from mmdb.train.values.seeds import MERGE, VALIDATION
from mmdb.train.values.spec import WorkerGroup
from mmdb.train.watch import Watch


@dataclass(slots=True)
class OrderRound:
    """An assignment under way: one worker's hop, or a group's round with a worker for each rank."""

    job: RunJob
    assignment: HopAssignment
    waits_for: set[str]  # workers that have not answered yet
    sessions: Sequence[str]  # of the members, as the rendezvous knows them
    rows: list[Row] = field(default_factory=list)  # that they have answered with
    worst: Message | None = None  # of those that failed
    useless: Sequence[UselessState] = ()  # that go with it

    @property
    def members(self) -> Sequence[str]:
        """The workers, in the order of their ranks."""
        return members_of(self.assignment)


def orders_of(
    job: RunJob, assignment: HopAssignment, meet: Callable[[Sequence[str]], Sequence[WorkerGroup]]
) -> list[Order]:
    """Return what each worker of an assignment is told: one, or a group's in order of ranks."""
    hop, limit_s = assignment.hop, job.hop_limit_s
    candidate_id = job.candidate_id(hop.candidate)
    begins, knows_past = job.begins_apart(hop), job.run.is_spread and not job.run.workload.merges
    at = job.part_at(assignment.worker) if hop.part == VALIDATION else None
    if hop.part == MERGE:
        return [
            MergeOrder(
                candidate_id=candidate_id,
                epoch=hop.epoch,
                part_id=job.part_at(assignment.worker),
                limit_s=limit_s,
            )
        ]
    if len(assignment.group) > 1:  # a group of one is an ordinary hop, validation among them
        part_ids = tuple(job.run.part_ids[part] for _, part in assignment.group)
        members = members_of(assignment)
        return [
            GroupOrder(
                part_ids=part_ids,
                candidate_id=candidate_id,
                epoch=hop.epoch,
                group=group,
                limit_s=limit_s,
                begins=begins,
                past=job.past(hop.candidate) if knows_past else None,
                holders=job.holders,
                at=job.part_at(worker),
            )
            for worker, group in zip(members, meet(members), strict=True)
        ]
    if assignment.fused:
        return [
            FusedOrder(
                part_id=job.run.part_ids[hop.part],
                candidate_ids=tuple(map(job.candidate_id, assignment.candidates)),
                epoch=hop.epoch,
                publish=assignment.publish,
                limit_s=limit_s and limit_s * len(assignment.candidates),
                pasts=tuple(map(job.past, assignment.candidates)) if knows_past else (),
                holders=job.holders,
                at=at,
            )
        ]
    return [
        HopOrder(
            part_id=job.run.part_ids[hop.part],
            candidate_id=candidate_id,
            epoch=hop.epoch,
            publish=assignment.publish,
            limit_s=limit_s,
            begins=begins,
            past=job.past(hop.candidate) if knows_past else None,
            holders=job.holders,
            at=at,
        )
    ]


def members_of(assignment: HopAssignment) -> Sequence[str]:
    """Return the workers of an assignment, in the order of their ranks."""
    return [worker for worker, _ in assignment.group] or [assignment.worker]


def tell_done(watch: Watch, assignment: HopAssignment, message: Message, now: float) -> None:
    """Tell what an order's hops have come to; those that were done together one after the other."""
    objectives = [row.get("objective") for row in message.rows] or [None]
    if assignment.fused:
        watch.hops_done(message.worker, now, [row["total_s"] for row in message.rows], objectives)
    else:
        watch.hop_done(message.worker, now, objectives[0])


@dataclass(slots=True)
class WorkerSlot:
    """A worker of the pool."""

    thread: WorkerThread
    round: OrderRound | None = None
    retiring: bool = False
    is_cancelled: bool = False  # it may hold a cancel that came too late for its hop
    broken: MmdbError | None = None
    sessions: int = 0  # that it has had

    @property
    def worker(self) -> PoolWorker:
        """The worker itself."""
        return self.thread.worker


class WorkerPool:
    """Workers that come and go.

    Attributes:
        idle: names of those that wait for an order, the longest waiting first.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._inbox: queue.Queue[Message] = queue.Queue()
        self._slots: dict[str, WorkerSlot] = {}
        self._rendezvous: Rendezvous | None = None
        self.idle: list[str] = []

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[WorkerSlot]:
        return iter(self._slots.values())

    @property
    def usable(self) -> int:
        """How many workers there are to give orders to, now or soon."""
        return sum(1 for slot in self if not slot.broken and not slot.retiring)

    @property
    def is_lost(self) -> bool:
        """Whether no worker is left that has a session, or may yet get one."""
        return bool(self._slots) and all(slot.broken for slot in self)

    @property
    def is_settled(self) -> bool:
        """Whether no worker is on its way back."""
        there = (s.broken or s.round is not None or s.worker.name in self.idle for s in self)
        return all(there)

    def find(self, name: str) -> WorkerSlot | None:
        """Return a worker, or None where it was dismissed meanwhile."""
        return self._slots.get(name)

    def next(self, timeout_s: float) -> Message | None:
        """Return what a worker has to say, or None where none says anything in that time."""
        with suppress(queue.Empty):
            return self._inbox.get(timeout=timeout_s)
        return None

    def add(self, worker: PoolWorker) -> None:
        """Take a worker in, and open its session."""
        thread = WorkerThread(worker, self._inbox)
        self._slots[worker.name] = WorkerSlot(thread)
        start_without_signals(thread)
        thread.open()

    def staff(
        self, nodes: Collection[str], workers_on: Callable[[str], Sequence[PoolWorker]]
    ) -> None:
        """Take in new workers for those of some nodes that have none to give orders to."""
        present = {slot.worker.node for slot in self if not slot.broken and not slot.retiring}
        for node in sorted(set(nodes) - present):
            for worker in workers_on(node):
                self.add(worker)

    def welcome(self, slot: WorkerSlot) -> None:
        """A worker has a fresh, warm session."""
        worker = slot.worker
        slot.broken, slot.is_cancelled = None, False
        slot.sessions += 1
        self._watch.worker(worker.name, node=worker.node, device=worker.device)
        self.idle.append(worker.name)

    def break_(self, slot: WorkerSlot, error: MmdbError) -> None:
        """Go on without a worker that gets no session; see `is_lost`."""
        slot.broken = error
        self._watch.worker_gone(slot.worker.name, time.time())

    def dismiss(self, slot: WorkerSlot) -> None:
        """Let a worker go."""
        name = slot.worker.name
        del self._slots[name]
        self.idle = [worker for worker in self.idle if worker != name]
        self._watch.worker_gone(name, time.time())
        slot.thread.stop()

    def start(self, name: str, order: Order, round: OrderRound) -> None:
        """Let an idle worker do an order."""
        self.idle.remove(name)
        slot = self._slots[name]
        slot.round = round
        slot.thread.do(order)

    def cancel(self, job: RunJob) -> None:
        """Break off what workers are doing for a run."""
        for slot in self:
            if slot.round is not None and slot.round.job is job:
                slot.is_cancelled = True
                slot.thread.cancel()

    def must_gather(self, job: RunJob) -> bool:
        """Return whether workers are to stay idle for a run that needs several at once.

        Given to other runs one by one as they become idle, they would never be idle together.
        """
        waits = not job.schedule.finished and not job.schedule.running
        return waits and len(self.idle) < job.schedule.wants <= self.usable

    def meet(self, members: Sequence[str]) -> Sequence[WorkerGroup]:
        """Return the places of a group's members; the same as before where they stayed."""
        if self._rendezvous is None:
            self._rendezvous = Rendezvous(os.environ.get("MMDB_GROUP_HOST", "127.0.0.1"))
        return self._rendezvous.group(self.sessions(members))

    def part(self, sessions: Sequence[str]) -> None:
        """Forget the places of sessions of which one has failed."""
        if self._rendezvous is not None:
            self._rendezvous.part(sessions)

    def sessions(self, members: Sequence[str]) -> list[str]:
        """Return the names of workers' present sessions."""
        return [f"{worker}#{self._slots[worker].sessions}" for worker in members]

    def close(self) -> None:
        """Let all workers go, and wait until they have gone."""
        threads = [slot.thread for slot in self]
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join()
        self._slots.clear()
        if self._rendezvous is not None:
            self._rendezvous.close()
