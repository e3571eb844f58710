from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from mmdb.plan.hop_history import GroupRound, measured, median_of_runs, with_busy
from mmdb.plan.planned_run import cost_key

CONFIG = {"lr": 0.1, "batch_size": 10, "optimizer": "adam"}


def hop(**given: Any) -> dict[str, Any]:
    row = {
        "architecture_hash": b"a",
        "config": json.dumps(CONFIG),
        "role": "train",
        "row_count": 100,
        "steps": 10,
        "read_s": 0.0,
        "load_s": 0.0,
        "compute_s": 1.0,
        "total_s": 1.25,
        "state_bytes": 1000,
        "workers": 1,
        "run_id": 1,
        "worker": "a",
        "candidate_id": 1,
        "part_id": 1,
        "epoch": 0,
        "ordinal": 0,
        "starts": 1,
        "group_size": None,
        "strategy": "mop",
        "started": 0.0,
        "finished": 1.25,
    }
    return row | given


def of_batch(size: int, seconds: float) -> dict[str, Any]:
    """Return a hop of ten steps of a size."""
    config = json.dumps(CONFIG | {"batch_size": size})
    return hop(config=config, row_count=10 * size, compute_s=10 * seconds, total_s=20.0)


def test_hops_know_how_many_workers_were_busy_meanwhile() -> None:
    draw = np.random.default_rng(0)
    hops = [
        hop(run_id=k % 3, candidate_id=k % 6, candidates=2, started=a, finished=a + draw.random())
        for k, a in enumerate(1.7e9 + draw.uniform(0, 9, 60))
    ]
    for one, found in zip(hops, with_busy([dict(one) for one in hops]), strict=True):
        overlaps = (
            min(one["finished"], other["finished"]) - max(one["started"], other["started"])
            for other in hops
            if other["run_id"] == one["run_id"]
        )
        busy = sum(max(0.0, s) for s in overlaps) / (one["finished"] - one["started"])
        assert found["workers"] == pytest.approx(busy, abs=1e-4)


def test_hops_of_a_run_that_did_more_than_is_known_keep_its_workers() -> None:
    (found,) = with_busy([hop(workers=2, candidates=2)])
    assert found["workers"] == 2


def test_a_hop_that_others_waited_for_was_done_alone_for_that_time() -> None:
    small = hop(candidates=2, workers=2, compute_s=1.5, finished=1.5)
    large = hop(candidate_id=2, candidates=2, workers=2, row_count=300, steps=10)
    large |= {"compute_s": 3.5, "finished": 3.5}  # 1.5 s beside the small one, 2 s alone
    (found,) = measured(with_busy([small, large]), (1.0, 1.5)).values()
    assert [point.seconds for point in found.steps] == pytest.approx([0.1, 0.3])


def test_candidates_are_alike_whatever_their_rate_and_batch_size() -> None:
    assert cost_key(b"a", CONFIG) == cost_key(b"a", CONFIG | {"lr": 1.0, "batch_size": 99})
    assert cost_key(b"a", CONFIG) != cost_key(b"b", CONFIG)
    assert cost_key(b"a", CONFIG) != cost_key(b"a", CONFIG | {"optimizer": "sgd"})
    assert cost_key(b"a", CONFIG) != cost_key(b"a", CONFIG | {"weight_decay": 0.1})


def test_a_run_whose_cores_were_taken_by_others_does_not_count_for_the_next() -> None:
    runs = [
        hop(run_id=run_id, compute_s=10 * step_s, total_s=20.0)
        for run_id, step_s in ((1, 0.1), (2, 0.11), (3, 0.4))
        for _ in range(3 * run_id)
    ]
    (found,) = measured(runs, (1.0,)).values()
    assert found.steps[0].seconds == pytest.approx(0.11)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([(2.0, 1)], 2.0),
        ([(2.0, 1), (4.0, 2)], 3.0),
        ([(2.0, 1), (4.0, 3), (8.0, 3)], 6.0),  # what rests on few hops does not count
        ([(2.0, 5), (4.0, 3), (8.0, 300)], 4.0),
    ],
)
def test_the_median_of_runs(values: list[tuple[float, int]], expected: float) -> None:
    assert median_of_runs(values) == expected


