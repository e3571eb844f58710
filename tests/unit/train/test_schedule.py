"""The invariants of the schedule, over random sequences of events and in simulated time."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from mmdb.train.schedule import (
    MAX_FAILURES,
    MAX_LOSSES,
    Assignment,
    Done,
    Event,
    Failed,
    Hop,
    Lost,
    Progress,
    Ready,
    Schedule,
    Workload,
    begin,
    next_part,
    remaining_s,
    step,
)
from mmdb.train.seeds import VALIDATION, visit_order


def workload_of(source: random.Random) -> Workload:
    return Workload(
        candidates=source.randint(1, 6),
        partitions=source.randint(1, 5),
        epochs=source.randint(1, 3),
        seed=source.randint(0, 1000),
        validates=source.random() < 0.7,
        free=source.random() < 0.4,
    )


@dataclass
class Run:
    """Feeds a schedule with events, and checks at each that no rule is broken."""

    schedule: Schedule
    workers: list[str]
    source: random.Random
    done: list[Hop] = field(default_factory=list)
    down: set[str] = field(default_factory=set)

    def feed(self, event: Event) -> None:
        before = self.schedule
        hop = before.running.get(event.worker)
        self.schedule, started = step(before, event)
        if isinstance(event, Done) and hop is not None:
            self.done.append(hop)
        for assignment in started:
            self.check_start(before, event, assignment)
        running = self.schedule.running
        assert len({hop.candidate for hop in running.values()}) == len(running)
        assert not set(running) & set(self.schedule.idle)
        assert not set(running) & self.down and not set(self.schedule.idle) & self.down
        busy = {hop.candidate for hop in running.values()}
        waiting = [
            c
            for c in range(self.schedule.workload.candidates)
            if not self.schedule.ended(c) and c not in busy
        ]
        idle = self.schedule.idle
        for c in waiting:  # nobody waits while there is work, unless another holds the state
            progress = self.schedule.progress[c]
            assert not idle or (not progress.published and progress.home not in (None, *idle))

    def check_start(self, before: Schedule, event: Event, assignment: Assignment) -> None:
        assert assignment.worker == event.worker or assignment.worker in before.idle
        hop, load = assignment.hop, before.workload
        progress, left = (s.progress[hop.candidate] for s in (self.schedule, before))
        # A state that no other worker finds stays where it is, until its session is gone.
        gone = isinstance(event, Failed | Lost) and left.home == event.worker
        done = isinstance(event, Done) and before.running[event.worker].candidate == hop.candidate
        assert left.published or gone or done or left.home in (None, assignment.worker)
        assert hop.epoch == progress.epoch and hop.part not in progress.visited
        if hop.part == VALIDATION:
            assert len(progress.visited) == load.partitions
        elif not load.free:
            order = visit_order(load.seed, hop.candidate, hop.epoch, load.partitions)
            assert hop.part == order[len(progress.visited)]

    def come_up(self, worker: str) -> None:
        self.down.discard(worker)
        self.feed(Ready(worker))

    def go_down(self, event: Failed | Lost) -> None:
        self.down.add(event.worker)
        self.feed(event)

    def until_finished(self, trouble: float = 0.0) -> None:
        for _ in range(20_000):
            if self.schedule.finished:
                return
            worker = self.source.choice(self.workers)
            if worker in self.down:
                self.come_up(worker)
            elif self.source.random() < trouble:
                self.go_down(self.bad_event(worker))
            elif worker in self.schedule.running:
                self.feed(Done(worker, self.source.uniform(0.1, 2)))
        raise AssertionError("The schedule does not end.")

    def bad_event(self, worker: str) -> Failed | Lost:
        kind = self.source.random()
        if worker in self.schedule.running and kind < 0.2:
            return Failed(worker, final=kind < 0.05)
        return Lost(worker, bystander=kind < 0.6)


def start(source: random.Random, load: Workload | None = None) -> Run:
    workers = [f"w{k}" for k in range(source.randint(1, 4))]
    load = load or workload_of(source)
    return Run(begin(load), workers, source, down=set(workers))


def wanted(load: Workload, candidate: int) -> Counter[tuple[int, int]]:
    parts = [*range(load.partitions), *([VALIDATION] if load.validates else [])]
    return Counter((epoch, part) for epoch in range(load.epochs) for part in parts)


def visits(done: list[Hop], candidate: int) -> Counter[tuple[int, int]]:
    return Counter((h.epoch, h.part) for h in done if h.candidate == candidate)


@pytest.mark.parametrize("seed", range(60))
def test_every_candidate_visits_every_partition_exactly_once_an_epoch(seed: int) -> None:
    run = start(random.Random(seed))
    run.until_finished()
    load = run.schedule.workload
    for candidate in range(load.candidates):
        assert visits(run.done, candidate) == wanted(load, candidate)
        epochs = [h.epoch for h in run.done if h.candidate == candidate]
        assert epochs == sorted(epochs)
    assert run.schedule.running == {}
    assert [remaining_s(run.schedule, c) for c in range(load.candidates)] == [0] * load.candidates


@pytest.mark.parametrize("seed", range(60))
def test_sessions_that_fail_and_break_lose_no_hop_and_repeat_none(seed: int) -> None:
    run = start(random.Random(seed))
    run.until_finished(trouble=0.3)
    load = run.schedule.workload
    for candidate, progress in enumerate(run.schedule.progress):
        found = visits(run.done, candidate)
        assert not found - wanted(load, candidate)  # none twice
        if not progress.closed:
            assert found == wanted(load, candidate)


@pytest.mark.parametrize("seed", range(40))
def test_a_run_resumed_from_its_progress_does_the_rest_and_nothing_else(seed: int) -> None:
    source = random.Random(seed)
    run = start(source)
    load = run.schedule.workload
    for _ in range(source.randint(0, 30)):
        worker = source.choice(run.workers)
        if worker in run.down:
            run.come_up(worker)
        elif worker in run.schedule.running:
            run.feed(Done(worker, 1.0))
    kept = {
        c: Progress(epoch=p.epoch, visited=p.visited, closed=p.closed)
        for c, p in enumerate(run.schedule.progress)
    }
    again = Run(begin(load, kept), run.workers, source, down=set(run.workers))
    again.until_finished()
    for candidate in range(load.candidates):
        both = visits(run.done, candidate) + visits(again.done, candidate)
        assert both == wanted(load, candidate)


def one(candidates: int = 1, partitions: int = 3, epochs: int = 1) -> Schedule:
    load = Workload(
        candidates=candidates, partitions=partitions, epochs=epochs, seed=0, validates=False
    )
    return step(begin(load), Ready("w"))[0]


def test_a_hop_that_raised_is_tried_again_and_then_its_candidate_is_closed() -> None:
    schedule = one(candidates=2)
    first = schedule.running["w"]
    for tries in range(1, MAX_FAILURES + 1):
        schedule, started = step(schedule, Failed("w", final=False))
        assert started == () and schedule.running == {} and schedule.idle == ()
        assert schedule.progress[first.candidate].failures == tries
        closed = tries == MAX_FAILURES
        assert schedule.progress[first.candidate].closed == closed
        schedule, (assignment,) = step(schedule, Ready("w"))
        assert (assignment.hop.candidate == first.candidate) != closed


def test_an_error_that_no_second_try_can_mend_closes_its_candidate_at_once() -> None:
    schedule, _ = step(one(), Failed("w", final=True))
    assert schedule.progress[0].closed and schedule.finished


def test_a_success_forgets_the_failures_before_it() -> None:
    schedule = one()
    for event in (Failed("w", final=False), Ready("w"), Done("w", 1.0)):
        schedule, _ = step(schedule, event)
    assert schedule.progress[0].failures == 0
    schedule, _ = step(schedule, Failed("w", final=False))
    assert not schedule.progress[0].closed


def test_a_lost_session_counts_against_its_candidate_unless_it_was_a_bystander() -> None:
    schedule = one()
    for _ in range(3 * MAX_LOSSES):
        for event in (Lost("w", bystander=True), Ready("w")):
            schedule, _ = step(schedule, event)
    assert schedule.progress[0].losses == 0
    for losses in range(1, MAX_LOSSES + 1):
        assert not schedule.progress[0].closed
        schedule, _ = step(schedule, Lost("w"))
        assert schedule.progress[0].losses == losses
        schedule, _ = step(schedule, Ready("w"))
    assert schedule.progress[0].closed and schedule.finished


def test_a_lost_idle_session_costs_nobody_anything() -> None:
    schedule = one()
    schedule, _ = step(schedule, Ready("idle"))
    schedule, started = step(schedule, Lost("idle"))
    assert started == () and schedule.idle == () and schedule.progress[0].losses == 0
    assert "w" in schedule.running


def test_a_session_that_says_twice_that_it_is_ready_is_one_session() -> None:
    schedule, _ = step(one(), Ready("x"))
    schedule, _ = step(schedule, Ready("x"))
    assert schedule.idle == ("x",)


def test_a_free_order_prefers_partitions_that_the_worker_has_mapped() -> None:
    load = Workload(candidates=1, partitions=4, epochs=1, seed=0, validates=True, free=True)
    order = visit_order(0, 0, 0, 4)
    fixed = replace(load, free=False)
    for part in range(4):
        warm = frozenset([part])
        assert next_part(load, 0, Progress(), warm) == part
        assert next_part(fixed, 0, Progress(), warm) == order[0]
    assert next_part(load, 0, Progress(visited=order), frozenset([1])) == VALIDATION
    assert next_part(load, 0, Progress(visited=(2,)), frozenset([2])) != 2


# -- simulated time -----------------------------------------------------------


def makespan(load: Workload, seconds: list[float], workers: int) -> float:
    """Return when the last hop ends, where a hop of candidate c takes `seconds[c]`."""
    schedule, now = begin(load), 0.0
    ends: list[tuple[float, int, str]] = []

    def run(started: tuple[Assignment, ...]) -> None:
        for assignment in started:
            took = seconds[assignment.hop.candidate]
            heapq.heappush(ends, (now + took, len(ends), assignment.worker))

    for k in range(workers):
        schedule, started = step(schedule, Ready(f"w{k}"))
        run(started)
    while ends:
        now, _, worker = heapq.heappop(ends)
        took = seconds[schedule.running[worker].candidate]
        schedule, started = step(schedule, Done(worker, took))
        run(started)
    assert schedule.finished
    return now


@pytest.mark.parametrize("workers", [2, 3, 8])
@pytest.mark.parametrize("costs", ["equal", "two kinds", "spread", "drawn"])
@pytest.mark.parametrize("seed", range(3))
def test_the_makespan_is_within_five_percent_of_the_lower_bound(
    workers: int, costs: str, seed: int
) -> None:
    source = random.Random(seed)
    candidates = 2 * workers + seed
    seconds = {
        "equal": [1.0] * candidates,
        "two kinds": [1.0 + 2 * (c % 2) for c in range(candidates)],
        "spread": [1.0 + 3 * c / candidates for c in range(candidates)],
        "drawn": [source.uniform(0.5, 2.0) for _ in range(candidates)],
    }[costs]
    load = Workload(candidates=candidates, partitions=4, epochs=10, seed=seed, validates=True)
    work = [s * 10 * 5 for s in seconds]
    bound = max(sum(work) / workers, max(work))
    assert makespan(load, seconds, workers) <= 1.05 * bound
