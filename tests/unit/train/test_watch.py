"""What a `Watch` makes of what a driver tells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mmdb.train.values.seeds import VALIDATION
from mmdb.train.watch import Notices, RunView, Snapshot, Watch, notice
from mmdb.train.watch.progress import LEADERS, RESOLUTION_S, WINDOW_S
from mmdb.train.watch.watch import MANY
from tests.watched import watched

MERGE = VALIDATION - 1


def watch_of(candidates: int = 3, *, epochs: int = 2, visits: int = 2, **options: Any) -> Watch:
    """Return a watch of the run "r", begun at 0, whose candidates have the ids 10, 11, ..."""
    watch = Watch()
    options = {"metric": "accuracy"} | options
    watch.begin(watched("r", epochs=epochs, visits=visits, **options))
    for ordinal in range(candidates):
        config = {"lr": 0.1 * (ordinal + 1), "batch_size": 32}
        watch.candidate("r", ordinal, config, candidate_id=10 + ordinal)
    return watch


def hop(
    watch: Watch,
    candidate: int,
    begin: float,
    end: float,
    *,
    worker: str = "w",
    epoch: int = 0,
    part: int = 0,
    value: float | None = None,
) -> None:
    watch.hop_started("r", worker, candidate, epoch, part, begin)
    watch.hop_done(worker, end, value)


def epoch_of(watch: Watch, candidate: int, begin: float, value: float, epoch: int = 0) -> None:
    """Do an epoch of two hops, of a second each."""
    hop(watch, candidate, begin, begin + 1, epoch=epoch)
    hop(watch, candidate, begin + 1, begin + 2, epoch=epoch, part=VALIDATION, value=value)


def run_of(snapshot: Snapshot) -> RunView:
    (run,) = snapshot.runs
    return run


def states(watch: Watch, now: float = 100.0) -> dict[int, str]:
    return {view.candidate: view.state for view in run_of(watch.snapshot(now)).leaders}


def test_hops_are_counted_and_the_time_left_is_that_of_what_is_left() -> None:
    watch = watch_of(2)
    run = run_of(watch.snapshot(1.0))
    assert (run.hops_done, run.hops_total, run.hops_per_s) == (0, 8, 0.0)
    assert run.seconds_left is None and run.best is None and run.latest is None
    epoch_of(watch, 0, 0.0, 0.5)  # a hop takes 1 s; 2 are left of this one, 4 of the other
    run = run_of(watch.snapshot(2.0))
    assert (run.hops_done, run.hops_total, run.hops_per_s) == (2, 8, 1.0)
    assert run.seconds_left == pytest.approx(6.0)
    watch.worker("second")
    assert run_of(watch.snapshot(2.0)).seconds_left == pytest.approx(4.0)  # the longest candidate
    watch.hop_started("r", "w", 1, 0, 0, 2.0)
    assert run_of(watch.snapshot(2.75)).seconds_left == pytest.approx(3.25)  # it goes on
    assert run_of(watch.snapshot(9.0)).seconds_left == pytest.approx(3.0)  # it should have ended


def test_several_workers_at_one_candidate_share_its_time() -> None:
    watch = watch_of(1, strategy="model_average")
    hop(watch, 0, 0.0, 1.0)
    watch.worker("second")
    assert run_of(watch.snapshot(1.0)).seconds_left == pytest.approx(1.5)


def test_runs_share_the_workers() -> None:
    watch = watch_of(4)
    watch.begin(watched("s", epochs=9))
    watch.candidate("s", 0, {})
    watch.worker("second")
    hop(watch, 0, 0.0, 1.0)
    first, second = watch.snapshot(1.0).runs
    assert first.seconds_left == pytest.approx(15.0) and second.seconds_left is None
    watch.end("s")
    assert watch.snapshot(1.0).runs[0].seconds_left == pytest.approx(7.5)
    watch.forget("s")
    assert [run.run for run in watch.snapshot(1.0).runs] == ["r"]


def test_the_states_of_candidates() -> None:
    watch = watch_of(6)
    assert set(states(watch).values()) == {"waiting"}
    watch.hop_started("r", "w", 0, 0, 0, 0.0)
    watch.goal("r", 1, 1)
    epoch_of(watch, 1, 0.0, 0.5)  # the same worker: what it did before counts as left
    for epoch in range(2):
        epoch_of(watch, 2, 2.0 * epoch, 0.6, epoch)
    watch.stopped("r", 3)
    watch.failed("r", 4, "boom", 5.0)
    assert states(watch) == {
        0: "waiting",
        1: "resting",
        2: "trained",
        3: "stopped",
        4: "failed",
        5: "waiting",
    }
    run = run_of(watch.snapshot(9.0))
    assert run.hops_total == 4 + 2 + 4 + 0 + 0 + 4
    watch.hop_started("r", "w", 5, 0, 0, 9.0)
    watch.goal("r", 3, 2)  # someone lets it go on
    assert states(watch)[5] == "training" and states(watch)[3] == "waiting"
    assert run_of(watch.snapshot(9.0)).counts["training"] == 1


@pytest.mark.parametrize(("maximize", "order"), [(True, [2, 1, 0, 4, 3]), (False, [0, 1, 2, 4, 3])])
def test_the_best_come_first_and_the_failed_last(maximize: bool, order: list[int]) -> None:
    watch = watch_of(5, maximize=maximize)
    for candidate, values in enumerate([(0.1, 0.2), (0.3, 0.3), (0.4, float("nan"))]):
        for epoch, value in enumerate(values):
            watch.objective("r", candidate, epoch, value)
    watch.objective("r", 3, 0, 0.9 if maximize else 0.0)
    watch.failed("r", 3, "boom", 1.0)
    run = run_of(watch.snapshot(1.0))
    assert [view.candidate for view in run.leaders] == order
    assert run.best is not None
    assert (run.best.best, run.best.best_epoch) == ((0.4, 1) if maximize else (0.1, 1))
    assert run.latest is None  # all that was before this call


def test_a_snapshot_carries_the_leaders_alone() -> None:
    watch = watch_of(0)
    for ordinal in range(3 * LEADERS):
        watch.candidate("r", ordinal, {"lr": ordinal}, hops=ordinal)
    run = run_of(watch.snapshot(0.0))
    assert run.candidates == 3 * LEADERS and len(run.leaders) == LEADERS
    assert run.leaders[0].candidate == 3 * LEADERS - 1  # the furthest


def test_keys_that_differ_are_known() -> None:
    watch = watch_of(1)
    assert run_of(watch.snapshot(0.0)).varied == ()
    watch.candidate("r", 1, {"lr": 0.1, "batch_size": 64, "architecture.hidden": [8]})
    assert run_of(watch.snapshot(0.0)).varied == ("batch_size", "architecture.hidden")


def test_a_resumed_candidate_goes_on_from_where_it_was() -> None:
    watch = watch_of(0)
    watch.candidate("r", 0, {}, hops=3, hop_s=2.0, goal=2)
    run = run_of(watch.snapshot(5.0))
    assert (run.hops_done, run.hops_total) == (3, 4)
    assert run.seconds_left == pytest.approx(2.0)
    assert run.hops_per_s == 0.0 and run.leaders[0].epochs == 1


def test_a_merge_is_drawn_and_is_no_hop() -> None:
    watch = watch_of(1)
    hop(watch, 0, 0.0, 1.0, part=MERGE)
    snapshot = watch.snapshot(1.0)
    assert run_of(snapshot).hops_done == 0 and len(snapshot.workers[0].segments) == 1


# -- workers ------------------------------------------------------------------


def test_the_last_minute_of_a_worker() -> None:
    watch = watch_of(1)
    watch.worker("w", node="here", device="cuda:0")
    hop(watch, 0, 0.0, 20.0)
    hop(watch, 0, 30.0, 40.0, part=VALIDATION, value=0.5)
    watch.hop_started("r", "w", 0, 1, 0, 80.0)
    (worker,) = watch.snapshot(90.0).workers
    assert (worker.node, worker.device, worker.up) == ("here", "cuda:0", True)
    assert [(s.begin, s.end, s.validates) for s in worker.segments] == [
        (30.0, 40.0, True),
        (80.0, None, False),
    ]
    assert worker.present == worker.segments[-1]
    assert worker.busy == pytest.approx(20 / 60)


def test_short_hops_are_drawn_together_and_all_counted() -> None:
    watch = watch_of(1, epochs=10_000)
    for k in range(5000):
        hop(watch, 0, k / 100, k / 100 + 0.01)
    snapshot = watch.snapshot(50.0)
    (worker,) = snapshot.workers
    assert len(worker.segments) <= WINDOW_S / RESOLUTION_S
    assert worker.busy == pytest.approx(1.0)
    assert run_of(snapshot).hops_done == 5000
    assert run_of(snapshot).hops_per_s == pytest.approx(100.0)


def test_a_snapshot_does_not_change_any_more() -> None:
    watch = watch_of(1)
    watch.hop_started("r", "w", 0, 0, 0, 0.0)
    before = watch.snapshot(0.1)
    copy = replace(before)
    watch.hop_done("w", 0.15)
    hop(watch, 0, 0.16, 0.3)
    assert before == copy and before.workers[0].present is not None


def test_a_lost_worker_comes_back() -> None:
    watch = watch_of(1)
    watch.hop_started("r", "w", 0, 0, 0, 0.0)
    watch.worker_gone("w", 2.0)
    snapshot = watch.snapshot(2.0)
    assert not snapshot.workers[0].up and snapshot.workers[0].segments[0].failed
    assert run_of(snapshot).hops_done == 0 and run_of(snapshot).counts["waiting"] == 1
    watch.worker("w")
    hop(watch, 0, 3.0, 4.0)
    assert watch.snapshot(4.0).workers[0].up and run_of(watch.snapshot(4.0)).hops_done == 1
    watch.worker_gone("unknown", 4.0)


# -- showing ------------------------------------------------------------------


def test_snapshots_are_shown_so_often_and_no_oftener() -> None:
    shown: list[float] = []
    watch = Watch(lambda snapshot: shown.append(snapshot.at), every_s=0.25)
    for k in range(101):
        watch.tick(k / 100)
    assert shown == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_snapshots_of_very_many_candidates_are_rarer() -> None:
    shown: list[float] = []
    watch = Watch(lambda snapshot: shown.append(snapshot.at), every_s=1.0)
    watch.begin(watched("r"))
    for ordinal in range(4 * MANY):
        watch.candidate("r", ordinal, {})
    for second in range(10):
        watch.tick(float(second))
    assert shown == [0.0, 4.0, 8.0]


def test_a_notice_says_what_ended_and_how_far_the_run_is() -> None:
    watch = watch_of(2, epochs=5)
    assert notice(run_of(watch.snapshot(0.0))) == "0/20 hops"
    epoch_of(watch, 0, 0.0, 0.934)
    epoch_of(watch, 1, 2.0, 0.912)
    assert notice(run_of(watch.snapshot(4.0))) == (
        "epoch 1/5 of candidate 11: accuracy 0.912, best 0.934; 4/20 hops, 16 s left"
    )
    blind = watch_of(1, metric=None, epochs=1)
    hop(blind, 0, 0.0, 1.0)
    hop(blind, 0, 1.0, 2.0, part=1)
    assert notice(run_of(blind.snapshot(2.0))) == "epoch 1/1 of candidate 10; 2/2 hops"


def test_notices_come_at_ends_of_epochs_and_now_and_then() -> None:
    watch, notices = watch_of(2, epochs=50), Notices(every_s=1.0, quiet_s=10.0)
    said = []
    for k in range(50):
        epoch_of(watch, 0, k / 10, 0.5, k)
        said += [(k, line) for line in notices.lines(watch.snapshot(k / 10 + 2))]
    assert 3 <= len(said) <= 5 and all("of candidate 10" in line for _, line in said)
    watch.failed("r", 1, "MemoryError: too large", 20.0)
    assert notices.lines(watch.snapshot(20.0))[0] == "candidate 11 failed: MemoryError: too large"
    quiet = [line for k in range(60) for line in notices.lines(watch.snapshot(21.0 + k))]
    assert len(quiet) <= 1 and all("hops" in line for line in quiet)  # nothing has changed since


def test_notices_name_the_run_where_there_are_several() -> None:
    watch, notices = watch_of(1), Notices()
    watch.begin(watched("s"))
    watch.candidate("s", 0, {})
    assert notices.lines(watch.snapshot(0.0)) == []
    epoch_of(watch, 0, 0.0, 0.5)
    (line,) = notices.lines(watch.snapshot(2.0))
    assert line.startswith("r: epoch 1/2 of candidate 10: accuracy 0.500")
