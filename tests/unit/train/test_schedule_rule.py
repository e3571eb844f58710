"""More workers than candidates, and what `auto` stands for."""

from __future__ import annotations

import numpy as np
import pytest

from mmdb.train.schedule import Workload, fewer, rule


def load_of(candidates: int, epochs: int = 1) -> Workload:
    return Workload(
        candidates=candidates, partitions=4, epochs=epochs, seed=0, validates=False, free=True
    )


def test_a_group_is_taken_where_gradients_are_cheap_to_exchange() -> None:
    found = fewer(np.ones((1, 4)), 4, epochs=3)
    assert (found.choice, found.group) == ("group", 4)
    assert found.seconds == {"idle": 12, "replicas": 12, "group": 3}


@pytest.mark.parametrize("sync_s", [2.3, 10.0])
def test_workers_stay_idle_where_gradients_are_dear(sync_s: float) -> None:
    found = fewer(np.ones((1, 4)), 4, sync_s=sync_s)
    assert (found.choice, found.group) == ("idle", 1)


def test_the_smallest_group_of_as_few_rounds_is_taken() -> None:
    found = fewer(np.ones((1, 4)), 3)
    assert (found.choice, found.group) == ("group", 2)  # three would need two rounds as well


def test_replicas_are_taken_where_one_node_is_the_bottleneck() -> None:
    costs = np.tile([4.0, 1.0], (3, 1))
    placement = {0: frozenset({"a"}), 1: frozenset({"b"})}
    slots = {"a": 1, "b": 3}
    found = fewer(costs, slots, placement=placement)
    assert found.choice == "replicas" and found.seconds["idle"] == 12
    assert found.seconds["replicas"] == 5
    assert fewer(costs, slots, placement=placement, copy_s=8).choice == "idle"


def test_enough_candidates_train_by_mop() -> None:
    strategy, group, reason = rule(load_of(4), 4, np.ones((4, 4)))
    assert (strategy, group) == ("mop", 1) and "busy" in reason


def test_without_costs_the_number_of_workers_changes_no_result() -> None:
    assert rule(load_of(1), 16)[:2] == ("mop", 1)


def test_measured_costs_may_favour_a_group_for_each() -> None:
    strategy, group, reason = rule(load_of(2), 8, np.ones((2, 4)))
    assert (strategy, group) == ("data_parallel", 4) and "75% less" in reason
    assert rule(load_of(2), 8, np.ones((2, 4)), sync_s=9)[0] == "mop"
