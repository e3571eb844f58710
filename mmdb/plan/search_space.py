"""The ways in which a workload could be trained on a cluster, by formula and by simulation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mmdb.messages import bytes_text
from mmdb.plan.cost import Cluster, ClusterNode, CostedWorkload, Knobs, StrategyName
from mmdb.plan.cost_columns import (
    Columns,
    WorkerAllocations,
    columns,
    exclusive,
    in_turn,
    repartitioned,
    worker_allocations,
)
from mmdb.plan.group_strategies import (
    MESSAGES,
    How,
    data_parallel,
    exchange_s,
    parameter_server,
    pipeline,
    round_compute_s,
    round_steps,
)
from mmdb.plan.simulation import HopSeconds, SimulationResult, run
from mmdb.plan.strategies import CostInputs, Terms, model_average, mop, task
from mmdb.train.schedule import Placement, Policy, Workload
from mmdb.train.schedule.portfolio import candidates_of

#: Workers of a group, stages and micro-batches of a pipeline, parameter servers that are tried.
GROUPS, STAGES, MICRO_BATCHES, SERVERS = (2, 3, 4, 8, 16, 32), (2, 4, 8), (4, 16), (1, 4, 16)
#: How each kind of data parallelism exchanges gradients.
HOW: dict[StrategyName, How] = {
    "data_parallel": "direct",
    "data_parallel_tree": "tree",
    "data_parallel_overlap": "overlap",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyBlock:
    """One strategy with its knobs, on several allocations."""

    strategy: StrategyName
    load: CostedWorkload  # with the partitions and placement of this block
    table: Columns
    allocations: WorkerAllocations
    terms: Terms
    batch_size: int | None
    policies: tuple[str | None, ...] = (None,)


def blocks(
    load: CostedWorkload,
    cluster: Cluster,
    *,
    kinds: Sequence[StrategyName],
    live: float,
    workers: int | None = None,
    group: int | None = None,
    batches: Sequence[int | None] = (None,),
    partitions: Sequence[int] = (),
) -> Iterator[StrategyBlock]:
    """Yield every strategy with every combination of knobs.

    Args:
        workers, group: to be obeyed; None for any.
        batches: None for each candidate's own.
        partitions: how many; what the workload has if left out.
    """
    for count in partitions or (len(load.rows),):
        cut = repartitioned(load, count)
        if cluster.shards and not cut.placement:
            cut = replace(cut, placement=in_turn(count, [node.name for node in cluster.nodes]))
        for batch in batches:
            table = columns(cut, cluster, batch)
            for kind in kinds:
                yield from _of_kind(kind, cut, cluster, table, batch, live, workers, group)


def useful_workers(kind: StrategyName, load: CostedWorkload) -> int:
    """Return how many workers a strategy can use (mmdb.train.drive.train_run.useful_workers)."""
    at_once = 1 if kind in ("mop", "task") else len(load.rows)
    return max(1, len(load.candidates) * at_once)


def _of_kind(
    kind: StrategyName,
    load: CostedWorkload,
    cluster: Cluster,
    table: Columns,
    batch: int | None,
    live: float,
    workers: int | None,
    group: int | None,
) -> Iterator[StrategyBlock]:
    most = max(useful_workers(kind, load), len(exclusive(cluster, load)))
    wanted = None if workers is None else min(workers, most)
    allocations = worker_allocations(cluster, load, wanted, most)
    costs = CostInputs(table, allocations, cluster, load, live)

    def block(
        costs: CostInputs, terms: Terms, policies: tuple[str | None, ...] = (None,)
    ) -> StrategyBlock:
        return StrategyBlock(
            strategy=kind,
            load=load,
            table=table,
            allocations=costs.allocations,
            terms=terms,
            batch_size=batch,
            policies=policies,
        )

    if kind in ("mop", "task", "model_average"):
        policies = policies_of(load) if kind == "mop" else (None,)
        yield block(costs, scheduled(kind, costs), policies)
    elif kind in HOW:
        for size in GROUPS if group is None else (group,):
            if 1 < size <= table.partitions:
                for some in _of_one_link(costs, size):
                    yield block(some, scheduled(kind, some, size))
    elif kind in ("parameter_server", "parameter_server_async"):
        some = costs.only(allocations.workers > 1)
        late = kind == "parameter_server_async"
        for count in {min(servers, len(cluster.nodes)) for servers in SERVERS}:
            if len(some.allocations):
                terms = parameter_server(some, count, asynchronous=late)
                yield block(some, terms)
    else:
        fewest = min(map(len, table.layers))
        for size in STAGES if group is None else (group,):
            for some in _of_one_link(costs, size) if size <= fewest else ():
                for micro in (1,) if kind == "partitioned" else MICRO_BATCHES:
                    piped = pipeline(some, size, micro)
                    yield block(some, piped)


def _of_one_link(costs: CostInputs, size: int) -> Iterator[CostInputs]:
    """Yield the allocations with room for a group on one node, and those with room on several."""
    enough, fits = costs.allocations.workers >= size, costs.allocations.per_node >= size
    for chosen in (enough & fits, enough & ~fits):
        if chosen.any():
            yield costs.only(chosen)


def scheduled(kind: StrategyName, costs: CostInputs, group: int = 1) -> Terms:
    """Return the formula's terms of a strategy whose hops the scheduler decides on."""
    alone = {"mop": mop, "task": task, "model_average": model_average}
    return alone[kind](costs) if kind in alone else data_parallel(costs, group, HOW[kind])


