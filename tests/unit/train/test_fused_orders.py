"""What a driver tells a worker of several candidates that hop together, and hears of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mmdb.train.drive.leader import part_of, recorded_by
from mmdb.train.drive.worker import Message
from mmdb.train.drive.worker_pool import orders_of, tell_done
from mmdb.train.hops.orders import FusedOrder, HopOrder, from_json, timed_out, to_json
from mmdb.train.schedule import HopAssignment, ScheduledHop
from mmdb.train.values.seeds import VALIDATION
from mmdb.train.watch import Watch
from tests.watched import watched

ORDER = FusedOrder(part_id=3, candidate_ids=(7, 5), epoch=1, publish=False, limit_s=4.0)


def job_of(limit_s: float | None = None) -> Any:
    return SimpleNamespace(
        hop_limit_s=limit_s,
        begins_apart=lambda hop: False,
        candidate_id=lambda ordinal: 100 + ordinal,
        past=lambda ordinal: None,
        part_at=lambda worker: None,
        holders=(),
        run=SimpleNamespace(
            part_ids={0: 10, 1: 11, VALIDATION: 19},
            is_spread=False,
            workload=SimpleNamespace(merges=False),
        ),
    )


def orders(fused: tuple[int, ...], part: int, limit_s: float | None = None) -> list[Any]:
    assignment = HopAssignment("w", ScheduledHop(2, 1, part), True, (), fused)
    return list(orders_of(job_of(limit_s), assignment, lambda members: []))


@pytest.mark.parametrize("part", [1, VALIDATION])
def test_the_candidate_that_was_chosen_hops_first(part: int) -> None:
    [order] = orders((0, 4), part)
    assert order == FusedOrder(
        part_id={1: 11, VALIDATION: 19}[part], candidate_ids=(102, 100, 104), epoch=1
    )


def test_each_may_take_as_long_as_alone() -> None:
    assert orders((0, 4), 1, 2.5)[0].limit_s == 7.5
    assert orders((), 1, 2.5)[0].limit_s == 2.5 and isinstance(orders((), 1)[0], HopOrder)
    assert timed_out(ORDER).message == "A hop of candidate 7 took longer than 4 s."


def test_an_order_is_the_same_in_another_process() -> None:
    assert from_json(to_json(ORDER)) == ORDER
    assert ORDER.call()[1]["candidate_ids"] == [7, 5]


def test_a_slot_records_a_hop_of_each() -> None:
    assert part_of(ORDER) == 3
    assert recorded_by(ORDER) == [(3, 7), (3, 5)]


def watch_of(candidates: int) -> Watch:
    watch = Watch()
    watch.begin(watched("r", metric="accuracy", visits=2))
    for ordinal in range(candidates):
        watch.candidate("r", ordinal, {})
    return watch


def begin(watch: Watch, fused: tuple[int, ...], part: int = 0) -> HopAssignment:
    watch.hop_started("r", "w", 2, 0, part, 10.0)
    for other in fused:
        watch.hop_joined("w", other)
    return HopAssignment("w", ScheduledHop(2, 0, part), True, (), fused)


def states(watch: Watch) -> list[str]:
    (run,) = watch.snapshot(20.0).runs
    return [view.state for view in sorted(run.leaders, key=lambda view: view.candidate)]


def test_all_of_them_train_until_the_hop_is_done_and_each_has_its_time() -> None:
    watch = watch_of(4)
    assignment = begin(watch, (0, 3))
    assert states(watch) == ["training", "waiting", "training", "training"]
    rows = tuple({"objective": None, "total_s": s} for s in (2.0, 1.0, 1.0))
    tell_done(watch, assignment, Message("w", "done", 5.0, rows), 15.0)  # 1 s there and back
    assert set(states(watch)) == {"waiting"}
    (worker,) = watch.snapshot(15.0).workers
    found = [(s.candidate, s.begin, s.end) for s in worker.segments]
    assert found == [(2, 10.0, 12.5), (0, 12.5, 13.75), (3, 13.75, 15.0)]
    (run,) = watch.snapshot(15.0).runs
    assert run.hops_done == 3


def test_each_of_a_validation_has_its_own_value() -> None:
    watch = watch_of(3)
    rows = tuple({"objective": value, "total_s": 1.0} for value in (0.5, 0.9))
    tell_done(watch, begin(watch, (1,), VALIDATION), Message("w", "done", 2.0, rows), 12.0)
    (run,) = watch.snapshot(12.0).runs
    assert {view.candidate: view.value for view in run.leaders} == {2: 0.5, 1: 0.9, 0: None}


def test_a_hop_that_failed_was_done_by_none_of_them() -> None:
    watch = watch_of(3)
    begin(watch, (0, 1))
    watch.hop_failed("w", 11.0)
    assert set(states(watch)) == {"waiting"}
    (run,) = watch.snapshot(12.0).runs
    assert run.hops_done == 0


def test_a_run_that_was_forgotten_meanwhile_is_heard_of_no_more() -> None:
    watch = watch_of(3)
    assignment = begin(watch, (0, 1))
    watch.forget("r")
    rows = tuple({"objective": None, "total_s": 0.0} for _ in range(3))
    tell_done(watch, assignment, Message("w", "done", 1.0, rows), 11.0)
    assert watch.snapshot(12.0).runs == () and watch.snapshot(12.0).workers[0].present is None
