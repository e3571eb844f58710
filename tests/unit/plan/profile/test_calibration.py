from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from math import nan

import pytest

from mmdb.errors import Cancelled, InvalidOption, WorkerLost
from mmdb.plan.calibration import calibrate
from mmdb.plan.profile.machine_profile import profile_of
from mmdb.plan.profile.measurements import KINDS, Measurement, check_budget
from mmdb.plan.profile.measurers import COMPUTE, DATABASE, Order, ProcessMeasurer, processes


class Fake:
    """A place that has an answer at once, and knows what it was asked."""

    may_wait = True
    is_fresh = False

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.cancelled = threading.Event()

    def measure(self, order: Order) -> list[Measurement]:
        self.orders.append(order)
        kind = f"all_reduce_{order.group['size']}" if order.group else "busy_step"
        return [Measurement(kind=kind, size=float(order.count), value=float(len(self.orders)))]

    def cancel(self) -> None:
        self.cancelled.set()

    def close(self) -> None:
        pass


class Hanging(Fake):
    """A place that measures until it is cancelled."""

    def measure(self, order: Order) -> list[Measurement]:
        self.cancelled.wait(60.0)
        raise Cancelled("The calibration was cancelled.")


@pytest.fixture(scope="module")
def pair() -> Iterator[list[ProcessMeasurer]]:
    """Return two processes that are ready."""
    with processes(2) as found:
        yield found


def test_every_place_does_its_part() -> None:
    places, database = [Fake() for _ in range(4)], Fake()
    rows = list(calibrate(places, 60.0, database=database, part_id=7, seed=5))
    asked = [[order.what for order in place.orders] for place in places]
    turns = asked[3].count("busy")
    assert turns > 1  # in each of which 1, 2, 3 and 4 are busy
    assert asked[0] == [*["busy"] * 4 * turns, "group", "group", *COMPUTE]
    assert asked[1] == ["busy"] * 3 * turns + ["group", "group"]
    assert asked[3] == ["busy"] * turns + ["group"]
    assert [order.what for order in database.orders] == [*DATABASE]
    assert all(order.part_id == 7 and order.seed == 5 for order in database.orders)
    assert len(rows) == len(COMPUTE) + len(DATABASE) + 4 + 2 + 1  # and a factor
    first = [[one.group for one in place.orders if one.group][-1] for place in places]
    assert [group["rank"] for group in first] == [0, 1, 2, 3]


def test_one_place_alone_is_neither_busy_with_others_nor_in_a_group() -> None:
    place = Fake()
    list(calibrate([place], 60.0))
    assert [order.what for order in place.orders] == list(COMPUTE)
    # What was not spent is for what comes after: nothing was.
    assert place.orders[-1].budget_s == pytest.approx(60.0, rel=0.1)


@pytest.mark.parametrize("budget_s", [0, 0.5, -3, 1e6, nan, "60", None, True])
def test_an_impossible_budget_is_refused(budget_s: object) -> None:
    with pytest.raises(InvalidOption, match="budget_s"):
        check_budget(budget_s)


def test_a_cancel_reaches_the_places() -> None:
    place = Hanging()

    def on_wait() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(calibrate([place], 60.0, on_wait=on_wait))
    assert place.cancelled.is_set()


def test_processes_measure_busy_work_and_sums_together(pair: list[ProcessMeasurer]) -> None:
    begun = time.monotonic()
    rows = list(calibrate(pair, 6.0))
    assert time.monotonic() - begun < 30.0
    kinds = {row.kind for row in rows}
    assert rows[0].kind == "process" and 5e7 < rows[0].value < 1e10  # before it measured anything
    assert {"product", "copy", "state_hash", "busy_product", "all_reduce_2", "meet"} <= kinds
    assert kinds <= KINDS.keys()
    busy = {row.size for row in rows if row.kind == "busy_product"}
    assert busy == {1.0, 2.0}
    profile = profile_of(rows)
    assert profile.seconds("all_reduce_2", 2.0**25) >= profile.seconds("all_reduce_2", 2.0**10)
    assert not {"product", "dispatch", "update_adam", "meet"} & profile.assumed


def test_an_order_that_is_refused_reaches_the_caller(pair: list[ProcessMeasurer]) -> None:
    with pytest.raises(InvalidOption, match="nothing to be measured"):
        pair[0].measure(Order(what="nothing", budget_s=1.0))
    assert pair[0].measure(Order(what="dispatch", budget_s=0.2))


def test_a_process_that_dies_is_lost_and_one_that_is_cancelled_says_so() -> None:
    with processes(1) as (process,):
        timer = threading.Timer(0.2, process._process.kill)
        timer.start()
        with pytest.raises(WorkerLost):
            process.measure(Order(what="busy", budget_s=60.0))
        timer.join()
    with processes(1) as (process,):
        timer = threading.Timer(0.2, process.cancel)
        timer.start()
        with pytest.raises(Cancelled):
            process.measure(Order(what="busy", budget_s=60.0))
        timer.join()
