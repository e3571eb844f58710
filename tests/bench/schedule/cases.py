"""Workloads on which schedules are compared, and a schedule that learns their costs as it goes."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from mmdb.train.schedule import Done, Placement, Ready, RunSchedule, Workload, begin
from mmdb.train.schedule.simulate import Seconds, lower_bound

EPOCHS, NOISE = 5, 0.05
#: Share of the candidates of a mixed case that cost more, and how much more.
DEAR_SHARE, DEAR = 0.2, 8.0


@dataclass(frozen=True, slots=True)
class Case:
    """M candidates; W nodes of one worker, each with one partition.

    Candidates cost the same, or mixed: 20 % of them cost 8 times as much.
    """

    candidates: int
    workers: int
    mixed: bool = False

    def __str__(self) -> str:
        return f"{self.candidates} x {self.workers} {'mixed' if self.mixed else 'equal'}"

    @property
    def load(self) -> Workload:
        """The workload of its five epochs, in a free order."""
        return Workload(
            candidates=self.candidates,
            partitions=self.workers,
            epochs=EPOCHS,
            seed=0,
            validates=False,
            free=True,
        )


def costs_of(case: Case, seed: int) -> Seconds:
    """Return (M, P) seconds of a hop; the dear candidates stand at random places."""
    costs = np.ones(case.candidates)
    if case.mixed:
        costs[: max(1, round(DEAR_SHARE * case.candidates))] = DEAR
        np.random.default_rng(seed).shuffle(costs)
    return np.repeat(costs[:, None], case.workers, axis=1)


def nodes_of(workers: int) -> tuple[dict[str, int], Placement]:
    """Return nodes of one worker each, with one partition each."""
    names = [f"n{k}" for k in range(workers)]
    return dict.fromkeys(names, 1), {k: frozenset({name}) for k, name in enumerate(names)}


def learn(case: Case, seed: int) -> float:
    """Return makespan / lower bound of a schedule that knows no cost before it has measured it."""
    slots, placement = nodes_of(case.workers)
    schedule = begin(case.load, placement=placement)
    expected, source = costs_of(case, seed), np.random.default_rng(seed)
    work, now = np.zeros_like(expected), 0.0
    ends: list[tuple[float, str, float]] = []
    idle = enlist(schedule, slots)
    while True:
        if schedule.stale:
            schedule.replan()
        for assignment in schedule.assign(list(idle)):
            hop = assignment.hop
            seconds = expected[hop.candidate, hop.part] * np.exp(source.normal(0.0, NOISE))
            work[hop.candidate, hop.part] += seconds
            heapq.heappush(ends, (now + seconds, assignment.worker, seconds))
            del idle[assignment.worker]
        if not ends:
            return float(now / lower_bound(work, slots, placement))
        now, worker, seconds = heapq.heappop(ends)
        schedule.take(Done(worker, seconds))
        idle[worker] = None


def enlist(schedule: RunSchedule, slots: dict[str, int]) -> dict[str, None]:
    """Tell a schedule of all workers, and return them as the ones that are idle."""
    workers = {f"{node}.{k}": node for node, count in slots.items() for k in range(count)}
    for worker, node in workers.items():
        schedule.take(Ready(worker, node))
    return dict.fromkeys(workers)
