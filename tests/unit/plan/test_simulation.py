"""Simulated runs: what the schedule makes of hops whose seconds are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmdb.errors import InvalidOption
from mmdb.plan import simulate
from mmdb.plan.simulation import Clock
from mmdb.train.schedule import simulate as simulate_core

matrices = st.tuples(st.integers(1, 6), st.integers(1, 5)).flatmap(
    lambda shape: st.lists(
        st.lists(st.floats(0.01, 5), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)


@given(matrices, st.integers(1, 5), st.sampled_from(["mop", "task", "model_average"]))
@settings(max_examples=60, deadline=None)
def test_nothing_is_below_its_bound(costs: list[list[float]], workers: int, strategy: str) -> None:
    found = simulate(costs, workers=workers, strategy=strategy, epochs=2)  # type: ignore[arg-type]
    assert found.p50_s >= found.lower_bound_s * (1 - 1e-9)
    assert found.compute_s == pytest.approx(2 * sum(map(sum, costs)))


@given(matrices)
@settings(max_examples=30, deadline=None)
def test_one_worker_takes_the_sum(costs: list[list[float]]) -> None:
    found = simulate(costs, hop_s=0.5, validation_s=2.0)
    hops = len(costs) * len(costs[0])
    expected = sum(map(sum, costs)) + 0.5 * (hops + len(costs)) + 2.0 * len(costs)
    assert found.p50_s == pytest.approx(expected)
    assert found.idle_s == pytest.approx(0, abs=1e-6)
    assert found.hops == hops + len(costs)


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_equal_candidates_are_dealt_out_evenly(workers: int) -> None:
    costs = np.ones((8, 8))
    assert simulate(costs, workers=workers).p50_s == pytest.approx(64 / workers)


def test_it_is_what_the_scheduler_simulates_where_costs_are_equal() -> None:
    costs = np.ones((12, 4))
    placement = {p: frozenset({f"n{p}"}) for p in range(4)}
    slots = {f"n{p}": 1 for p in range(4)}
    mine = simulate(costs, "rotation", workers=slots, placement=placement, free=True, epochs=2)
    core = simulate_core(costs, slots, placement=placement, policy="rotation", epochs=2)
    assert mine.p50_s == pytest.approx(core.makespan_s)
    assert mine.lower_bound_s == pytest.approx(core.lower_bound_s)


def test_a_group_takes_its_slowest_partition_and_its_exchange() -> None:
    found = simulate([[1.0, 3.0]], workers=2, strategy="data_parallel", group=2, exchange_s=0.5)
    assert found.p50_s == pytest.approx(3.5)
    assert found.communication_s == pytest.approx(2 * 0.5)


def test_a_state_that_moves_costs_what_it_costs() -> None:
    placement = {p: frozenset({f"n{p}"}) for p in range(2)}
    slots = {"n0": 1, "n1": 1}
    still = simulate(np.ones((2, 2)), workers=slots, placement=placement)
    moved = simulate(np.ones((2, 2)), workers=slots, placement=placement, move_s=0.25)
    assert still.p50_s == pytest.approx(2.0)
    assert moved.p50_s == pytest.approx(2.25)


def test_a_partition_is_read_once_for_a_node() -> None:
    found = simulate(np.ones((4, 2)), workers=2, read_s=10.0)
    assert found.read_s == pytest.approx(20.0)
    assert found.p50_s == pytest.approx(14.0)


def test_a_merge_ends_the_epoch_of_an_averaged_candidate() -> None:
    found = simulate(np.ones((1, 4)), workers=4, strategy="model_average", merge_s=0.5, epochs=2)
    assert found.p50_s == pytest.approx(3.0)


def test_busy_neighbours_slow_a_worker_down() -> None:
    found = simulate(np.ones((2, 4)), workers=2, slowdown=(1.0, 1.5))
    assert found.p50_s == pytest.approx(6.0)
    single = simulate(np.ones((1, 4)), workers=2, slowdown=(1.0, 1.5))
    assert single.p50_s == pytest.approx(4.0)


def test_noise_widens_the_band_and_not_the_median_of_many_hops() -> None:
    quiet = simulate(np.ones((20, 10)), workers=2)
    noisy = simulate(np.ones((20, 10)), workers=2, noise=0.1, uncertainty=0.05)
    assert quiet.p10_s == quiet.p90_s == quiet.p50_s
    assert noisy.p50_s == pytest.approx(quiet.p50_s, rel=0.03)
    assert noisy.p90_s / noisy.p10_s == pytest.approx(np.exp(2 * 1.2816 * 0.051), rel=0.01)


def test_the_same_seed_gives_the_same_run() -> None:
    one, two = (simulate(np.ones((5, 4)), workers=3, noise=0.2) for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    "wrong",
    [
        {"costs": []},
        {"costs": [[1.0], [1.0, 2.0]]},
        {"costs": [[-1.0]]},
        {"costs": [[float("nan")]]},
        {"policy": "best"},
        {"workers": 0},
        {"epochs": 0},
        {"strategy": "pipeline"},
        {"strategy": "data_parallel", "group": 3, "workers": 2},
        {"hop_s": [1.0, 2.0, 3.0]},
        {"slowdown": ()},
        {"placement": {0: frozenset({"x"})}},
    ],
)
def test_what_makes_no_run_is_refused(wrong: dict[str, object]) -> None:
    given = {"costs": [[1.0, 1.0], [1.0, 1.0]]} | wrong
    with pytest.raises(InvalidOption):
        simulate(**given)  # type: ignore[arg-type]


def test_a_clock_shares_a_node_among_its_workers() -> None:
    """Two pieces of 2 and 4 seconds, at half speed while both are under way."""
    clock = Clock([(1.0, 2.0)])
    clock.start(0, 0, 2.0)
    clock.start(1, 0, 4.0)
    clock.look()
    assert clock.end([1, 1]) == 0
    assert clock.now == pytest.approx(4.0)
    clock.look()
    assert clock.end([1, 1]) == 1
    assert clock.now == pytest.approx(6.0)
    clock.look()
    assert clock.end([1, 1]) is None


def test_a_clock_lets_nodes_be() -> None:
    clock = Clock([(1.0, 2.0), (1.0,)])
    for what, (node, seconds) in enumerate([(0, 1.0), (1, 3.0), (0, 1.0)]):
        clock.start(what, node, seconds)
    clock.look()
    ended = []
    while (done := clock.end([1, 1, 1])) is not None:
        ended.append((done, clock.now))
        clock.look()
    assert ended == [(0, 2.0), (2, 2.0), (1, 3.0)]
