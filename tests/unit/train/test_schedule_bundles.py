"""Candidates of a bundle hop together: the invariants of the schedule hold, and nobody idles."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from mmdb.train.schedule import (
    MAX_FAILURES,
    Done,
    Failed,
    HopAssignment,
    Lost,
    Policy,
    Ready,
    RunSchedule,
    ScheduledHop,
    Workload,
    begin,
)
from mmdb.train.schedule.candidate_queue import MAX_APART
from mmdb.train.values.seeds import VALIDATION
from tests.unit.train.test_schedule import Pool, at_rest, visits, wanted, workload_of


class Bundled(Pool):
    """A pool whose candidates may hop together; `together` counts candidates by hop."""

    together: Counter[int]

    def hopping(self, worker: str) -> list[ScheduledHop]:
        hop = self.schedule.running[worker]
        return [replace(hop, candidate=c) for c in (hop.candidate, *self.fused(worker))]

    def fused(self, worker: str) -> tuple[int, ...]:
        return self.schedule._fused.get(worker, ())

    def check(self, assignment: HopAssignment, idle: list[str]) -> None:
        assert assignment.fused == self.fused(assignment.worker)
        self.together[len(assignment.candidates)] += 1
        assert len(assignment.candidates) <= self.schedule._fuse
        for c in assignment.candidates:
            alone = replace(assignment, hop=replace(assignment.hop, candidate=c))
            running = self.schedule.running | {assignment.worker: alone.hop}
            self.schedule.running, kept = running, self.schedule.running
            super().check(alone, idle)
            self.schedule.running = kept
            home = self.schedule.progress[c].home
            assert self.schedule.workload.strategy != "task" or home in (None, assignment.worker)

    def check_rest(self, idle: list[str]) -> None:
        schedule = self.schedule
        hops = [hop for worker in schedule.running for hop in self.hopping(worker)]
        places = Counter(hop.candidate for hop in hops)
        assert max(places.values(), default=0) <= 1
        if schedule.workload.strategy != "mop" or not schedule.workload.free:
            return
        for c, progress in enumerate(schedule.progress):
            if not at_rest(schedule, c) and not places[c]:
                for worker in set(idle) - set(schedule.running):
                    assert progress.home not in (None, worker) and not progress.published

    def finish(self, worker: str) -> None:
        self.done += self.hopping(worker)
        self.schedule.take(Done(worker, self.source.uniform(0.1, 2)))


def bundled(
    source: random.Random,
    load: Workload,
    bundles: int,
    fuse: int = 8,
    policy: Policy | None = None,
) -> Bundled:
    """Return a pool in which all candidates but about every fifth are in some bundle."""
    schedule = begin(load, policy=policy, fuse=fuse)
    for c in range(load.candidates):
        if source.random() < 0.8:
            schedule.join(c, source.randrange(bundles))
    workers = {f"w{k}": "" for k in range(source.randint(1, 4))}
    pool = Bundled(schedule, workers, source)
    pool.together = Counter()
    return pool


def load_of(source: random.Random, strategy: str = "mop") -> Workload:
    return replace(workload_of(source, strategy), candidates=source.randint(2, 12))


@pytest.mark.parametrize("policy", ["rotation", "longest", "affinity", None])
@pytest.mark.parametrize("strategy", ["mop", "task"])
@pytest.mark.parametrize("seed", range(12))
def test_every_candidate_visits_every_partition_exactly_once_an_epoch(
    seed: int, strategy: str, policy: Policy | None
) -> None:
    source = random.Random(seed)
    load = load_of(source, strategy)
    pool = bundled(source, load, bundles=3, policy=policy)
    pool.until_finished()
    for candidate in range(load.candidates):
        assert visits(pool.done, candidate) == wanted(load, load.epochs)
        assert pool.schedule.remaining_s(candidate) == 0
    assert not pool.schedule.running and not pool.schedule._fused


@pytest.mark.parametrize("strategy", ["mop", "task"])
@pytest.mark.parametrize("seed", range(25))
def test_sessions_that_fail_and_break_lose_no_hop_and_repeat_none(seed: int, strategy: str) -> None:
    source = random.Random(seed)
    load = load_of(source, strategy)
    pool = bundled(source, load, bundles=2)
    pool.until_finished(trouble=0.2)
    for candidate, progress in enumerate(pool.schedule.progress):
        found = visits(pool.done, candidate)
        assert not found - wanted(load, load.epochs)
        if not progress.closed:
            assert found == wanted(load, load.epochs)


@pytest.mark.parametrize("seed", range(15))
def test_goals_stops_and_newcomers_to_a_bundle_are_heeded(seed: int) -> None:
    source = random.Random(seed)
    load = load_of(source)
    pool = bundled(source, load, bundles=2)
    schedule, asked = pool.schedule, iter(range(40))

    def ask() -> None:
        if source.random() > 0.3 or next(asked, None) is None:
            return
        candidate, kind = source.randrange(len(schedule.progress)), source.random()
        if kind < 0.3:
            schedule.set_goal(candidate, source.randint(0, 4))
        elif kind < 0.5:
            schedule.close(candidate)
        elif kind < 0.7:
            schedule.reopen(candidate)
        else:
            schedule.join(candidate, source.randrange(3))

    pool.until_finished(trouble=0.05, ask=ask)
    for candidate, progress in enumerate(schedule.progress):
        found = visits(pool.done, candidate)
        assert max(found.values(), default=0) <= 1
        assert {v for v in found if v[0] < progress.epoch} == set(wanted(load, progress.epoch))
        assert at_rest(schedule, candidate)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_events_give_the_same_assignments(seed: int) -> None:
    def hops() -> list[ScheduledHop]:
        source = random.Random(seed)
        pool = bundled(source, load_of(source), bundles=2)
        pool.until_finished(trouble=0.1)
        return pool.done

    assert hops() == hops()


# -- single rules -------------------------------------------------------------


def schedule_of(
    candidates: int,
    *,
    partitions: int = 4,
    workers: int = 1,
    epochs: int = 2,
    free: bool = True,
    fuse: int = 8,
    bundles: int = 1,
    strategy: str = "mop",
) -> RunSchedule:
    """Return a schedule whose candidates are dealt out to bundles in turn."""
    load = Workload(
        candidates=candidates,
        partitions=partitions,
        epochs=epochs,
        seed=0,
        validates=True,
        free=free,
        strategy=strategy,
        group=2 if strategy == "data_parallel" else 1,
    )
    schedule = begin(load, fuse=fuse)
    for c in range(candidates):
        schedule.join(c, c % bundles)
    for k in range(workers):
        schedule.take(Ready(f"w{k}"))
    return schedule


def run(schedule: RunSchedule, workers: int = 1) -> Iterator[HopAssignment]:
    """Do all hops, in the order in which they were started, and yield them."""
    names = [f"w{k}" for k in range(workers)]
    while not schedule.finished:
        yield from schedule.assign([w for w in names if w not in schedule.running], workers)
        schedule.take(Done(next(iter(schedule.running)), 1.0))


def test_a_bundle_visits_each_partition_as_one_where_the_order_is_free() -> None:
    hops = list(run(schedule_of(8)))
    assert [len(a.candidates) for a in hops] == [8] * 5 * 2
    assert [a.hop.part == VALIDATION for a in hops] == [False, False, False, False, True] * 2


@pytest.mark.parametrize(("partitions", "each"), [(8, 8), (4, 8), (4, 4), (3, 2)])
def test_in_a_fixed_order_a_bundle_is_picked_up_on_the_way_round(
    partitions: int, each: int
) -> None:
    """Each candidate begins with a partition of its own: less than twice round is enough for all.

    Those who are ahead wait with their validation, so that it is one for all of them.
    """
    schedule = schedule_of(4 * each, partitions=partitions, bundles=4, epochs=3, free=False)
    orders: Counter[tuple[int, int, bool]] = Counter()
    for assignment in run(schedule):
        hop = assignment.hop
        orders[hop.candidate % 4, hop.epoch, hop.part == VALIDATION] += 1
    for bundle in range(4):
        for epoch in range(3):
            assert orders[bundle, epoch, True] == 1
            assert partitions <= orders[bundle, epoch, False] < 2 * partitions


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_several_workers_leave_bundles_whole_for_the_most_part(workers: int) -> None:
    schedule = schedule_of(32, workers=workers, bundles=4, epochs=3, free=False)
    assert len(list(run(schedule, workers))) <= 32 * 5 * 3 / 4


def test_no_more_hop_together_than_is_asked() -> None:
    sizes = [len(a.candidates) for a in run(schedule_of(8, fuse=3, epochs=1))]
    assert max(sizes) == 3 and sum(sizes) == 8 * 5
    assert {len(a.candidates) for a in run(schedule_of(8, fuse=1))} == {1}


@pytest.mark.parametrize("strategy", ["model_average", "data_parallel"])
def test_several_workers_at_one_candidate_are_not_for_bundles(strategy: str) -> None:
    schedule = schedule_of(4, strategy=strategy, workers=2)
    assert not schedule.shares
    assert {a.fused for a in run(schedule, workers=2)} == {()}


@pytest.mark.parametrize("strategy", ["mop", "task"])
def test_a_bundle_is_shared_between_the_workers_however_they_come_up(strategy: str) -> None:
    schedule = schedule_of(8, workers=1, strategy=strategy)
    (first,) = schedule.assign(["w0"], 4)  # the others are not up yet
    assert len(first.candidates) == 2
    for k in (1, 2, 3):
        schedule.take(Ready(f"w{k}"))
        (other,) = schedule.assign([f"w{k}"], 4)
        assert len(other.candidates) == 2
    assert schedule.assign([], 4) == []


def test_workers_begin_with_bundles_that_no_other_has_begun() -> None:
    schedule = schedule_of(32, workers=4, bundles=4)
    found = schedule.assign([f"w{k}" for k in range(4)])
    assert sorted(a.hop.candidate % 4 for a in found) == [0, 1, 2, 3]
    assert [len(a.candidates) for a in found] == [8] * 4
    assert all({c % 4 for c in a.candidates} == {a.hop.candidate % 4} for a in found)


def test_a_bundle_stays_with_its_worker() -> None:
    homes: dict[int, set[str]] = {}
    for assignment in run(schedule_of(32, workers=4, bundles=4, epochs=4), workers=4):
        homes.setdefault(assignment.hop.candidate % 4, set()).add(assignment.worker)
        assert len(assignment.candidates) == 8
    assert all(len(workers) == 1 for workers in homes.values())


def test_those_whose_state_the_worker_holds_go_first() -> None:
    schedule = schedule_of(6, workers=2, fuse=3)
    first = {a.worker: a for a in schedule.assign(["w0", "w1"])}
    assert [a.candidates for a in first.values()] == [(0, 2, 3), (1, 4, 5)]
    schedule.take(Done("w1", 1.0))
    schedule.take(Done("w0", 1.0))
    again = {a.worker: a for a in schedule.assign(["w1", "w0"])}
    assert {w: set(a.candidates) for w, a in again.items()} == {
        w: set(a.candidates) for w, a in first.items()
    }


def test_a_hop_together_counts_as_one_hop_of_each() -> None:
    schedule = schedule_of(4)
    (assignment,) = schedule.assign(["w0"])
    assert assignment.candidates == (0, 1, 2, 3)
    schedule.take(Done("w0", 2.0))
    for progress in schedule.progress:
        assert progress.visited == (assignment.hop.part,) and progress.hop_s == 0.5


def test_a_state_of_a_bundle_is_left_for_others_where_one_of_them_may_need_it() -> None:
    schedule = schedule_of(4, workers=2)
    found = schedule.assign(["w0", "w1"])
    assert [len(a.candidates) for a in found] == [2, 2]
    for assignment in found:
        for c in assignment.candidates:
            assert schedule.progress[c].published == assignment.publish


def fail(schedule: RunSchedule, *, final: bool = False) -> tuple[int, ...]:
    """Fail what w0 does; return the candidates that this closed."""
    closed = schedule.take(Failed("w0", final=final))
    schedule.take(Ready("w0"))
    return closed


def test_a_hop_together_that_failed_is_nobodys_fault_and_each_tries_alone() -> None:
    schedule = schedule_of(3, epochs=1)
    (first,) = schedule.assign(["w0"])
    assert first.candidates == (0, 1, 2)
    assert fail(schedule, final=True) == ()
    assert [p.failures for p in schedule.progress] == [0, 0, 0]
    faulty, closed = first.hop.candidate, 0
    for _ in range(2 + MAX_FAILURES):
        (alone,) = schedule.assign(["w0"])
        assert alone.fused == ()
        if alone.hop.candidate == faulty:
            closed += len(fail(schedule))
        else:
            schedule.take(Done("w0", 1.0))
    assert closed == 1 and schedule.progress[faulty].closed
    assert max(len(a.candidates) for a in run(schedule)) == 2  # the others are together again


def test_one_who_is_to_blame_is_tried_as_often_as_ever() -> None:
    schedule = schedule_of(2, epochs=1)
    schedule.assign(["w0"])
    fail(schedule)
    tries = Counter[int]()
    while not schedule.finished:
        (assignment,) = schedule.assign(["w0"])
        tries[assignment.hop.candidate] += 1
        fail(schedule)
    assert tries == {0: MAX_FAILURES, 1: MAX_FAILURES}


def test_who_cannot_hop_with_others_hops_alone_in_the_end() -> None:
    """Such as where the states of two do not fit into memory side by side."""
    schedule = schedule_of(2, epochs=9)
    failed = 0
    while not schedule.finished:
        (assignment,) = schedule.assign(["w0"])
        if assignment.fused:
            failed += 1
            fail(schedule)
        else:
            schedule.take(Done("w0", 1.0))
    assert failed == MAX_APART
    assert not any(p.closed for p in schedule.progress)


def test_a_lost_session_parts_a_bundle_unless_it_was_a_bystander() -> None:
    schedule = schedule_of(4)
    for bystander, size in ((True, 4), (False, 1)):
        (assignment,) = schedule.assign(["w0"])
        assert len(assignment.candidates) == 4
        assert schedule.take(Lost("w0", bystander=bystander)) == ()
        assert [p.losses for p in schedule.progress] == [0] * 4
        schedule.take(Ready("w0"))
        (again,) = schedule.assign(["w0"])
        assert len(again.candidates) == size and again.hop.part == assignment.hop.part
        if bystander:
            schedule.take(Lost("w0", bystander=True))
            schedule.take(Ready("w0"))


def test_a_candidate_that_is_stopped_meanwhile_keeps_what_its_hop_does() -> None:
    schedule = schedule_of(3)
    (assignment,) = schedule.assign(["w0"])
    schedule.close(1)
    schedule.take(Done("w0", 1.0))
    assert schedule.progress[1].visited == (assignment.hop.part,)
    (after,) = schedule.assign(["w0"])
    assert after.candidates == (0, 2)


def test_a_candidate_may_come_to_another_bundle() -> None:
    schedule = schedule_of(4, bundles=2)
    schedule.join(1, 0)
    (assignment,) = schedule.assign(["w0"])
    assert assignment.candidates == (0, 1, 2)


def test_a_search_is_asked_before_a_whole_bundle_reaches_its_goal() -> None:
    schedule = schedule_of(4, partitions=1, epochs=1)
    schedule.assign(["w0"])
    assert not schedule.runs_dry  # a validation is to come
    schedule.take(Done("w0", 1.0))
    schedule.assign(["w0"])
    assert schedule.runs_dry
