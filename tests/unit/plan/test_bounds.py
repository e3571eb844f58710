"""No simulated run, whole and without noise, ends before its strategy's bound."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import HealthCheck, given, settings

from mmdb.plan import EXECUTED, Cluster, CostedWorkload, Knobs
from mmdb.plan.search_space import StrategyBlock, blocks, sample_of, simulate_sample, why_not
from tests.unit.plan.loads import clusters, loads


@given(loads(), clusters())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_run_ends_before_its_bound(load: CostedWorkload, cluster: Cluster) -> None:
    for block in blocks(load, cluster, kinds=EXECUTED, live=1e8):
        reasons = why_not(block, cluster)
        for number in (k for k, reason in enumerate(reasons) if not reason):
            for policy in block.policies:
                check(block, cluster, number, policy)


def check(block: StrategyBlock, cluster: Cluster, number: int, policy: str | None) -> None:
    some = block.allocations
    knobs = Knobs(
        strategy=block.strategy,
        workers=int(some.workers[number]),
        per_node=int(some.per_node[number]),
        partitions=len(block.load.rows),
        group=block.terms.group,
        policy=policy,
    )
    part = sample_of(block, cluster, number, 10**9)
    with suppress(ValueError):  # a round's partitions lie where it has too few workers
        trace = simulate_sample(part, knobs, 1e8, seed=0, noisy=False)
        bound_s = float(block.terms.bound_s[number])
        assert trace.makespan_s >= bound_s * (1 - 1e-9), (knobs, bound_s)
