"""The strategies in which several workers train one candidate together.

Data parallelism is executed; parameter servers and pipelines are what-ifs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from mmdb.plan import equations
from mmdb.plan.cost import Cluster, Link
from mmdb.plan.cost_columns import Columns, WorkerAllocations
from mmdb.plan.equations import (
    Floats,
    Number,
    cut,
    longest_first_s,
    pipeline_step_s,
    stage_shares,
    steps,
    straggler,
    way_s,
)
from mmdb.plan.step import LayerCost
from mmdb.plan.strategies import CostInputs, Terms, fastest, live_bytes, reading, slowed, terms

How = Literal["direct", "tree", "overlap"]
#: Collective operations of a round beside its exchanges: two messages, each with its size first.
MESSAGES = 4


def round_steps(rows: Sequence[int], batch_size: Number) -> Floats:
    """Return the steps of a round over partitions of so many rows; see `portion_sizes`."""
    if len(rows) == 1:
        return steps(rows[0], batch_size)
    return np.asarray(np.ceil(sum(rows) / np.asarray(batch_size)))


def round_compute_s(
    rows: Sequence[int], batch_size: Number, step_s: Number, row_s: Number, deviation: Number
) -> Floats:
    """Return (steps * a0 + max n * a1) * straggler: what a round computes on its slowest worker."""
    alone = round_steps(rows, batch_size) * step_s + max(rows) * np.asarray(row_s)
    return np.asarray(alone * equations.straggler(len(rows), deviation))


def exchange_s(
    table: Columns, cluster: Cluster, members: int, per_node: int, how: How = "direct"
) -> Floats:
    """Return what a step waits for each candidate's gradients, (M,).

    Over the link inside a node where one has room for all members, else over that between nodes.
    What groups of as many workers took counts more than the link, for mmdb's own way.
    """
    by_link = _by_link_s(table, cluster, members, per_node, how)
    if how != "direct" or members not in table.exchanges or members > per_node:
        return by_link
    seen = table.exchanges[members]
    return np.where(np.isnan(seen), by_link, seen)


def _by_link_s(table: Columns, cluster: Cluster, members: int, per_node: int, how: How) -> Floats:
    link = cluster.local if members <= per_node else cluster.link
    start_s, sizes = cluster.start_s, table.gradient_bytes
    if members < 2:
        return np.zeros(table.candidates)
    if how == "tree":
        return equations.tree_s(sizes, members, link, start_s)
    if how == "direct":
        return equations.direct_s(sizes, members, link, start_s)
    a_step = table.step_s + table.row_s * table.batch_size / members
    return equations.overlapped_s(sizes, members, link, start_s, a_step)


def data_parallel(costs: CostInputs, group: int, how: How = "direct") -> Terms:
    """Return what groups of `group` workers take; allocations have at least as many.

      steps    = ceil((n_1 + ... + n_g) / batch)                 batch is the group's
      round    = (steps * a0 + max n_i * a1) * straggler + steps * exchange
      q_c      = E * ( sum of ceil(P / g) rounds, each + messages + leave + publish
                       + durable + validate ) + begin
      bound    = max( max_c q_c, sum_c (worker-seconds of q_c) / W ), of full rounds, no stragglers
      about    = longest-first makespan of q on floor(W / g) groups that meet and take the state up

    mmdb exchanges after each backward pass, and hides nothing (`equations.direct_s`). Tree
    exchanges and those that overlap with the backward pass are what-ifs. With fewer groups than
    candidates it is the hybrid: groups of g workers through which candidates hop.
    Source: DDP, PVLDB 13(12) 2020, and Galvatron, PVLDB 16(3) 2022, for the shape of a step;
    `mmdb.train.group.group_pass` for rounds and messages.
    Memory: one candidate's with its batch, its gradients once more, and those that arrive.
    """
    table, allocations, cluster, load, live = costs
    parts, epochs = table.partitions, table.epochs
    size = min(group, parts)
    per_node = int(allocations.per_node.max())
    compute, wire = np.zeros(table.candidates), np.zeros(table.candidates)
    waits: dict[int, Floats] = {}
    for rows in (table.rows[k : k + size].tolist() for k in range(0, parts, size)):
        one = (table.batch_size, table.step_s, table.row_s, table.deviation)
        compute += round_compute_s(rows, *one)
        if len(rows) not in waits:
            waits[len(rows)] = exchange_s(table, cluster, len(rows), per_node, how)
        wire += round_steps(rows, table.batch_size) * waits[len(rows)]
    turns = -(-parts // size)
    leave = turns * (table.leave_s + (MESSAGES * cluster.start_s if size > 1 else 0.0))
    hop = leave + table.durable_s + (turns - 1) * table.publish_s
    chain = epochs * (compute + wire + hop + table.validate_s) + table.begin_s
    meet_s = cluster.meet_s if size > 1 else 0.0
    moved = chain + meet_s + epochs * table.take_s
    groups = np.maximum(allocations.workers // size, 1)
    made = {
        int(n): longest_first_s(moved if n > 1 else chain + meet_s, int(n))
        for n in np.unique(groups)
    }
    factor = slowed(
        cluster, allocations, min(table.candidates * size, int(allocations.workers.max()))
    )
    read_s, once = reading(table, allocations, load)
    at_once = np.minimum(groups, table.candidates) * size
    sent = 2 * (size - 1) * epochs * np.ceil(table.rows.sum() / table.batch_size)
    states = epochs * turns * float(table.state_bytes.sum())
    return terms(
        allocations,
        seconds=(np.array([made[int(n)] for n in groups]) + read_s / at_once) * factor,
        bound_s=_bound_s(table, allocations, cluster, size, per_node, how, once),
        compute_s=epochs * size * float(compute.sum()) * factor,
        read_s=read_s * factor,
        hop_s=epochs * size * float(hop.sum()) * factor,
        communication_s=epochs * size * float(wire.sum()) * factor,
        validation_s=epochs * float(table.validate_s.sum()) * factor,
        bytes_moved=float(sent @ table.gradient_bytes) + states,
        memory_bytes=float((table.memory_bytes + 2 * table.gradient_bytes).max())
        + live_bytes(table, live),
        group=group,
    )


def _bound_s(
    table: Columns,
    allocations: WorkerAllocations,
    cluster: Cluster,
    size: int,
    per_node: int,
    how: How,
    read_once_s: float,
) -> Floats:
    """Return what no order of partitions and groups goes below."""
    full = table.partitions // size
    rows = float(np.sort(table.rows)[: full * size].sum())
    fewest = np.ceil(rows / table.batch_size) - (size == 1) * full  # see `hop.steps`
    fewest = np.maximum(fewest, full)
    each = table.step_s + exchange_s(table, cluster, size, per_node, how)
    leave = full * table.leave_s + table.validate_s
    total = float(table.rows.sum())
    chain = table.epochs * (fewest * each + total / size * table.row_s + leave)
    work = table.epochs * (size * fewest * each + total * table.row_s + leave)
    shared = (float(work.sum()) + read_once_s) / allocations.workers
    return np.asarray(np.maximum(float(chain.max()), shared) * fastest(cluster))


def parameter_server(costs: CostInputs, servers: int, *, asynchronous: bool = False) -> Terms:
    """Return what training through `servers` parameter servers takes.

      synchronous    T = sum_c E * ceil(N / batch) * (a0 + a1 * batch / W + exchange)
      asynchronous   T = sum_c E * ceil(N / batch) / rate          each worker takes whole batches

    The servers take no worker's place. That asynchronous steps learn less (stale gradients) is not
    counted: it changes the epochs needed, not their seconds.
    Source: `equations.synchronous_s`.
    Memory of a worker: one candidate's; the servers hold its state.
    """
    table, allocations, cluster, load, _ = costs
    count = table.epochs * np.ceil(table.rows.sum() / table.batch_size)
    factor = slowed(cluster, allocations, int(allocations.workers.max()))
    compute, wire = np.zeros(len(allocations)), np.zeros(len(allocations))
    for k, workers in enumerate(allocations.workers.tolist()):
        link = cluster.local if allocations.nodes[k] == 1 else cluster.link
        way = (table.gradient_bytes, workers, servers, link, cluster.update_byte_s)
        if asynchronous:
            a_step = (table.step_s + table.row_s * table.batch_size) * factor[k]
            seconds = count / equations.asynchronous_rate(a_step, *way)
            compute[k] = float((count * a_step).sum()) / workers
            wire[k] = max(float(seconds.sum()) - compute[k], 0.0)
        else:
            share = table.step_s + table.row_s * table.batch_size / workers
            compute[k] = float(count @ share) * factor[k] * straggler(workers, table.deviation)
            wire[k] = float(count @ equations.synchronous_s(*way))
    ends = table.epochs * (table.validate_s + table.durable_s) + table.begin_s
    read_s, _ = reading(table, allocations, load)
    pulls = 1.0 if asynchronous else allocations.workers.astype(np.float64)
    return terms(
        allocations,
        seconds=compute + wire + float(ends.sum()) + read_s / allocations.workers,
        bound_s=compute / straggler(int(allocations.workers.max()), table.deviation),
        compute_s=compute * allocations.workers,
        read_s=read_s,
        hop_s=float((ends - table.epochs * table.validate_s).sum()),
        communication_s=wire * allocations.workers,
        validation_s=table.epochs * float(table.validate_s.sum()),
        bytes_moved=2 * float(count @ table.gradient_bytes) * pulls,
        memory_bytes=float(table.memory_bytes.max()),
        servers=servers,
    )


def stage_seconds(
    layers: tuple[LayerCost, ...], stages: int, rows: float, step_s: float, row_s: float, link: Link
) -> tuple[list[float], list[float], list[float]]:
    """Return of each stage its seconds of a micro-batch, of its way to the next, its weights' part.

    Args:
        rows: of a micro-batch.
    """
    ends = cut(layers, stages, rows, link)
    seconds, counts, weights = stage_shares(layers, ends)
    compute = step_s * counts + row_s * rows * seconds
    ways = [way_s(layers[end - 1], rows, link) for end in ends[:-1]] + [0.0]
    return compute.tolist(), ways, weights.tolist()


def pipeline(costs: CostInputs, stages: int, micro_batches: int) -> Terms:
    """Return what pipelines of `stages` workers take; every candidate has as many layers.

      t_k   = a0 * (its part of the layers) + a1 * (its part of the seconds) * rows + way to next
      step  = sum_k t_k + (m - 1) * max_k t_k,     rows = batch / m
      T     = longest-first makespan on floor(W / K) groups of  E * ceil(N / batch) * step

    With m = 1 micro-batch the stages take turns: plain model partitioning, which saves memory and
    no time. With fewer groups than candidates it is the hybrid with Model Hopper Parallelism.
    Source: `equations.cut` (GPipe, PipeDream).
    Memory of the fullest stage: its part of the state, and its layers' activations of the whole
    batch.
    """
    table, allocations, cluster, load, _ = costs
    link = cluster.local if stages <= int(allocations.per_node.max()) else cluster.link
    count = table.epochs * np.ceil(table.rows.sum() / table.batch_size)
    step, alone, memory = [], [], []
    for c, layers in enumerate(table.layers):
        batch = float(table.batch_size[c])
        rows, a0, a1 = batch / micro_batches, float(table.step_s[c]), float(table.row_s[c])
        compute, ways, weights = stage_seconds(layers, stages, rows, a0, a1, link)
        each = [t + way for t, way in zip(compute, ways, strict=True)]
        step.append(pipeline_step_s(each, micro_batches))
        alone.append(pipeline_step_s(compute, micro_batches))
        activations = batch * sum(x.activation_row_bytes for x in layers)
        held = float(table.state_bytes[c] + table.gradient_bytes[c]) + activations
        rest = max(float(table.memory_bytes[c]) - held, 0.0)
        memory.append(rest + held * max(weights))
    ends = table.epochs * (table.validate_s + table.durable_s) + table.begin_s
    chain = count * np.array(step) + ends
    waits = float(count @ (np.array(step) - np.array(alone))) * stages
    groups = np.maximum(allocations.workers // stages, 1)
    made = {int(n): longest_first_s(chain, int(n)) for n in np.unique(groups)}
    factor = slowed(
        cluster, allocations, min(table.candidates * stages, int(allocations.workers.max()))
    )
    read_s, _ = reading(table, allocations, load)
    bound = np.maximum(chain.max(), chain.sum() / groups) * fastest(cluster)
    cuts = (stages - 1) * float(table.rows.sum()) * table.epochs * 2
    sent = sum(max(x.activation_row_bytes for x in layers) for layers in table.layers)
    return terms(
        allocations,
        seconds=np.array([made[int(n)] for n in groups]) * factor + read_s / groups,
        bound_s=bound,
        compute_s=float(count @ (micro_batches * table.step_s + table.row_s * table.batch_size))
        * factor,
        read_s=read_s,
        hop_s=float((ends - table.epochs * table.validate_s).sum()) * factor,
        communication_s=waits * factor,
        validation_s=table.epochs * float(table.validate_s.sum()) * factor,
        bytes_moved=cuts * sent,
        memory_bytes=max(memory),
        group=stages,
        micro_batches=micro_batches,
    )
