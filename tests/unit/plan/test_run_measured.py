from __future__ import annotations

import json
from typing import Any

import pytest

from mmdb.plan.run.measured import gap_s, likeness, measured

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
    }
    return row | given


def of_batch(size: int, seconds: float) -> dict[str, Any]:
    """Return a hop of ten steps of a size."""
    config = json.dumps(CONFIG | {"batch_size": size})
    return hop(config=config, row_count=10 * size, compute_s=10 * seconds, total_s=20.0)


def test_candidates_are_alike_whatever_their_rate_and_batch_size() -> None:
    assert likeness(b"a", CONFIG) == likeness(b"a", CONFIG | {"lr": 1.0, "batch_size": 99})
    assert likeness(b"a", CONFIG) != likeness(b"b", CONFIG)
    assert likeness(b"a", CONFIG) != likeness(b"a", CONFIG | {"optimizer": "sgd"})
    assert likeness(b"a", CONFIG) != likeness(b"a", CONFIG | {"weight_decay": 0.1})


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
        hop(read_s=0.5, total_s=1.9, load_s=0.1),
        hop(role="validation", row_count=50, steps=0, compute_s=0.5),
    ]
    (found,) = measured(rows, (1.0,)).values()
    assert found.read_row_s == pytest.approx(0.005)
    assert found.overhead_s == pytest.approx(0.3)
    assert found.validation_row_s == pytest.approx(0.01)
    assert found.state_bytes == 1000


def test_validations_alone_say_nothing_of_steps() -> None:
    assert measured([hop(role="validation", steps=0)], (1.0,)) == {}
    assert measured([], (1.0,)) == {}


def test_hops_that_vary_show_it() -> None:
    rows = [hop(compute_s=1.0 + 0.1 * (k % 3 - 1)) for k in range(9)]
    (found,) = measured(rows, (1.0,)).values()
    assert found.deviation == pytest.approx(0.148, rel=0.01)


def test_between_hops_a_worker_is_told_of_the_next() -> None:
    rows = [hop(started=2.0 * k, finished=2.0 * k + 1.75) for k in (3, 1, 2)]
    rows += [hop(worker="b", started=9.0, finished=10.0)]
    assert gap_s(rows) == pytest.approx(0.25)
    assert gap_s(rows[:1]) == 0.0


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
