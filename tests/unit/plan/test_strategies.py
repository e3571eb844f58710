"""Each strategy's formula, on loads small enough to be worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mmdb.plan import (
    Cluster,
    ClusterNode,
    CostedWorkload,
    Estimate,
    LayerCost,
    Link,
    cluster_of,
    explain,
)
from mmdb.plan.cost import StrategyName
from mmdb.plan.search_space import blocks
from mmdb.plan.step import CandidateCost
from mmdb.plan.strategies import Terms

#: One second a step of ten rows, one byte of state and of gradients; nothing else costs anything.
PLAIN = CandidateCost(
    step_s=0.5,
    row_s=0.05,
    batch_size=10,
    state_bytes=1.0,
    gradient_bytes=1.0,
    memory_bytes=100.0,
    deviation=0.0,
)
FREE = Link(latency_s=0.0, bytes_per_s=1e12)


def cluster(slots: int = 4, **given: Any) -> Cluster:
    none: dict[str, Any] = {"local": FREE, "link": FREE, "start_s": 0.0, "meet_s": 0.0}
    return Cluster(nodes=(ClusterNode(name="a", slots=slots),), **(none | given))


def load(candidates: int = 4, cost: CandidateCost = PLAIN, **given: Any) -> CostedWorkload:
    """Each of 4 partitions takes ten steps, so ten seconds of one worker."""
    return CostedWorkload(
        candidates=(cost,) * candidates, rows=given.pop("rows", (100,) * 4), **given
    )


def terms_of(
    kind: StrategyName,
    workers: int,
    some: CostedWorkload,
    where: Cluster,
    group: int | None = None,
    micro: int = 0,
) -> Terms:
    """Return the terms of the one allocation, or of the first block with so many micro-batches."""
    found = blocks(some, where, kinds=[kind], live=0.0, workers=workers, group=group)
    return next(b.terms for b in found if not micro or b.terms.micro_batches == micro)


def seconds(*args: Any, **given: Any) -> float:
    return float(terms_of(*args, **given).seconds[0])


@pytest.mark.parametrize(("workers", "expected"), [(1, 160.0), (2, 85.0), (4, 47.5)])
def test_mop_shares_the_work(workers: int, expected: float) -> None:
    """160 seconds, and half a hop of 10 in which the others have nothing left."""
    found = terms_of("mop", workers, load(), cluster())
    idle_s = (1 - 1 / workers) * 5
    assert float(found.seconds[0]) == pytest.approx(160 / workers + idle_s)
    assert float(found.seconds[0]) == pytest.approx(expected, rel=0.1)
    assert float(found.bound_s[0]) == pytest.approx(160 / workers)


def test_mop_counts_what_a_hop_costs_besides() -> None:
    cost = replace(PLAIN, hop_s=1.0, build_s=2.0, validation_row_s=0.1, read_row_s=0.01)
    some = load(1, cost, validation_rows=50, epochs=2)
    where = cluster(1, encode_byte_s=0.5, checkpoint_byte_s=3.0, publish_byte_s=0.25)
    begin, leave, durable, validate = 2.5, 1.5, 3.25, 6.0
    read = 0.01 * (400 + 50)
    expected = 2 * (40 + 4 * leave + durable + validate) + begin + read
    found = terms_of("mop", 1, some, where)
    assert float(found.bound_s[0]) == pytest.approx(expected)
    assert float(found.validation_s[0]) == pytest.approx(2 * validate)
    assert float(found.compute_s[0]) == pytest.approx(80)


def test_task_gives_each_worker_whole_candidates() -> None:
    assert seconds("task", 3, load(4), cluster()) == pytest.approx(80)
    assert seconds("task", 4, load(4), cluster()) == pytest.approx(40)


def test_model_average_trains_a_candidate_on_all_workers() -> None:
    some = load(1, replace(PLAIN, hop_s=1.0), epochs=2)
    found = terms_of("model_average", 4, some, cluster())
    assert float(found.bound_s[0]) == pytest.approx(2 * (10 + 1 + 1))
    turns = terms_of("model_average", 2, some, cluster())
    assert float(turns.seconds[0]) >= 2 * (2 * 11 + 1)


def test_merging_reads_every_state() -> None:
    some = load(1)
    free, merging = (
        seconds("model_average", 4, some, cluster(merge_byte_s=rate)) for rate in (0.0, 0.5)
    )
    assert merging - free >= 4 * 0.5 * (1 / 4)
    bound = terms_of("model_average", 4, some, cluster(merge_byte_s=0.5)).bound_s
    assert float(bound[0]) == pytest.approx(10 + 4 * 0.5)


def test_data_parallel_splits_batches() -> None:
    """Two rounds of two partitions: 20 steps of 0.5 seconds, 5 rows each at 0.05."""
    some = load(1)
    assert seconds("data_parallel", 2, some, cluster(), 2) == pytest.approx(2 * (20 * 0.5 + 5))
    waits = cluster(local=replace(FREE, latency_s=0.1))
    assert seconds("data_parallel", 2, some, waits, 2) == pytest.approx(30 + 40 * 0.2)


def test_groups_train_side_by_side() -> None:
    one, two = (seconds("data_parallel", w, load(4), cluster(), 2) for w in (2, 4))
    assert [one, two] == pytest.approx([4 * 30, 2 * 30])


def test_the_last_round_has_what_is_left() -> None:
    some = load(1, rows=(100,) * 3)
    assert seconds("data_parallel", 2, some, cluster(), 2) == pytest.approx(15 + 10)


def test_exchanges_that_overlap_are_hidden() -> None:
    where = cluster(local=replace(FREE, latency_s=0.01))
    kinds: tuple[StrategyName, ...] = (
        "data_parallel",
        "data_parallel_tree",
        "data_parallel_overlap",
    )
    plain, tree, hidden = (seconds(kind, 2, load(1), where, 2) for kind in kinds)
    assert hidden <= plain
    assert tree == pytest.approx(plain), "of two workers a tree is a ring"


def test_servers_wait_for_all_workers_or_for_none() -> None:
    where = cluster(4, local=replace(FREE, latency_s=0.05))
    sync = seconds("parameter_server", 2, load(1), where)
    assert sync == pytest.approx(40 * (0.5 + 0.05 * 10 / 2 + 0.1))
    free = seconds("parameter_server_async", 2, load(1), where)
    assert free == pytest.approx(40 * (1.0 + 0.1) / 2)


def test_a_pipeline_fills_and_empties() -> None:
    cost = replace(PLAIN, layers=(LayerCost(1.0, 0.0, 1.0),) * 4, step_s=0.0, row_s=0.1)
    some = load(1, cost)
    assert seconds("partitioned", 2, some, cluster(), 2) == pytest.approx(40)
    piped = seconds("pipeline", 2, some, cluster(), 2, micro=4)
    assert piped == pytest.approx(40 * (2 + 4 - 1) / (2 * 4))


def test_a_stage_holds_its_part_of_the_model() -> None:
    cost = replace(PLAIN, layers=(LayerCost(1.0, 0.0, 1.0),) * 4, memory_bytes=102.0)
    found = terms_of("partitioned", 4, load(1, cost), cluster(), 4)
    assert found.memory_bytes == pytest.approx(100 + 2 / 4)


def test_what_is_slowed_down_takes_longer_and_is_worth_less() -> None:
    slow = replace(cluster(2), nodes=(ClusterNode(name="a", slots=2, slowdown=(1.0, 1.6)),))
    found = terms_of("mop", 2, load(), slow)
    assert float(found.bound_s[0]) == pytest.approx(160 / (2 / 1.6))
    assert float(found.seconds[0]) == pytest.approx(1.6 * (80 + 2.5))


def test_the_busiest_node_bounds_what_lies_there_alone() -> None:
    where = cluster_of({"nodes": [{"name": "a", "slots": 1}, {"name": "b", "slots": 3}]}, cluster())
    held = {p: frozenset({"a" if p < 3 else "b"}) for p in range(4)}
    found = next(blocks(load(placement=held), where, kinds=["mop"], live=0.0, workers=4))
    assert found.terms.bound_s.tolist() == [pytest.approx(120.0)] * len(found.allocations)


def test_states_that_a_worker_keeps_take_memory() -> None:
    where = cluster(1)
    few, many = (
        next(blocks(load(4), where, kinds=["mop"], live=live)).terms.memory_bytes
        for live in (0.0, 1e9)
    )
    assert (few, many) == (100.0, 103.0)


def simulated(
    kind: StrategyName, workers: int, some: CostedWorkload, where: Cluster, **given: Any
) -> Estimate:
    found = explain(some, where, kinds=[kind], workers=workers, **given)
    return next(e for e in found if e.exact)


@pytest.mark.parametrize("kind", ["mop", "task", "model_average", "data_parallel"])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_formulas_are_close_to_what_the_schedule_does(kind: StrategyName, workers: int) -> None:
    cost = replace(PLAIN, hop_s=0.2, build_s=0.1, validation_row_s=0.01, read_row_s=1e-4)
    some = CostedWorkload(
        candidates=tuple(replace(cost, row_s=0.05 * (1 + k % 3)) for k in range(9)),
        rows=(100,) * 4,
        validation_rows=100,
        epochs=3,
    )
    where = cluster(4, encode_byte_s=0.05, load_byte_s=0.1, publish_byte_s=0.05)
    group = 2 if kind == "data_parallel" else None
    formula = seconds(kind, workers, some, where, group=group)
    found = simulated(kind, workers, some, where, group=group)
    assert found.p50_s == pytest.approx(formula, rel=0.15)
    assert found.p50_s >= found.lower_bound_s
    assert found.hops == 9 * 3 * (5 + (kind == "model_average"))


def test_a_smaller_load_stands_for_a_larger_one() -> None:
    """What is simulated in part comes close to what is simulated whole."""
    mixed = [replace(PLAIN, row_s=0.05 * (1 + k % 5), hop_s=0.1) for k in range(40)]
    some = CostedWorkload(candidates=tuple(mixed), rows=(100,) * 12, epochs=2, validation_rows=50)
    whole = explain(some, cluster(4), kinds=["mop"], workers=4, hops=50_000)[0]
    part = explain(some, cluster(4), kinds=["mop"], workers=4, hops=600)[0]
    assert (whole.exact, part.exact) == (True, False)
    assert part.p50_s == pytest.approx(whole.p50_s, rel=0.03)
    assert np.isfinite(part.p90_s)
