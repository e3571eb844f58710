"""What holds of every estimate, whatever the load and the cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmdb.errors import EmptySearch, InvalidOption, TooFewRows
from mmdb.plan import EXECUTED, PHASES, Cluster, CostedWorkload, Estimate, cluster_of, explain
from mmdb.plan.cost_columns import columns
from mmdb.plan.strategies import chain_s
from tests.unit.plan.loads import COST, alone, cluster_with, clusters, load_of, loads

few = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def best(found: list[Estimate], strategy: str) -> Estimate:
    return next(e for e in found if e.strategy == strategy)


@given(loads(), clusters())
@few
def test_nothing_is_below_its_bound(load: CostedWorkload, cluster: Cluster) -> None:
    for estimate in explain(load, cluster):
        assert estimate.p50_s >= estimate.lower_bound_s * (1 - 1e-9)
        assert 0 < estimate.p10_s <= estimate.p50_s <= estimate.p90_s


@given(loads(), clusters())
@few
def test_phases_are_what_the_workers_do(load: CostedWorkload, cluster: Cluster) -> None:
    for estimate in explain(load, cluster):
        phases = [getattr(estimate, f"{name}_s") for name in PHASES]
        assert min(phases) >= 0
        total = estimate.knobs.workers * estimate.p50_s
        assert sum(phases) == pytest.approx(total, rel=0.02), estimate


@given(loads(), clusters(), st.floats(1.01, 3))
@few
def test_more_work_takes_no_less(load: CostedWorkload, cluster: Cluster, factor: float) -> None:
    """Of one worker, and of every strategy's bound and formula."""
    more = tuple(
        alone(c, row_s=c.row_s * factor, step_s=c.step_s * factor) for c in load.candidates
    )
    before = {e.knobs: e for e in explain(load, cluster)}
    after = {e.knobs: e for e in explain(replace(load, candidates=more), cluster)}
    assert before.keys() == after.keys()
    for knobs, estimate in before.items():
        assert after[knobs].lower_bound_s >= estimate.lower_bound_s * (1 - 1e-9)
        if knobs.workers == 1:
            assert after[knobs].p50_s > estimate.p50_s


@given(loads())
@few
def test_one_worker_takes_the_sum(load: CostedWorkload) -> None:
    load, cluster = replace(load, placement={}), cluster_with(1)
    table = columns(load, cluster)
    read_s = float(table.read_s.sum()) + table.read_validation_s
    expected = float(chain_s(table).sum()) + read_s
    estimates = explain(load, cluster, live_bytes=1e15)
    left_s = load.epochs * table.partitions * float(table.publish_s.sum())
    assert best(estimates, "task").p50_s == pytest.approx(expected)
    assert expected * (1 - 1e-9) <= best(estimates, "mop").p50_s <= (expected + left_s) * (1 + 1e-9)
    for strategy in ("mop", "task"):
        assert best(estimates, strategy).idle_s == pytest.approx(0, abs=1e-6 * expected)


def test_equal_candidates_keep_as_many_workers_busy() -> None:
    load = load_of(8, 4, cost=alone(COST, deviation=0.0, read_row_s=0.0, state_bytes=0.0))
    found = best(explain(load, cluster_with(4), workers=4), "mop")
    assert found.exact
    assert found.p50_s == pytest.approx(found.lower_bound_s, rel=0.02)


def test_workers_that_begin_late_share_what_they_missed() -> None:
    cost = alone(COST, deviation=0.0, read_row_s=0.0, state_bytes=0.0)
    load, cluster = load_of(8, 4, cost=cost, epochs=3), cluster_with(2)
    hop_s = float(columns(load, cluster).hops().max())
    for hops in (None, 20):  # all of them, and an epoch that stands for the others
        at_once = best(explain(load, cluster, workers=2, hops=hops), "mop")
        late = best(explain(load, replace(cluster, late_s=1.0), workers=2, hops=hops), "mop")
        assert late.p50_s - at_once.p50_s == pytest.approx(0.5, abs=2 * hop_s)


def test_between_hops_workers_are_idle() -> None:
    load, cluster = load_of(2, 4, cost=alone(COST, deviation=0.0)), cluster_with(1)
    without = best(explain(load, cluster), "task")
    found = best(explain(load, replace(cluster, gap_s=0.5)), "task")
    assert found.p50_s - without.p50_s == pytest.approx(0.5 * found.hops)
    assert found.idle_s == pytest.approx(0.5 * found.hops, rel=1e-6)
    assert found.hop_s == pytest.approx(without.hop_s)


def test_rotation_keeps_candidates_in_step_where_nodes_hold_their_partitions() -> None:
    cost = alone(COST, deviation=0.0, read_row_s=0.0, state_bytes=0.0, build_s=0.0)
    cluster = replace(cluster_with(1, 1, 1, 1), shards=True)
    found = best(explain(load_of(4, 4, cost=cost, epochs=3), cluster, workers=4), "mop")
    assert found.p50_s == pytest.approx(found.lower_bound_s, rel=1e-6)


