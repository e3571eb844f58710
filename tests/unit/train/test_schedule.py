"""The invariants of the schedule, over random sequences of everything that may happen to it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from mmdb.train.schedule import (
    MAX_FAILURES,
    MAX_LOSSES,
    Done,
    Failed,
    HopAssignment,
    Lost,
    Placement,
    Policy,
    Ready,
    RunSchedule,
    ScheduledHop,
    TrainingProgress,
    Workload,
    begin,
)
from mmdb.train.values.seeds import MERGE, VALIDATION, visit_order


def at_rest(schedule: RunSchedule, candidate: int) -> bool:
    """Return whether a candidate has nothing to do and no hop running."""
    queue = schedule._queue
    return not queue.active(candidate) and not queue.doing[candidate]


def workload_of(source: random.Random, strategy: str = "mop") -> Workload:
    return Workload(
        candidates=source.randint(1, 6),
        partitions=source.randint(1, 5),
        epochs=source.randint(1, 3),
        seed=source.randint(0, 1000),
        validates=source.random() < 0.7,
        free=source.random() < 0.5,
        strategy=strategy,
        group=source.randint(2, 3) if strategy == "data_parallel" else 1,
    )


def placement_of(source: random.Random, load: Workload, nodes: int) -> dict[int, frozenset[str]]:
    """Put most partitions on one node or on several, in such a way that all nodes are needed."""
    names = [f"n{k}" for k in range(nodes)]
    return {
        part: frozenset(source.sample(names, source.randint(1, nodes)))
        for part in range(load.partitions)
        if source.random() < 0.8
    }


@dataclass
class Pool:
    """Workers that a schedule shares with others: they come, go, and are lent out."""

    schedule: RunSchedule
    workers: dict[str, str]  # worker -> node
    source: random.Random
    done: list[ScheduledHop] = field(default_factory=list)
    up: set[str] = field(default_factory=set)
    lent: set[str] = field(default_factory=set)

    def offer(self) -> None:
        busy = self.schedule.running
        idle = [w for w in self.workers if w in self.up and w not in busy and w not in self.lent]
        before = self.schedule.progress[:]
        for assignment in self.schedule.assign(idle):
            self.check(assignment, idle)
            left = before[assignment.hop.candidate]
            assert left.published or left.home in (None, assignment.worker)
        self.check_rest(idle)

    def check(self, assignment: HopAssignment, idle: list[str]) -> None:
        schedule, hop = self.schedule, assignment.hop
        members = assignment.group or ((assignment.worker, hop.part),)
        assert {w for w, _ in members} <= set(idle)
        assert members[0] == (assignment.worker, hop.part)
        progress, load = schedule.progress[hop.candidate], schedule.workload
        assert not progress.closed and progress.epoch == hop.epoch < schedule.goal(hop.candidate)
        for worker, part in members:
            assert part not in progress.visited
            assert schedule.running[worker] == ScheduledHop(hop.candidate, hop.epoch, part)
            nodes = schedule.placement.get(part)
            assert nodes is None or self.workers[worker] in nodes
        trained = [part for part in progress.visited if part >= 0]
        order = visit_order(load.seed, hop.candidate, hop.epoch, load.partitions)
        if hop.part in (VALIDATION, MERGE):
            assert len(trained) == load.partitions
            assert hop.part == MERGE or not load.merges or MERGE in progress.visited
        elif not load.free and not load.merges:
            parts = tuple(part for _, part in members)
            assert parts == order[len(trained) : len(trained) + len(parts)]

    def check_rest(self, idle: list[str]) -> None:
        """No candidate is in two places, and nobody is idle who could do something."""
        schedule, load = self.schedule, self.schedule.workload
        running = schedule.running
        places = Counter(hop.candidate for hop in running.values())
        assert len(set(running.values())) == len(running)
        if not load.merges:
            assert max(places.values(), default=0) <= load.group
        if load.strategy != "mop" or not load.free:
            return
        for worker in set(idle) - set(running):
            for c, progress in enumerate(schedule.progress):
                if at_rest(schedule, c) or places[c] or progress.home not in (None, worker):
                    continue
                assert progress.published or progress.home in (None, worker)
                left = set(range(load.partitions)) - set(progress.visited) or {VALIDATION}
                if schedule.policy != "rotation":
                    here = {p for p in left if self.finds(worker, p)}
                    assert not here, f"{worker} is idle, and candidate {c} could visit {here}"

    def finds(self, worker: str, part: int) -> bool:
        nodes = self.schedule.placement.get(part)
        return nodes is None or self.workers[worker] in nodes

    def finish(self, worker: str) -> None:
        hop = self.schedule.running[worker]
        members = [w for w, h in self.schedule.running.items() if h.candidate == hop.candidate]
        if self.schedule.workload.group > 1:
            self.done += [self.schedule.running[w] for w in members]
        else:
            self.done.append(hop)
        before = len(self.schedule.running)
        self.schedule.take(Done(worker, self.source.uniform(0.1, 2)))
        if self.schedule.workload.group > 1 and len(self.schedule.running) == before:
            del self.done[-len(members) :]  # not said by rank 0: nothing ended

    def until_finished(
        self, trouble: float = 0.0, ask: Callable[[], None] = lambda: None, steps: int = 30_000
    ) -> None:
        for _ in range(steps):
            if self.schedule.finished:
                return
            worker = self.source.choice([*self.workers])
            ask()
            if worker not in self.up:
                self.up.add(worker)
                self.schedule.take(Ready(worker, self.workers[worker]))
            elif self.source.random() < trouble:
                self.break_down(worker)
            elif worker in self.schedule.running and self.leads(worker):
                self.finish(worker)
            elif self.source.random() < 0.1:
                self.lent ^= {worker}
            self.offer()
        raise AssertionError("The schedule does not end.")

    def leads(self, worker: str) -> bool:
        """Return whether a worker is the one that speaks for its group."""
        group = self.schedule._groups.get(worker)
        return group is None or group[0][0] == worker

    def break_down(self, worker: str) -> None:
        kind = self.source.random()
        self.up.discard(worker)
        if worker in self.schedule.running and kind < 0.2 and self.leads(worker):
            self.schedule.take(Failed(worker, final=kind < 0.05))
        elif worker not in self.schedule.running or self.leads(worker):
            self.schedule.take(Lost(worker, bystander=kind < 0.6))
        else:  # its group's first rank speaks for it
            self.schedule.take(Lost(worker, bystander=True))


def pool_of(
    source: random.Random,
    load: Workload,
    placement: Placement | None = None,
    nodes: int = 1,
    policy: Policy | None = None,
) -> Pool:
    count = max(source.randint(1, 5), nodes, 3 if load.group > 1 else 1)
    workers = {f"w{k}": f"n{k % nodes}" for k in range(count)}
    return Pool(begin(load, placement=placement, policy=policy), workers, source)


def wanted(load: Workload, epochs: int) -> Counter[tuple[int, int]]:
    parts = [*range(load.partitions), *[MERGE] * load.merges, *[VALIDATION] * load.validates]
    return Counter((epoch, part) for epoch in range(epochs) for part in parts)


def visits(done: list[ScheduledHop], candidate: int) -> Counter[tuple[int, int]]:
    return Counter((h.epoch, h.part) for h in done if h.candidate == candidate)


STRATEGIES = ("mop", "task", "model_average", "data_parallel")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(25))
def test_every_candidate_visits_every_partition_exactly_once_an_epoch(
    seed: int, strategy: str
) -> None:
    source = random.Random(seed)
    pool = pool_of(source, workload_of(source, strategy))
    pool.until_finished()
    load = pool.schedule.workload
    for candidate in range(load.candidates):
        assert visits(pool.done, candidate) == wanted(load, load.epochs)
        epochs = [h.epoch for h in pool.done if h.candidate == candidate]
        assert epochs == sorted(epochs)
        assert pool.schedule.remaining_s(candidate) == 0
    assert pool.schedule.running == {} and pool.schedule.lower_bound_s() == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(25))
def test_sessions_that_fail_and_break_lose_no_hop_and_repeat_none(seed: int, strategy: str) -> None:
    source = random.Random(seed)
    pool = pool_of(source, workload_of(source, strategy))
    pool.until_finished(trouble=0.2)
    load = pool.schedule.workload
    for candidate, progress in enumerate(pool.schedule.progress):
        found = visits(pool.done, candidate)
        assert not found - wanted(load, load.epochs)  # none twice
        if not progress.closed:
            assert found == wanted(load, load.epochs)


@pytest.mark.parametrize("policy", ["rotation", "longest", "affinity", None])
@pytest.mark.parametrize("seed", range(20))
def test_hops_run_where_their_partition_is(seed: int, policy: Policy | None) -> None:
    source = random.Random(seed)
    load, nodes = workload_of(source), source.randint(2, 4)
    pool = pool_of(source, load, placement_of(source, load, nodes), nodes, policy)
    pool.until_finished(trouble=0.1)
    for candidate, progress in enumerate(pool.schedule.progress):
        if not progress.closed:
            assert visits(pool.done, candidate) == wanted(load, load.epochs)
    assert pool.schedule.unreachable() == () or len(pool.up) < len(pool.workers)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(20))
def test_goals_stops_and_newcomers_are_heeded_while_hops_run(seed: int, strategy: str) -> None:
    source = random.Random(seed)
    pool = pool_of(source, workload_of(source, strategy))
    schedule, load = pool.schedule, pool.schedule.workload
    asked = 0

    def ask() -> None:
        nonlocal asked
        if asked > 40 or source.random() > 0.2:
            return
        asked += 1
        candidate = source.randrange(len(schedule.progress))
        before = dict(schedule.running)
        kind = source.random()
        if kind < 0.3:
            schedule.set_goal(candidate, source.randint(0, 4))
        elif kind < 0.5:
            schedule.close(candidate)
        elif kind < 0.7:
            schedule.reopen(candidate)
        elif len(schedule.progress) < 10:
            goal = source.randint(0, 3)
            assert schedule.add(TrainingProgress(), goal) == len(schedule.progress) - 1
            assert schedule.goal(len(schedule.progress) - 1) == goal
        if source.random() < 0.1 and strategy == "mop":
            schedule._core.follow(source.choice(("rotation", "longest", "affinity")))
        assert schedule.running == before  # nothing is pre-empted

    pool.until_finished(trouble=0.05, ask=ask)
    for candidate, progress in enumerate(schedule.progress):
        found = visits(pool.done, candidate)
        assert max(found.values(), default=0) <= 1
        assert at_rest(schedule, candidate)
        if not progress.closed:
            assert progress.epoch >= schedule.goal(candidate)
        assert {v for v in found if v[0] < progress.epoch} == set(wanted(load, progress.epoch))
        assert {p for e, p in found if e == progress.epoch} == set(progress.visited)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(15))
def test_a_run_resumed_from_its_progress_does_the_rest_and_nothing_else(
    seed: int, strategy: str
) -> None:
    source = random.Random(seed)
    pool = pool_of(source, workload_of(source, strategy))
    load = pool.schedule.workload
    try:
        pool.until_finished(steps=source.randint(1, 60))
    except AssertionError as error:
        assert "does not end" in str(error)
    kept = {
        c: TrainingProgress(epoch=p.epoch, visited=p.visited, closed=p.closed, hop_s=p.hop_s)
        for c, p in enumerate(pool.schedule.progress)
    }
    again = Pool(begin(load, kept), pool.workers, source)
    again.until_finished()
    for candidate in range(load.candidates):
        both = visits(pool.done, candidate) + visits(again.done, candidate)
        assert both == wanted(load, load.epochs)


@pytest.mark.parametrize("seed", range(10))
def test_the_same_events_give_the_same_assignments(seed: int) -> None:
    def hops() -> list[ScheduledHop]:
        source = random.Random(seed)
        pool = pool_of(source, workload_of(source))
        pool.until_finished(trouble=0.1)
        return pool.done

    assert hops() == hops()


# -- single rules -------------------------------------------------------------


def one(candidates: int = 1, partitions: int = 3, epochs: int = 1) -> RunSchedule:
    load = Workload(
        candidates=candidates, partitions=partitions, epochs=epochs, seed=0, validates=False
    )
    schedule = begin(load)
    schedule.take(Ready("w"))
    assert [a.worker for a in schedule.assign(["w"])] == ["w"]
    return schedule


def test_a_hop_that_raised_is_tried_again_and_then_its_candidate_is_closed() -> None:
    schedule = one(candidates=2)
    first = schedule.running["w"].candidate
    for tries in range(1, MAX_FAILURES + 1):
        over = tries == MAX_FAILURES
        assert schedule.take(Failed("w", final=False)) == ((first,) if over else ())
        assert schedule.running == {}
        assert schedule.progress[first].failures == tries
        assert schedule.progress[first].closed == over
        schedule.take(Ready("w"))
        (assignment,) = schedule.assign(["w"])
        assert (assignment.hop.candidate == first) != over


def test_an_error_that_no_second_try_can_mend_closes_its_candidate_at_once() -> None:
    schedule = one()
    assert schedule.take(Failed("w", final=True)) == (0,)
    assert schedule.progress[0].closed and schedule.finished


def test_a_success_forgets_the_failures_before_it() -> None:
    schedule = one()
    schedule.take(Failed("w", final=False))
    schedule.take(Ready("w"))
    schedule.assign(["w"])
    schedule.take(Done("w", 1.0))
    assert schedule.progress[0].failures == 0
    schedule.assign(["w"])
    assert schedule.take(Failed("w", final=False)) == ()


def test_a_lost_session_counts_against_its_candidate_unless_it_was_a_bystander() -> None:
    schedule = one()

    def lose(bystander: bool) -> tuple[int, ...]:
        closed = schedule.take(Lost("w", bystander=bystander))
        schedule.take(Ready("w"))
        schedule.assign(["w"])
        return closed

    assert [lose(True) for _ in range(3 * MAX_LOSSES)] == [()] * 3 * MAX_LOSSES
    assert schedule.progress[0].losses == 0
    assert [lose(False) for _ in range(MAX_LOSSES)] == [()] * (MAX_LOSSES - 1) + [(0,)]
    assert schedule.progress[0].closed and schedule.finished


def test_a_lost_idle_session_costs_nobody_anything() -> None:
    schedule = one()
    schedule.take(Ready("idle"))
    assert schedule.assign(["idle"]) == []
    assert schedule.take(Lost("idle")) == ()
    assert schedule.progress[0].losses == 0 and set(schedule.running) == {"w"}


def test_only_workers_that_are_offered_get_something_to_do() -> None:
    schedule = one(candidates=3)
    schedule.take(Ready("x"))
    schedule.take(Ready("y"))
    assert [a.worker for a in schedule.assign(["y"])] == ["y"]
    assert schedule.assign([]) == []
    assert [a.worker for a in schedule.assign(["x"])] == ["x"]


def over(schedule: RunSchedule) -> bool:
    return schedule.finished


def test_a_candidate_rests_at_its_goal_and_frees_its_worker_at_once() -> None:
    schedule = one(candidates=2, partitions=1, epochs=1)
    first = schedule.running["w"].candidate
    schedule.take(Done("w", 1.0))
    assert at_rest(schedule, first)
    (other,) = schedule.assign(["w"])
    assert other.hop.candidate != first
    schedule.take(Done("w", 1.0))
    assert over(schedule)
    schedule.set_goal(first, 2)
    assert not over(schedule)
    (more,) = schedule.assign(["w"])
    assert more.hop == ScheduledHop(first, 1, 0)


def test_a_closed_candidate_keeps_what_its_running_hop_does() -> None:
    schedule = one()
    part = schedule.running["w"].part
    schedule.close(0)
    assert not over(schedule)
    schedule.take(Done("w", 1.0))
    assert over(schedule) and schedule.progress[0].visited == (part,)
    assert schedule.assign(["w"]) == []
    schedule.reopen(0)
    (assignment,) = schedule.assign(["w"])
    assert assignment.hop.part == visit_order(0, 0, 0, 3)[1]


def test_a_state_stays_with_its_session_while_there_is_slack() -> None:
    load = Workload(candidates=8, partitions=3, epochs=4, seed=0, validates=True)
    schedule = begin(load)
    for worker in ("a", "b"):
        schedule.take(Ready(worker))
    moves, kept, homes = 0, 0, dict[int, str]()
    while not schedule.finished:
        for assignment in schedule.assign([w for w in ("a", "b") if w not in schedule.running]):
            c = assignment.hop.candidate
            moves += homes.get(c, assignment.worker) != assignment.worker
            homes[c] = assignment.worker
            kept += not assignment.publish
        schedule.take(Done(min(schedule.running), 1.0))
    assert moves <= 8 and kept > 40  # of 128 hops


def test_a_state_is_left_for_others_where_there_is_no_slack() -> None:
    load = Workload(candidates=2, partitions=3, epochs=4, seed=0, validates=True)
    schedule = begin(load)
    for worker in ("a", "b"):
        schedule.take(Ready(worker))
    while not schedule.finished:
        assert all(
            a.publish for a in schedule.assign([w for w in "ab" if w not in schedule.running])
        )
        schedule.take(Done(min(schedule.running), 1.0))


def test_a_state_that_only_its_session_holds_goes_on_there_alone() -> None:
    load = Workload(candidates=9, partitions=2, epochs=9, seed=0, validates=False)
    schedule = begin(load)
    schedule.take(Ready("a"))
    (first,) = schedule.assign(["a"])
    assert not first.publish
    schedule.take(Done("a", 1.0))
    c = first.hop.candidate
    assert schedule.progress[c].home == "a" and not schedule.progress[c].published
    schedule.take(Ready("b"))
    (second,) = schedule.assign(["b"])
    assert second.hop.candidate != c
    schedule.take(Lost("a"))  # now it can be replayed anywhere
    assert schedule.progress[c].home is None
    for other in range(9):
        if other != c:
            schedule.close(other)
    schedule.take(Done("b", 1.0))
    assert [a.hop.candidate for a in schedule.assign(["b"])] == [c]


def test_a_candidate_that_goes_on_goes_where_its_state_is() -> None:
    schedule = one()
    for worker in ("x", "y"):
        schedule.take(Ready(worker))
    for _ in range(3):
        schedule.take(Done("w", 1.0))
        assert {a.worker for a in schedule.assign(["x", "y", "w"])} <= {"w"}
    assert over(schedule) and schedule.assign(["x", "w", "y"]) == []
    schedule.set_goal(0, 2)
    assert [a.worker for a in schedule.assign(["x", "w", "y"])] == ["w"]


def test_an_epoch_that_is_done_when_a_run_is_resumed_is_over() -> None:
    load = Workload(candidates=1, partitions=2, epochs=2, seed=0, validates=True)
    schedule = begin(load, {0: TrainingProgress(visited=(1, 0, VALIDATION))})
    assert schedule.progress[0].epoch == 1 and schedule.progress[0].visited == ()
    schedule.take(Ready("w"))
    (assignment,) = schedule.assign(["w"])
    assert assignment.hop == ScheduledHop(0, 1, visit_order(0, 0, 1, 2)[0])


def test_a_partition_whose_node_has_no_worker_is_named() -> None:
    load = Workload(candidates=1, partitions=2, epochs=1, seed=0, validates=False)
    schedule = begin(load, placement={0: frozenset("x"), 1: frozenset("y")})
    schedule.take(Ready("w", "x"))
    assert schedule.unreachable() == (1,)
    schedule.take(Ready("v", "y"))
    assert schedule.unreachable() == ()
    schedule.take(Lost("w"))
    assert schedule.unreachable() == (0,)


def test_progress_is_a_value_that_does_not_change_later() -> None:
    schedule = one()
    before = schedule.progress[0]
    schedule.take(Done("w", 2.0))
    assert before.visited == () and before.hop_s is None
    assert len(schedule.progress[0].visited) == 1 and schedule.progress[0].hop_s == 2.0
    assert schedule.progress[-1] is schedule.progress[0] and len(schedule.progress) == 1
    assert schedule.remaining_s(0) == pytest.approx(4.0)
