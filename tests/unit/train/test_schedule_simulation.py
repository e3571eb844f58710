"""Simulated runs: bounds, the cost of a fixed order, and policies that learn as they go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mmdb.train.schedule import (
    Done,
    Policy,
    Simulation,
    TrainingProgress,
    Workload,
    begin,
    choose,
    simulate,
)
from mmdb.train.schedule.portfolio import sample
from mmdb.train.schedule.simulate import lower_bound
from tests.bench.schedule.cases import Case, costs_of, enlist, learn, nodes_of


@pytest.mark.parametrize(
    ("case", "bar"),
    [
        (Case(8, 8), 1.04),
        (Case(16, 16), 1.04),
        (Case(16, 8), 1.02),
        (Case(32, 8), 1.02),
        (Case(12, 8, mixed=True), 1.02),
        (Case(16, 8, mixed=True), 1.02),
        (Case(32, 8, mixed=True), 1.02),
        (Case(64, 8, mixed=True), 1.02),
    ],
    ids=str,
)
def test_the_policy_that_is_chosen_comes_close_to_the_lower_bound(case: Case, bar: float) -> None:
    costs = costs_of(case, seed=1)
    slots, placement = nodes_of(case.workers)
    policy, _ = choose(costs, slots, case.load, placement)
    found = simulate(
        costs, slots, placement=placement, epochs=5, policy=policy, noise=0.05, seed=101
    )
    assert 1 - 1e-9 <= found.ratio <= bar
    assert found.hops == case.candidates * case.workers * 5
    busy = sum(found.makespan_s - idle for idle in found.idle_s)
    assert busy <= found.makespan_s * case.workers


@pytest.mark.parametrize(
    ("case", "bar"),
    [(Case(8, 8), 1.05), (Case(16, 8), 1.02), (Case(12, 8, mixed=True), 1.03)],
    ids=str,
)
def test_a_schedule_that_learns_the_costs_from_its_hops_comes_as_close(
    case: Case, bar: float
) -> None:
    ratios = [learn(case, seed) for seed in range(3)]
    assert np.mean(ratios) <= bar


@pytest.mark.parametrize("policy", ["rotation", "longest", "affinity"])
def test_without_noise_a_rotation_of_equal_candidates_meets_the_bound(policy: Policy) -> None:
    slots, placement = nodes_of(6)
    found = simulate(np.ones((6, 6)), slots, placement=placement, epochs=3, policy=policy)
    assert found.lower_bound_s == 18
    if policy == "rotation":
        assert found.makespan_s == 18 and set(found.idle_s) == {0}
    assert found.makespan_s <= 1.3 * 18


def run_with(order: str, slots: int | dict[str, int], **more: object) -> Simulation:
    fixed = order == "fixed"
    return simulate(
        costs_of(Case(32, 8, mixed=True), seed=0),
        slots,
        epochs=5,
        order="fixed" if fixed else "free",
        noise=0.05,
        **more,  # type: ignore[arg-type]
    )


def test_a_fixed_order_costs_nothing_where_any_worker_finds_any_partition() -> None:
    fixed, free = run_with("fixed", 8), run_with("free", 8)
    assert fixed.ratio <= 1.002 and free.ratio <= 1.002


def test_a_fixed_order_costs_where_every_partition_has_one_worker() -> None:
    slots, placement = nodes_of(8)
    fixed = run_with("fixed", slots, placement=placement, policy="longest")
    free = run_with("free", slots, placement=placement, policy="longest")
    assert fixed.ratio > 1.05 and free.ratio < 1.02


def test_a_large_run_is_sampled_for_the_choice() -> None:
    case = Case(300, 300)
    slots, placement = nodes_of(300)
    costs, nodes, kept = sample(costs_of(case, 0), slots, placement, hops=1000)
    assert costs.shape == (30, 30) and len(nodes) == 30 and len(kept) == 30
    assert all(held <= nodes.keys() for held in kept.values())
    costs, nodes, kept = sample(np.ones((300, 300)), {"": 40}, {}, hops=1000)
    assert costs.shape == (30, 30) and nodes == {"": 4} and kept == {}


def test_the_choice_is_made_again_when_measured_costs_have_moved() -> None:
    slots, placement = nodes_of(8)
    case = Case(32, 8)
    schedule = begin(case.load, placement=placement)
    assert schedule.policy in ("rotation",)
    idle, seconds = enlist(schedule, slots), [1.0] * case.candidates

    def work(hops: int) -> bool:
        """Do so many hops; return whether the choice is stale after them."""
        for _ in range(hops):
            for assignment in schedule.assign(list(idle)):
                del idle[assignment.worker]
            worker = next(iter(schedule.running))
            schedule.take(Done(worker, seconds[schedule.running[worker].candidate]))
            idle[worker] = None
        return schedule.stale

    assert not work(20)  # some are not measured yet
    assert work(200)  # all are, and nothing has been chosen on that yet
    schedule.replan()
    assert not work(32)
    seconds[::5] = [8.0] * 7
    assert work(150)
    assert schedule.replan() == "longest"
    assert not work(0)


def test_affinity_moves_few_states() -> None:
    costs = np.random.default_rng(0).uniform(0.5, 2.0, (16, 1)).repeat(4, axis=1)
    moves = {
        policy: simulate(costs, 4, epochs=5, policy=policy, noise=0.05).moves
        for policy in ("affinity", "longest")
    }
    assert 3 * moves["affinity"] < moves["longest"]


def test_a_move_that_costs_makes_affinity_the_choice() -> None:
    costs = np.ones((16, 4))
    load = Workload(candidates=16, partitions=4, epochs=3, seed=0, validates=True, free=True)
    policy, found = choose(costs, {"": 4}, load, {}, move_s=0.5)
    assert policy == "affinity" and set(found) == {"affinity", "longest"}
    assert found["affinity"].makespan_s < found["longest"].makespan_s


def test_validation_merge_and_groups_take_their_time() -> None:
    costs, more = np.ones((2, 4)), np.array([0.5, 0.5])
    mop = simulate(costs, 2, validation=more)
    assert mop.makespan_s == mop.lower_bound_s == 4.5
    average = simulate(costs, 8, strategy="model_average", validation=more, merge=more)
    assert average.makespan_s == average.lower_bound_s == 2.0
    parallel = simulate(costs, 4, strategy="data_parallel", group=2, sync_s=0.25)
    assert parallel.makespan_s == 2.5 and parallel.hops == 4


def test_a_partition_without_a_worker_is_refused() -> None:
    with pytest.raises(ValueError, match="no node that has a worker"):
        simulate(np.ones((1, 2)), {"a": 1}, placement={0: frozenset("b")})


def test_the_lower_bound_is_the_longest_of_candidate_node_and_share() -> None:
    work = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert lower_bound(work, {"": 4}, {}) == 7
    assert lower_bound(work, {"": 1}, {}) == 10
    assert lower_bound(np.ones((6, 2)), {"a": 1, "b": 1}, {0: frozenset("a")}) == 6
    assert lower_bound(np.ones((6, 2)), {"a": 2, "b": 1}, {}) == 4


def test_a_run_too_large_to_simulate_whole_chooses_a_policy_on_many_nodes() -> None:
    case = Case(400, 200)
    slots, placement = nodes_of(case.workers)
    known = {c: TrainingProgress(hop_s=1.0 + c % 8) for c in range(case.candidates)}
    schedule = begin(case.load, known, placement=placement)
    idle = enlist(schedule, slots)
    assert len(schedule.assign(list(idle))) == case.workers
    assert schedule.replan() in ("rotation", "longest")


@pytest.mark.parametrize(("free", "stale"), [(True, True), (False, False)])
def test_only_where_policies_differ_are_they_simulated_on_measured_costs(
    free: bool, stale: bool
) -> None:
    slots, placement = nodes_of(8)
    schedule = begin(replace(Case(16, 8).load, free=free), placement=placement)
    idle = enlist(schedule, slots)
    for _ in range(8):  # every candidate has had a hop
        for assignment in schedule.assign(list(idle)):
            schedule.take(Done(assignment.worker, 1.0))
    assert all(progress.hop_s == 1.0 for progress in schedule.progress)
    assert schedule.stale is stale
