"""What other models say of a way of training, from the same warm-ups."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.plan.baselines import (
    Known,
    amdahl_s,
    cerebro,
    ernest_s,
    first_least,
    least_squares,
    paleo_s,
    ratings_of,
)
from tests.bench.plan.sizing import Size
from tests.bench.plan.warmed import Warmed
from tests.bench.plan.workloads import WarmUp, Way, Workload

ALONE, HOPS, TASK = Way(workers=1), Way(), Way(strategy="task")
AVERAGE, GROUP = Way(strategy="model_average"), Way(strategy="data_parallel")


def workload(candidates: int, partitions: int = 4) -> Workload:
    return Workload(
        family="mlp",
        sizes=(0,),
        candidates=candidates,
        partitions=partitions,
        batch_size=100,
        validates=False,
        warm_ups=(WarmUp(candidates=candidates, workers=1),),
        ways=(ALONE, HOPS, TASK, AVERAGE, GROUP),
    )


def warm_up(workers: int, seconds: float, candidates: int, other_s: float = 1.0) -> Warmed:
    return Warmed(
        workers=workers,
        seconds=seconds,
        half_s=seconds / 2,
        compute_s=dict.fromkeys(range(candidates), (10.0 - other_s) / candidates),
        other_s=other_s,
        state_bytes=dict.fromkeys(range(candidates), 3_000_000),
    )


def known(candidates: int, *warmed: Warmed, epochs: int = 3) -> Known:
    return Known(
        workload=workload(candidates),
        size=Size(rows=1000, epochs=epochs),
        warmed=warmed,
        bytes_per_s=1e9,
    )


def test_amdahl_goes_through_two_warm_ups() -> None:
    two = known(4, warm_up(1, 10.0, 4), warm_up(2, 6.0, 4))  # 2 s serial, 8 s parallel
    assert amdahl_s(two, ALONE) == pytest.approx(30)
    assert amdahl_s(two, HOPS) == amdahl_s(two, GROUP) == pytest.approx(18)
    one = known(1, warm_up(1, 10.0, 1))
    assert amdahl_s(one, HOPS) == pytest.approx(30)  # a candidate alone keeps one worker busy
    assert amdahl_s(one, GROUP) == pytest.approx(3 * (1 + 9 / 2))


def test_ernest_is_fitted_to_warm_ups_and_their_halves() -> None:
    given = known(4, warm_up(1, 10.0, 4), warm_up(2, 5.0, 4))
    assert ernest_s(given, ALONE) == pytest.approx(30)
    assert ernest_s(given, HOPS) == pytest.approx(15)


def test_least_squares_has_no_coefficient_below_zero() -> None:
    columns = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    assert least_squares(columns, np.array([3.0, 5.0, 7.0])).tolist() == pytest.approx([1, 2])
    assert least_squares(columns, np.array([3.0, 2.0, 1.0])).tolist() == pytest.approx([2, 0])


def test_paleo_adds_bytes_over_bandwidth() -> None:
    given = known(4, warm_up(1, 10.0, 4))
    assert paleo_s(given, ALONE) == pytest.approx(27)
    assert paleo_s(given, TASK) == pytest.approx(13.5)
    assert paleo_s(given, HOPS) == pytest.approx(13.5 + 3 * 4 * 3e6 / 1e9)
    steps, weights = 10, 1e6
    assert paleo_s(given, GROUP) == pytest.approx(13.5 + 3 * 4 * steps * weights / 1e9)


def test_cerebro_hops_where_candidates_are_enough() -> None:
    some = (ALONE, HOPS, TASK, AVERAGE, GROUP)
    assert first_least({way: cerebro(workload(2), way) for way in some}) == HOPS
    assert first_least({way: cerebro(workload(1), way) for way in some}) == GROUP


def test_without_all_candidates_nothing_is_rated() -> None:
    assert ratings_of(known(4, warm_up(1, 10.0, 2)), HOPS) == {}
    assert set(ratings_of(known(4, warm_up(1, 10.0, 4)), HOPS)) == {
        "Amdahl",
        "Ernest",
        "Paleo",
        "Cerebro's rule",
    }
