"""The workers of a driver: each in a thread of its own, and who of them is idle."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mmdb.errors import MmdbError
from mmdb.train.driver.job import Job
from mmdb.train.driver.rounds import Round
from mmdb.train.parallel.group import Group
from mmdb.train.parallel.rendezvous import Rendezvous
from mmdb.train.threads import start_without_signals
from mmdb.train.watch import Watch
from mmdb.train.workers.orders import Order
from mmdb.train.workers.worker import Worker
from mmdb.train.workers.worker_threads import Message, WorkerThread


@dataclass(slots=True)
class Slot:
    """A worker of the pool."""

    thread: WorkerThread
    round: Round | None = None
    retiring: bool = False
    is_cancelled: bool = False  # it may hold a cancel that came too late for its hop
    broken: MmdbError | None = None
    sessions: int = 0  # that it has had

    @property
    def worker(self) -> Worker:
        """The worker itself."""
        return self.thread.worker


class Pool:
    """Workers that come and go.

    Attributes:
        idle: names of those that wait for an order, the longest waiting first.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._inbox: queue.Queue[Message] = queue.Queue()
        self._slots: dict[str, Slot] = {}
        self._rendezvous: Rendezvous | None = None
        self.idle: list[str] = []

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Slot]:
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

    def find(self, name: str) -> Slot | None:
        """Return a worker, or None where it was dismissed meanwhile."""
        return self._slots.get(name)

    def next(self, timeout_s: float) -> Message | None:
        """Return what a worker has to say, or None where none says anything in that time."""
        with suppress(queue.Empty):
            return self._inbox.get(timeout=timeout_s)
        return None

    def add(self, worker: Worker) -> None:
        """Take a worker in, and open its session."""
        thread = WorkerThread(worker, self._inbox)
        self._slots[worker.name] = Slot(thread)
        start_without_signals(thread)
        thread.open()

    def staff(self, nodes: Collection[str], workers_on: Callable[[str], Sequence[Worker]]) -> None:
        """Take in new workers for those of some nodes that have none to give orders to."""
        present = {slot.worker.node for slot in self if not slot.broken and not slot.retiring}
        for node in sorted(set(nodes) - present):
            for worker in workers_on(node):
                self.add(worker)

    def welcome(self, slot: Slot) -> None:
        """A worker has a fresh, warm session."""
        worker = slot.worker
        slot.broken, slot.is_cancelled = None, False
        slot.sessions += 1
        self._watch.worker(worker.name, node=worker.node, device=worker.device)
        self.idle.append(worker.name)

    def break_(self, slot: Slot, error: MmdbError) -> None:
        """Go on without a worker that gets no session; see `is_lost`."""
        slot.broken = error
        self._watch.worker_gone(slot.worker.name, time.time())

    def dismiss(self, slot: Slot) -> None:
        """Let a worker go."""
        name = slot.worker.name
        del self._slots[name]
        self.idle = [worker for worker in self.idle if worker != name]
        self._watch.worker_gone(name, time.time())
        slot.thread.stop()

    def start(self, name: str, order: Order, round: Round) -> None:
        """Let an idle worker do an order."""
        self.idle.remove(name)
        slot = self._slots[name]
        slot.round = round
        slot.thread.do(order)

    def cancel(self, job: Job) -> None:
        """Break off what workers are doing for a run."""
        for slot in self:
            if slot.round is not None and slot.round.job is job:
                slot.is_cancelled = True
                slot.thread.cancel()

    def meet(self, members: Sequence[str]) -> Sequence[Group]:
        """Return the places of a group's members; the same as before where they stayed."""
        if self._rendezvous is None:
            self._rendezvous = Rendezvous()
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