def policies_of(load: CostedWorkload) -> tuple[str, ...]:
    """Return the policies of hops that a real run may follow.

    On one node it is `affinity`; on several the run chooses by simulating
    (mmdb.train.schedule.portfolio).
    """
    if not load.placement:
        return ("affinity",)
    wanted = Workload(
        candidates=len(load.candidates),
        partitions=len(load.rows),
        epochs=load.epochs,
        seed=0,
        validates=bool(load.validation_rows),
        free=load.free,
    )
    return tuple(candidates_of(wanted, load.placement))


def why_not(block: StrategyBlock, cluster: Cluster) -> list[str]:
    """Return for each allocation of a block why it cannot be; empty where it can."""
    allocations, load = block.allocations, block.load
    needs = block.terms.memory_bytes
    room = np.array([node.memory_bytes for node in cluster.nodes])
    over = allocations.counts * needs > room[None, :]
    alone = exclusive(cluster, load)
    unreached = (allocations.counts[:, alone] == 0).any(axis=1)
    scattered = block.strategy == "task" and _is_scattered(load)
    narrow = _too_narrow(block, cluster)
    found = []
    for k in range(len(allocations)):
        reason = ""
        if scattered:
            reason = "no node holds every partition, so no worker can visit all"
        elif unreached[k]:
            reason = (
                f"{len(alone)} nodes hold partitions that no other has, and each needs a worker"
            )
        elif narrow[k]:
            reason = f"a round of {block.terms.group} partitions needs more workers on one node"
        elif over[k].any():
            node = int(over[k].argmax())
            count, name = int(allocations.counts[k, node]), cluster.nodes[node].name
            reason = (
                f"{'1 worker needs' if count == 1 else f'{count} workers need'} "
                f"{bytes_text(count * needs)} on node {name!r}, "
                f"which has {bytes_text(room[node])}"
            )
        found.append(reason)
    return found


def _too_narrow(block: StrategyBlock, cluster: Cluster) -> npt.NDArray[np.bool_]:
    """Return the allocations where a round may need more workers of a node than it has."""
    allocations, load = block.allocations, block.load
    held = np.zeros(len(cluster.nodes), dtype=np.int64)
    if block.strategy in HOW:
        index = {node.name: k for k, node in enumerate(cluster.nodes)}
        for nodes in load.placement.values():
            if len(nodes) == 1:
                held[index[next(iter(nodes))]] += 1
    return np.asarray(
        (np.minimum(held, block.terms.group)[None, :] > allocations.counts).any(axis=1)
    )


def _is_scattered(load: CostedWorkload) -> bool:
    held = [nodes for part, nodes in load.placement.items() if part >= 0]
    return bool(held) and not frozenset.intersection(*held)


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
