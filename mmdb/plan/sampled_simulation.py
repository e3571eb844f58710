"""The simulation of one way of training: all its hops, or those of a smaller workload like it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mmdb.plan.cost import Cluster, ClusterNode, CostedWorkload, Knobs
from mmdb.plan.cost_columns import Columns, columns
from mmdb.plan.group_strategies import MESSAGES, exchange_s, round_compute_s, round_steps
from mmdb.plan.search_space import StrategyBlock
from mmdb.plan.simulation import HopSeconds, SimulationResult, run
from mmdb.train.schedule import Placement, Policy, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledWorkload:
    """A workload like another one, with every k-th candidate, partition and worker."""

    load: CostedWorkload
    cluster: Cluster
    counts: tuple[int, ...]  # workers of each node
    whole: bool  # whether it is all of it


def sample_of(block: StrategyBlock, cluster: Cluster, number: int, hops: int) -> SampledWorkload:
    """Return a workload like a block's in its allocation `number`, with at most about so many hops.

    First epochs are left out, then every second, third, ... candidate, partition and worker. What
    it takes by simulation, over what it takes by its formula, holds for the whole. Workers begin
    late in the whole alone.
    """
    load, counts = block.load, block.allocations.counts[number]
    names = [node.name for node in cluster.nodes]
    used = [k for k in range(len(names)) if counts[k]]
    visits = len(load.rows) + bool(load.validation_rows) + (block.strategy == "model_average")
    in_epoch = len(load.candidates) * visits
    epochs = max(1, min(load.epochs, hops // in_epoch))
    k = math.ceil(math.sqrt(in_epoch / hops)) if in_epoch > hops else 1
    if k == 1:
        nodes = tuple(cluster.nodes[n] for n in used)
        small, whole = replace(load, epochs=epochs), epochs == load.epochs
        kept = tuple(int(counts[n]) for n in used)
        return SampledWorkload(
            load=small,
            cluster=replace(cluster, nodes=nodes, late_s=cluster.late_s if whole else 0.0),
            counts=kept,
            whole=whole,
        )
    weights = block.table.train_epoch_s
    chosen = np.sort(np.argsort(weights, kind="stable")[::k]).tolist()
    rows = load.rows[::k]
    fewest = block.terms.group
    if len(used) >= k * 2:
        used = used[::k]
        kept = tuple(int(counts[n]) for n in used)
    else:
        kept = tuple(max(min(fewest, int(counts[n])), int(counts[n]) // k) for n in used)
    nodes = tuple(cluster.nodes[n] for n in used)
    placement = _placed(load, nodes, k, len(rows)) if load.placement else {}
    small = replace(
        load,
        candidates=tuple(load.candidates[c] for c in chosen),
        rows=rows,
        epochs=epochs,
        placement=placement,
    )
    few = replace(cluster, nodes=nodes, late_s=0.0)
    return SampledWorkload(load=small, cluster=few, counts=kept, whole=False)


def _placed(load: CostedWorkload, nodes: Sequence[ClusterNode], k: int, parts: int) -> Placement:
    names = [node.name for node in nodes]
    found = {}
    for part in range(parts):
        held = load.placement.get(part * k, frozenset()) & frozenset(names)
        found[part] = held or frozenset({names[part % len(names)]})
    return found


def simulate_sample(
    part: SampledWorkload, knobs: Knobs, live: float, seed: int, noisy: bool = True
) -> SimulationResult:
    """Return what a workload comes to when its schedule decides over simulated hops."""
    load, cluster = part.load, part.cluster
    table = columns(load, cluster, knobs.batch_size)
    work = Workload(
        candidates=table.candidates,
        partitions=table.partitions,
        epochs=load.epochs,
        seed=seed,
        validates=table.validates,
        free=load.free,
        strategy=knobs.strategy,
        group=knobs.group,
    )
    policy: Policy | None = knobs.policy  # type: ignore[assignment]
    slots = {
        node.name: (count, node.slowdown)
        for node, count in zip(cluster.nodes, part.counts, strict=True)
        if count
    }
    seconds = _seconds(table, cluster, knobs, live, table.deviation if noisy else 0.0)
    return run(
        seconds,
        work,
        slots,
        placement=load.placement,
        policy=policy,
        source=np.random.default_rng(seed),
    )


def _seconds(
    table: Columns, cluster: Cluster, knobs: Knobs, live: float, noise: float
) -> HopSeconds:
    exchanges: dict[int, list[float]] = {}
    rows = table.rows.tolist()

    def round_s(c: int, parts: Sequence[int]) -> tuple[float, float]:
        members, some = len(parts), [rows[p] for p in parts]
        if members not in exchanges:
            found = exchange_s(table, cluster, members, knobs.per_node)
            exchanges[members] = found.tolist()
        batch = float(table.batch_size[c])
        one = (batch, float(table.step_s[c]), float(table.row_s[c]), table.deviation)
        wire = float(round_steps(some, batch)) * exchanges[members][c]
        return float(round_compute_s(some, *one)), wire + MESSAGES * cluster.start_s

    return HopSeconds(
        train=table.hops(),
        validation=table.validate_s,
        merge=table.merge_s,
        begin=table.begin_s,
        take=table.take_s,
        leave=table.leave_s,
        publish=table.publish_s,
        durable=table.durable_s,
        read=table.read_s,
        read_validation_s=table.read_validation_s,
        state_bytes=table.state_bytes,
        round=round_s,
        meet_s=cluster.meet_s,
        gap_s=table.gap_s,
        late_s=cluster.late_s,
        live_bytes=live,
        noise=noise,
    )
