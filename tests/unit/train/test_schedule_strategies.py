"""What each strategy starts at once, and what follows."""

from __future__ import annotations

import pytest

from mmdb.train.schedule import (
    Done,
    Failed,
    HopAssignment,
    Lost,
    Ready,
    RunSchedule,
    Workload,
    begin,
    strategy_of,
)
from mmdb.train.schedule.places import Places, match
from mmdb.train.values.seeds import MERGE, VALIDATION, visit_order

WORKERS = ("a", "b", "c", "d")


def schedule_of(
    strategy: str, candidates: int, partitions: int = 4, *, group: int = 1, validates: bool = True
) -> RunSchedule:
    load = Workload(
        candidates=candidates,
        partitions=partitions,
        epochs=2,
        seed=3,
        validates=validates,
        strategy=strategy,
        group=group,
    )
    schedule = begin(load)
    for worker in WORKERS:
        schedule.take(Ready(worker))
    return schedule


def idle(schedule: RunSchedule) -> list[str]:
    return [w for w in WORKERS if w not in schedule.running]


def assign(schedule: RunSchedule) -> list[HopAssignment]:
    return schedule.assign(idle(schedule))


def test_task_keeps_a_candidate_on_one_worker_until_that_is_lost() -> None:
    schedule = schedule_of("task", candidates=6)
    homes: dict[int, set[str]] = {}
    lost = False
    while not schedule.finished:
        for assignment in assign(schedule):
            homes.setdefault(assignment.hop.candidate, set()).add(assignment.worker)
            assert not assignment.publish
        if not lost and len(homes) == 5:
            schedule.take(Lost("b"))
            schedule.take(Ready("b"))
            lost = True
            (gone,) = (c for c, workers in homes.items() if workers == {"b"})
        else:
            schedule.take(Done(min(schedule.running), 1.0))
    moved = {c for c, workers in homes.items() if len(workers) > 1}
    assert moved <= {gone} and len(homes) == 6


def test_model_average_does_an_epoch_at_once_and_then_merges_and_validates() -> None:
    schedule = schedule_of("model_average", candidates=1)
    for epoch in range(2):
        first = assign(schedule)
        assert {(a.hop.epoch, a.hop.part) for a in first} == {(epoch, p) for p in range(4)}
        assert {a.worker for a in first} == set(WORKERS) and all(a.publish for a in first)
        for worker in WORKERS[:3]:
            schedule.take(Done(worker, 1.0))
            assert assign(schedule) == []  # the last hop is waited for
        schedule.take(Done("d", 1.0))
        for part in (MERGE, VALIDATION):
            (after,) = assign(schedule)
            assert (after.hop.epoch, after.hop.part) == (epoch, part)
            schedule.take(Done(after.worker, 0.1))
    assert schedule.finished


def test_model_average_repeats_the_part_that_failed_and_no_other() -> None:
    schedule = schedule_of("model_average", candidates=1)
    part = next(a.hop.part for a in assign(schedule) if a.worker == "b")
    schedule.take(Failed("b", final=False))
    schedule.take(Ready("b"))
    (again,) = assign(schedule)
    assert again.hop.part == part
    for worker in WORKERS:
        schedule.take(Done(worker, 1.0))
    assert [a.hop.part for a in assign(schedule)] == [MERGE]


def test_model_average_keeps_the_workers_of_few_candidates_busy() -> None:
    schedule = schedule_of("model_average", candidates=2)
    assign(schedule)
    assert set(schedule.running) == set(WORKERS)


@pytest.mark.parametrize("partitions", [2, 3, 4, 5])
def test_data_parallel_visits_a_group_of_partitions_at_once_in_the_fixed_order(
    partitions: int,
) -> None:
    schedule = schedule_of("data_parallel", candidates=1, partitions=partitions, group=2)
    assert schedule.wants == 2
    seen: list[int] = []
    while not schedule.finished:
        (assignment,) = assign(schedule)
        if assignment.hop.part == VALIDATION:
            order = visit_order(3, 0, assignment.hop.epoch, partitions)
            assert tuple(seen) == order and len(assignment.group) == 1
            seen = []
        else:
            group = assignment.group
            assert group[0] == (assignment.worker, assignment.hop.part)
            assert len(group) == min(2, partitions - len(seen))
            assert set(schedule.running) == {worker for worker, _ in group}
            seen += [part for _, part in group]
        schedule.take(Done(assignment.worker, 1.0))
        assert not schedule.running


def test_data_parallel_waits_until_a_whole_group_is_idle() -> None:
    schedule = schedule_of("data_parallel", candidates=2, group=3, validates=False)
    (first,) = assign(schedule)
    assert len(first.group) == 3 and len(idle(schedule)) == 1
    assert assign(schedule) == []
    schedule.take(Done(first.worker, 1.0))
    assert len(assign(schedule)) >= 1


@pytest.mark.parametrize("blames_first", [True, False])
def test_a_group_that_breaks_counts_once_and_repeats_its_round(blames_first: bool) -> None:
    schedule = schedule_of("data_parallel", candidates=1, group=2)
    (first,) = assign(schedule)
    (leader, _), (other, _) = first.group
    if not blames_first:
        schedule.take(Lost(other, bystander=True))  # its leader says what became of the hop
        assert set(schedule.running) == {leader, other}
    schedule.take(Failed(leader, final=False))
    if blames_first:
        schedule.take(Lost(other, bystander=True))
    assert schedule.running == {} and schedule.progress[0].failures == 1
    for worker in (leader, other):
        schedule.take(Ready(worker))
    (again,) = assign(schedule)
    assert [part for _, part in again.group] == [part for _, part in first.group]


def test_a_group_finds_its_partitions_on_their_nodes() -> None:
    load = Workload(
        candidates=1,
        partitions=4,
        epochs=1,
        seed=0,
        validates=False,
        free=True,
        strategy="data_parallel",
        group=2,
    )
    placement = {p: frozenset({"left" if p < 2 else "right"}) for p in range(4)}
    schedule = begin(load, placement=placement)
    nodes = {"a": "left", "b": "right", "c": "right"}
    for worker, node in nodes.items():
        schedule.take(Ready(worker, node))
    rounds = 0
    while not schedule.finished:
        (assignment,) = schedule.assign([w for w in nodes if w not in schedule.running])
        assert all(nodes[worker] in placement[part] for worker, part in assignment.group)
        schedule.take(Done(assignment.worker, 1.0))
        rounds += 1
    assert rounds == 2


def test_a_group_is_found_where_there_is_one() -> None:
    places = Places(anywhere=0, everywhere=False)
    both, left = places.add_node([0, 1]), places.add_node([0])
    workers = [places.add_worker(node) for node in (both, left)]
    assert match([0, 1], 2, workers, places) == [(1, 0), (0, 1)]
    assert match([1, 0], 2, workers, places) == [(0, 1), (1, 0)]
    assert match([0, 1], 2, workers[1:], places) == []


def test_a_strategy_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="no strategy 'dance'"):
        strategy_of("dance")
    with pytest.raises(ValueError, match="group of 0"):
        strategy_of("data_parallel", 0)