def test_more_workers_are_faster_until_candidates_run_out() -> None:
    found = explain(load_of(4, 4), cluster_with(8), kinds=["mop"])
    by_workers = {e.knobs.workers: e.p50_s for e in found}
    assert sorted(by_workers) == [1, 2, 3, 4]
    assert by_workers[4] < by_workers[2] < by_workers[1]


def test_a_slow_network_speaks_against_data_parallelism() -> None:
    load = load_of(1, 4, cost=alone(COST, step_s=0.0, row_s=1e-3, batch_size=256))
    fast, slow = (
        cluster_of({"nodes": 4, "link": {"bytes_per_s": rate}}, cluster_with(1))
        for rate in (1e10, 1e6)
    )
    assert best(explain(load, fast), "data_parallel").p50_s < best(explain(load, fast), "mop").p50_s
    assert best(explain(load, slow), "data_parallel").p50_s > best(explain(load, slow), "mop").p50_s


def test_only_what_mmdb_does_is_executed() -> None:
    for estimate in explain(load_of(4, 4), cluster_with(4)):
        assert estimate.executed == (estimate.strategy in EXECUTED)


def test_the_best_comes_first_and_what_cannot_be_last() -> None:
    cluster = replace(cluster_with(4), nodes=(replace(cluster_with(4).nodes[0], memory_bytes=5e8),))
    found = explain(load_of(4, 4), cluster)
    places = [(not e.feasible, not e.executed, e.p50_s) for e in found]
    assert places == sorted(places)
    assert {e.executed for e in found if e.feasible} == {True, False}
    assert found[-1].why_not.endswith("on node 'a', which has 500 MB")


def test_a_model_that_fits_nowhere_says_why() -> None:
    found = explain(load_of(2, 2, cost=alone(COST, memory_bytes=1e13)), cluster_with(2))
    plain = [e for e in found if e.strategy == "mop"]
    assert all("need" in e.why_not for e in plain)


def test_bytes_are_limited() -> None:
    for estimate in explain(load_of(4, 4), cluster_with(2), bytes_limit=1e6):
        assert not estimate.feasible
        assert estimate.why_not.endswith("and the limit is 1 MB")


def test_fewer_workers_where_their_hours_count() -> None:
    cluster = cluster_with(4, slowdown=(1.0, 1.5, 2.0, 2.5))
    quick = explain(load_of(8, 4), cluster)[0]
    cheap = explain(load_of(8, 4), cluster, objective="worker_hours")[0]
    assert cheap.knobs.workers == 1 < quick.knobs.workers


def test_partitions_and_batches_are_tried_where_asked() -> None:
    found = explain(load_of(2, 4), cluster_with(2), batches=[None, 8], partitions=[2, 4])
    assert {(e.knobs.partitions, e.knobs.batch_size) for e in found} == {
        (2, None),
        (2, 8),
        (4, None),
        (4, 8),
    }


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"candidates": ()}, EmptySearch),
        ({"rows": ()}, TooFewRows),
        ({"rows": (5, 0)}, TooFewRows),
        ({"epochs": 0}, InvalidOption),
        ({"validation_rows": -1}, InvalidOption),
        ({"candidates": (alone(COST, row_s=-1.0),)}, InvalidOption),
        ({"candidates": (alone(COST, state_bytes=float("nan")),)}, InvalidOption),
        ({"candidates": (alone(COST, batch_size=0),)}, InvalidOption),
        ({"candidates": (alone(COST, row_s=0.0, step_s=0.0),)}, InvalidOption),
        ({"placement": {0: frozenset({"nowhere"})}}, InvalidOption),
    ],
)
def test_a_load_that_is_none_is_refused(changes: dict[str, object], error: type) -> None:
    with pytest.raises(error):
        explain(replace(load_of(2, 2), **changes), cluster_with(2))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [{"workers": 0}, {"workers": 9}, {"group": 0}, {"kinds": ["x"]}]
)
def test_options_that_cannot_be_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidOption):
        explain(load_of(2, 2), cluster_with(2), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("candidates", "partitions", "nodes"), [(100, 16, 1), (1000, 1000, 1000)])
def test_large_loads_have_a_way_that_is_feasible(
    candidates: int, partitions: int, nodes: int
) -> None:
    mixed = [alone(COST, row_s=COST.row_s * (1 + k % 7)) for k in range(candidates)]
    load = replace(load_of(1, partitions, epochs=3, validation_rows=500), candidates=tuple(mixed))
    cluster = cluster_of({"nodes": nodes, "slots": 16 // min(nodes, 16)}, cluster_with(1))
    found = explain(load, cluster)
    assert found[0].feasible
    assert all(one.lower_bound_s <= one.p90_s for one in found if one.feasible)
