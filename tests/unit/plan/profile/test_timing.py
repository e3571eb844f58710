from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from mmdb.errors import Cancelled
from mmdb.plan.profile.timing import LEAST, MOST, Allowance, TimedTask, measure_sizes


class Clock:
    """Time that passes only when work is done."""

    def __init__(self) -> None:
        self.now = 0.0
        self.runs = 0

    def __call__(self) -> float:
        return self.now

    def work(self, *seconds: float) -> Callable[[], None]:
        """Return work that takes these seconds in turn."""

        def run() -> None:
            self.now += seconds[self.runs % len(seconds)]
            self.runs += 1

        return run


def test_steady_work_is_measured_as_few_times_as_allowed() -> None:
    clock = Clock()
    timed = Allowance(10.0, clock=clock).measure(clock.work(0.01))
    assert timed is not None
    assert timed.seconds == pytest.approx(0.01) and timed.samples == LEAST
    assert timed.deviation == pytest.approx(0.0, abs=1e-9)


def test_unsteady_work_is_measured_more_often() -> None:
    clock = Clock()
    timed = Allowance(10.0, clock=clock).measure(clock.work(0.01, 0.012, 0.015, 0.009, 0.02))
    assert timed is not None and LEAST < timed.samples <= MOST
    assert timed.deviation > 0.1 and 0.009 < timed.seconds < 0.02


def test_short_work_is_repeated_within_a_measurement() -> None:
    clock = Clock()
    timed = Allowance(1.0, clock=clock).measure(clock.work(1e-6))
    assert timed is not None and timed.seconds == pytest.approx(1e-6)
    assert clock.runs > 1000


def test_work_that_does_not_fit_is_left_out() -> None:
    clock = Clock()
    assert Allowance(1.0, clock=clock).measure(clock.work(0.4)) is None
    assert clock.now < 2.0


def test_a_slow_first_run_is_not_held_against_the_work() -> None:
    clock = Clock()
    seconds = [0.45, *[0.001] * 1000]
    timed = Allowance(1.0, clock=clock).measure(clock.work(*seconds), within_s=0.1)
    assert timed is not None and timed.seconds == pytest.approx(0.001)


def test_sizes_stop_where_the_budget_does() -> None:
    clock = Clock()
    cases = [
        (lambda k=k: [TimedTask("product", 10.0**k, clock.work(1e-5 * 10.0**k))]) for k in range(6)
    ]
    rows = list(measure_sizes(Allowance(1.0, clock=clock), cases))
    assert [row.size for row in rows] == [1.0, 10.0, 100.0, 1000.0]
    assert [row.value for row in rows] == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2])
    assert clock.now < 3.0


def test_what_a_quick_task_leaves_is_for_the_slow_one_beside_it() -> None:
    clock = Clock()

    def both() -> list[TimedTask]:
        return [
            TimedTask("load", 1.0, clock.work(1e-6)),
            TimedTask("checkpoint", 1.0, clock.work(0.15)),
        ]

    rows = list(measure_sizes(Allowance(1.0, clock=clock), [both]))
    assert [row.kind for row in rows] == ["load", "checkpoint"]


def test_a_cancel_ends_the_measuring_at_once() -> None:
    clock = Clock()
    allowance = Allowance(math.inf, lambda: clock.runs >= 4, clock=clock)
    with pytest.raises(Cancelled):
        allowance.measure(clock.work(0.1, 0.2))
    assert clock.runs == 4
