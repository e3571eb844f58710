"""What hops have shown of a machine, whichever candidate they trained."""

from __future__ import annotations

from typing import Any

import pytest

from mmdb.plan.machine_history import MAPPED_S, Observed, observed
from tests.unit.plan.test_run_measured import hop

Row = dict[str, Any]


def at(started: float, **given: Any) -> Row:
    """Return a hop of 1.25 seconds."""
    return hop(started=started, finished=started + 1.25, **given)


def turn(workers: int = 1, **given: Any) -> Row:
    """Return a worker's turn in a run: five hops of two seconds, with half a second after each."""
    row = {"run_id": 1, "worker": "a", "workers": workers, "hops": 5, "busy_s": 10.0,
           "began": 0.0, "ended": 12.0}  # fmt: skip
    return row | given


def pace(workers: int, step_s: float, **given: Any) -> Row:
    """Return what steps of a candidate took."""
    row = {key: hop()[key] for key in ("architecture_hash", "config")}
    return {**row, "run_id": workers, "dataset_id": 1, "workers": workers, "row_count": 300.0,
            "steps": 30.0, "compute_s": 30 * step_s, "hops": 3} | given  # fmt: skip


def seen(
    rows: tuple[Row, ...] = (),
    *,
    turns: tuple[Row, ...] = (),
    paces: tuple[Row, ...] = (),
    slowdown: tuple[float, ...] = (1.0,),
    **given: Any,
) -> Observed:
    return observed(rows, turns, paces, slowdown, **({"partitions": 1} | given))


def test_between_hops_a_worker_is_told_of_the_next() -> None:
    assert seen(turns=(turn(),)).gap_s == pytest.approx(0.5)
    assert seen(turns=(turn(hops=1),)).gap_s == 0.0
    assert seen().gap_s == 0.0


def test_several_workers_may_have_waited_for_work() -> None:
    both = turn(2, ended=30.0), turn(2, worker="b")
    assert seen(turns=both).gap_s == pytest.approx(0.5)
    # One that was alone never does.
    assert seen(turns=(*both, turn(run_id=2, ended=14.0))).gap_s == pytest.approx(1.0)


def test_workers_begin_after_each_other() -> None:
    turns = turn(3, began=5.0), turn(3, worker="b", began=5.6), turn(3, worker="c", began=5.1)
    assert seen(turns=turns).late_s == pytest.approx(0.3)
    assert seen(turns=turns[:1]).late_s == 0.0


def test_what_was_decoded_once_is_mapped() -> None:
    first, again = at(0.0, read_s=5.0), at(10.0, read_s=0.2, run_id=2)
    assert seen((first,)).read_row_s == pytest.approx(MAPPED_S / 100)
    assert seen((again, first)).read_row_s == pytest.approx(0.002)
    assert seen().read_row_s is None


def test_hops_at_an_epochs_end_take_longer() -> None:
    rows = (*(at(2.0 * k, total_s=1.1) for k in range(3)), at(6.0, total_s=1.4))
    found = seen(rows, partitions=4, encode_byte_s=1e-5, durable_byte_s=1e-4)
    assert found.hop_s == pytest.approx(0.1 - 0.01)
    assert found.durable_s == pytest.approx(0.4 - 0.01 - 0.1 - 0.09)
    # An epoch that is under way has no end yet.
    assert seen(rows, partitions=5).hop_s is None


def test_a_state_that_moves_on_is_left_for_another_worker() -> None:
    first, second = at(0.0, total_s=1.2), at(2.0, total_s=1.1, worker="mmdb b/1")
    stays = at(2.0, total_s=1.1, worker=first["worker"])
    assert seen((first, second), partitions=2, publish_byte_s=1e-4).hop_s == pytest.approx(0.1)
    assert seen((first, stays), partitions=2, publish_byte_s=1e-4).hop_s == pytest.approx(0.2)


def test_what_a_hop_takes_among_others_is_that_of_one_alone() -> None:
    rows = (at(0.0, total_s=1.5, workers=2),)
    assert seen(rows, slowdown=(1.0, 1.25)).hop_s == pytest.approx(0.5 / 1.25)


def test_averaging_leaves_other_states_behind() -> None:
    assert seen((at(0.0, strategy="model_average"),)).hop_s is None


def test_like_candidates_on_more_workers_show_how_they_slow_each_other_down() -> None:
    paces = pace(1, 0.1), pace(2, 0.13)
    assert seen(paces=paces, slowdown=(1.0, 2.0, 3.0)).slowdown == pytest.approx((1.0, 1.3, 3.0))
    for other in ({"hops": 2}, {"dataset_id": 2}, {"row_count": 600.0}):
        unlike = pace(1, 0.1), pace(2, 0.13, **other)
        assert seen(paces=unlike, slowdown=(1.0, 2.0)).slowdown == (1.0, 2.0)


def test_more_workers_are_never_slowed_down_less() -> None:
    paces = pace(1, 0.1), pace(2, 0.15)
    assert seen(paces=paces, slowdown=(1.0, 1.1, 1.2)).slowdown == pytest.approx((1.0, 1.5, 1.5))


def test_the_planned_architectures_count_more_than_others() -> None:
    others = tuple(pace(k, 0.1 * k, architecture_hash=b"b") for k in (1, 2))
    paces = pace(1, 0.1), pace(2, 0.13), *others
    assert seen((at(0.0),), paces=paces).slowdown == pytest.approx((1.0, 1.3))
    assert seen(paces=paces).slowdown == pytest.approx((1.0, (1.3 + 2.0) / 2))


def test_a_run_whose_cores_were_taken_by_others_does_not_count_for_the_next() -> None:
    others = tuple(pace(2, 0.4, run_id=4, architecture_hash=name) for name in (b"a", b"b", b"c"))
    alone = tuple(pace(1, 0.1, architecture_hash=name) for name in (b"a", b"b", b"c"))
    usual = tuple(pace(2, 0.1 * k, run_id=10 + k, architecture_hash=b"a") for k in (1.0, 1.1))
    assert seen(paces=(*alone, *usual, *others)).slowdown == pytest.approx((1.0, 1.1))