def test_two_batch_sizes_give_a_line() -> None:
    rows = [of_batch(size, 0.01 + 0.001 * size) for size in (10, 20, 40)]
    (found,) = measured(rows, (1.0,)).values()
    assert found.line(None, 80) == pytest.approx((0.01, 0.001), rel=1e-3)
    assert found.hops == 3


def test_one_batch_size_stretches_the_roofline() -> None:
    (found,) = measured([of_batch(10, 0.04)], (1.0,)).values()
    assert found.line((0.01, 0.001), 20) == pytest.approx((0.02, 0.002))
    assert found.line(None, 20) == pytest.approx((0.0, 0.004))


def test_what_busy_workers_took_is_what_one_alone_takes_less() -> None:
    (found,) = measured([hop(workers=2)], (1.0, 1.25)).values()
    assert found.steps[0].seconds == pytest.approx(0.1 / 1.25)


def test_what_goes_beside_the_steps() -> None:
    rows = [
        hop(read_s=0.5, total_s=1.9, load_s=0.5),
        hop(started=5.0, ordinal=1, load_s=9.0),
        hop(role="validation", row_count=50, steps=0, compute_s=0.5),
    ]
    (found,) = measured(rows, (1.0,)).values()
    assert found.build_s == pytest.approx(0.5)  # of the first hop alone
    assert found.validation_row_s == pytest.approx(0.01)
    assert found.state_bytes == 1000


def test_a_workers_first_hop_finds_nothing_ready() -> None:
    rows = [
        hop(load_s=0.5),
        hop(candidate_id=2, started=2.0, load_s=0.1),
        hop(candidate_id=2, started=3.0, ordinal=1, load_s=0.0),  # which it had left itself
        hop(candidate_id=3, worker="b", started=3.5, load_s=0.7),
        hop(candidate_id=2, worker="b", started=4.0, ordinal=2, load_s=0.3),
    ]
    (found,) = measured(rows, (1.0,), load_byte_s=1e-4).values()
    assert found.build_s == pytest.approx((0.1 + 0.3 - 0.1) / 2)
    again = [one | {"starts": 2} for one in rows]
    assert [one.build_s for one in measured(again, (1.0,)).values()] == [0.0]


def test_a_round_is_what_its_members_did_at_the_same_time() -> None:
    both = {"group_size": 2, "workers": 2, "compute_s": 3.0}
    rows = [hop(), *(hop(**both, part_id=k, started=5.0) for k in (1, 2))]
    rows += [hop(**both | {"compute_s": 9.0}, part_id=k) for k in (1, 2)]  # in which they met
    rows += [hop(**both, part_id=1, started=7.0)]  # without its other member
    (found,) = measured(rows, (1.0, 1.5)).values()
    (one,) = found.rounds
    assert one == GroupRound(2, 20.0, one.step_s)
    assert one.step_s == pytest.approx(0.2)
    assert found.hops == 1


def test_validations_alone_say_nothing_of_steps() -> None:
    assert measured([hop(role="validation", steps=0)], (1.0,)) == {}
    assert measured([], (1.0,)) == {}


def test_hops_that_vary_show_it() -> None:
    rows = [hop(compute_s=1.0 + 0.1 * (k % 3 - 1)) for k in range(9)]
    (found,) = measured(rows, (1.0,)).values()
    assert found.deviation == pytest.approx(0.148, rel=0.01)


def test_a_line_goes_through_the_size_that_was_measured() -> None:
    rows = [of_batch(16, 0.02), of_batch(32, 0.01)]
    (found,) = measured(rows, (1.0,)).values()
    for size, seconds in ((16, 0.02), (32, 0.01)):
        fixed, row = found.line(None, size)
        assert fixed + row * size == pytest.approx(seconds)


def test_an_outlier_counts_as_a_few_medians() -> None:
    rows = [hop() for _ in range(9)] + [hop(compute_s=1000.0)]
    (found,) = measured(rows, (1.0,)).values()
    assert found.steps[0].seconds == pytest.approx(0.1 * (9 + 4) / 10)
