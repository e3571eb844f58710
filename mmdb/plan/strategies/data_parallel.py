"""Data parallelism: a group of g workers trains a candidate, in rounds of g partitions.

    steps    = ceil((n_1 + ... + n_g) / batch)                 batch is the group's
    round    = (steps * a0 + max n_i * a1) * straggler + steps * exchange
    q_c      = E * ( sum of ceil(P / g) rounds, each + messages + leave + publish
                     + durable + validate ) + begin
    bound    = max( max_c q_c, sum_c (worker-seconds of q_c) / W ), of full rounds, no stragglers
    about    = longest-first makespan of q on floor(W / g) groups, which meet and take the state up

mmdb exchanges after each backward pass, and hides nothing (`collective.direct_s`). Tree exchanges
and those that overlap with the backward pass are what-ifs. With fewer groups than candidates it is
the hybrid: groups of g workers through which candidates hop.
Source: DDP, PVLDB 13(12) 2020, and Galvatron, PVLDB 16(3) 2022, for the shape of a step;
mmdb.train.group for rounds and messages.
Memory: one candidate's with its batch, its gradients once more, and those that arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from mmdb.plan.columns import Columns
from mmdb.plan.cost import Cluster, Load
from mmdb.plan.crews import Crews
from mmdb.plan.equations import collective
from mmdb.plan.equations.hop import Floats, Number, steps
from mmdb.plan.equations.makespan import longest_first_s
from mmdb.plan.strategies.terms import Terms, fastest, live_bytes, reading, slowed, terms

How = Literal["direct", "tree", "overlap"]
#: Collective operations of a round beside its exchanges: two messages, each with its size first.
MESSAGES = 4


def round_steps(rows: Sequence[int], batch_size: Number) -> Floats:
    """Return the steps of a round over partitions of so many rows; see parallel.plan."""
    if len(rows) == 1:
        return steps(rows[0], batch_size)
    return np.asarray(np.ceil(sum(rows) / np.asarray(batch_size)))


def round_compute_s(
    rows: Sequence[int], batch_size: Number, step_s: Number, row_s: Number, deviation: Number
) -> Floats:
    """Return (steps * a0 + max n * a1) * straggler: what a round computes on its slowest worker."""
    alone = round_steps(rows, batch_size) * step_s + max(rows) * np.asarray(row_s)
    return np.asarray(alone * collective.straggler(len(rows), deviation))


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
        return collective.tree_s(sizes, members, link, start_s)
    if how == "direct":
        return collective.direct_s(sizes, members, link, start_s)
    a_step = table.step_s + table.row_s * table.batch_size / members
    return collective.overlapped_s(sizes, members, link, start_s, a_step)


def data_parallel(
    table: Columns,
    crew: Crews,
    cluster: Cluster,
    load: Load,
    live: float,
    group: int,
    how: How = "direct",
) -> Terms:
    """Return what groups of `group` workers take; crews have at least as many."""
    parts, epochs = table.partitions, table.epochs
    size = min(group, parts)
    per_node = int(crew.per_node.max())
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
    groups = np.maximum(crew.workers // size, 1)
    made = {
        int(n): longest_first_s(moved if n > 1 else chain + meet_s, int(n))
        for n in np.unique(groups)
    }
    factor = slowed(cluster, crew, min(table.candidates * size, int(crew.workers.max())))
    read_s, once = reading(table, crew, load)
    at_once = np.minimum(groups, table.candidates) * size
    sent = 2 * (size - 1) * epochs * np.ceil(table.rows.sum() / table.batch_size)
    states = epochs * turns * float(table.state_bytes.sum())
    return terms(
        crew,
        seconds=(np.array([made[int(n)] for n in groups]) + read_s / at_once) * factor,
        bound_s=_bound_s(table, crew, cluster, size, per_node, how, once),
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
    crew: Crews,
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
    shared = (float(work.sum()) + read_once_s) / crew.workers
    return np.asarray(np.maximum(float(chain.max()), shared) * fastest(cluster))
