"""The strategies in which one worker trains a candidate at a time: mop, task, model_average.

Each is what it takes by its formula, at least and about, and its memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mmdb.plan.cost import Cluster, CostedWorkload
from mmdb.plan.cost_columns import Columns, WorkerAllocations, exclusive, slow
from mmdb.plan.equations import Floats, longest_first_s, open_shop_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Of each allocation, (K,); phases are worker-seconds of the whole run."""

    seconds: Floats  # of the run, about
    bound_s: Floats  # of the run, at least
    compute_s: Floats
    read_s: Floats
    hop_s: Floats
    communication_s: Floats
    validation_s: Floats
    bytes_moved: Floats
    memory_bytes: float  # of a worker, at most
    group: int = 1
    servers: int = 0
    micro_batches: int = 1
    why_not: str = ""


class CostInputs(NamedTuple):
    """What a strategy's formula is computed of."""

    table: Columns
    allocations: WorkerAllocations
    cluster: Cluster
    load: CostedWorkload
    live: float  # bytes of live states that a worker keeps, at most

    def only(self, chosen: npt.NDArray[np.bool_]) -> CostInputs:
        """Return what there is of the allocations for which `chosen`, (K,), is true."""
        return self._replace(allocations=self.allocations.only(chosen))


def terms(
    allocations: WorkerAllocations,
    *,
    seconds: Floats,
    bound_s: Floats,
    memory_bytes: float,
    compute_s: Floats | float = 0.0,
    read_s: Floats | float = 0.0,
    hop_s: Floats | float = 0.0,
    communication_s: Floats | float = 0.0,
    validation_s: Floats | float = 0.0,
    bytes_moved: Floats | float = 0.0,
    group: int = 1,
    servers: int = 0,
    micro_batches: int = 1,
) -> Terms:
    """Return terms; a number holds for every allocation."""

    def wide(value: Floats | float) -> Floats:
        return np.asarray(np.broadcast_to(np.asarray(value, dtype=np.float64), len(allocations)))

    return Terms(
        seconds=np.maximum(wide(seconds), bound_s),
        bound_s=wide(bound_s),
        compute_s=wide(compute_s),
        read_s=wide(read_s),
        hop_s=wide(hop_s),
        communication_s=wide(communication_s),
        validation_s=wide(validation_s),
        bytes_moved=wide(bytes_moved),
        memory_bytes=memory_bytes,
        group=group,
        servers=servers,
        micro_batches=micro_batches,
    )


def reading(
    table: Columns, allocations: WorkerAllocations, load: CostedWorkload
) -> tuple[Floats, float]:
    """Return the seconds of reading partitions: of each allocation, and of reading each one once.

    A node decodes a partition once, for all its workers. Where partitions lie on nodes each reads
    its own; else any node may come to need any.
    """
    once = float(table.read_s.sum()) + table.read_validation_s
    if load.placement:
        return once + (allocations.nodes.astype(np.float64) - 1) * table.read_validation_s, once
    return allocations.nodes.astype(np.float64) * once, once


def slowed(cluster: Cluster, allocations: WorkerAllocations, busy: int) -> Floats:
    """Return by which factor work takes longer where so many workers of each are busy."""
    return np.array([slow(cluster, counts, busy) for counts in allocations.counts])


def node_bound_s(
    table: Columns, allocations: WorkerAllocations, cluster: Cluster, load: CostedWorkload
) -> Floats:
    """Return what the busiest node takes at least with what only it can do."""
    nodes = exclusive(cluster, load)
    if not len(nodes):
        return np.zeros(len(allocations))
    index = {node.name: k for k, node in enumerate(cluster.nodes)}
    work = np.zeros(len(cluster.nodes))
    leave = float(table.leave_s.sum())
    by_partition = (table.by_partition() + leave) * table.epochs + table.read_s
    for part, held in load.placement.items():
        if part >= 0 and len(held) == 1 and (name := next(iter(held))) in index:
            work[index[name]] += by_partition[part]
    # An allocation that lacks such a node is refused elsewhere.
    there = allocations.node_capacity[:, nodes]
    took = np.divide(work[nodes], there, out=np.zeros(there.shape), where=there > 0)
    return np.asarray(took.max(axis=1))


def fastest(cluster: Cluster) -> float:
    """Return the factor of work that is slowed down least."""
    return min(min(node.slowdown) for node in cluster.nodes)


def live_bytes(table: Columns, kept: float) -> float:
    """Return bytes of the states that a worker keeps live beside that of its hop, at most."""
    return float(min(kept, table.state_bytes.sum() - table.state_bytes.min()))


def chain_s(table: Columns) -> Floats:
    """Return q_c: each candidate's seconds from its first hop to its last, on one worker alone."""
    epoch = table.train_epoch_s + table.partitions * table.leave_s + table.durable_s
    return np.asarray(table.epochs * (epoch + table.validate_s) + table.begin_s)


def moves_an_epoch(table: Columns, allocations: WorkerAllocations, load: CostedWorkload) -> Floats:
    """Return how often a candidate's state changes its worker in an epoch, about."""
    if load.placement:
        return np.where(allocations.nodes > 1, float(table.partitions), 1.0) * (
            allocations.workers > 1
        )
    return np.where(allocations.workers > 1, 1.0, 0.0)


def left_an_epoch(table: Columns, allocations: WorkerAllocations, load: CostedWorkload) -> Floats:
    """Return how many states a candidate leaves for others in an epoch that nobody takes, about.

    On one node states stay in their sessions while the workers' fair share of the work exceeds the
    longest candidate by two epochs (mmdb.train.schedule.schedule.RunSchedule._publish).
    """
    if load.placement:
        return np.zeros(len(allocations))
    chain = chain_s(table)
    slack_s = float(chain.sum()) / allocations.workers - chain.max()
    return np.where(slack_s < 2 * float(chain.mean()) / table.epochs, table.partitions - 1.0, 0.0)


def mop(costs: CostInputs) -> Terms:
    """Return what Model Hopper Parallelism takes.

        q_c   = E * (sum_p train(c, p) + P * leave + durable + validate) + begin
        bound = max( max_c q_c,  sum_c q_c / W,  max_n (what only node n holds) / W_n )
        about = max( bound, with states on their way;  sum / W + (1 - 1/W) * hop / 2 )

    Where workers of a node slow each other down, W is what they are worth (`capacity`) in the
    bound, and q_c is multiplied by the slowdown in what it takes about. A state that changes its
    worker adds `publish` and `take`: at each hop where nodes hold their own partitions or the
    policy rotates, and once an epoch where one node holds all (affinity). Near its end a run
    publishes every state.
    Source: Cerebro, PVLDB 13(11) 2020, section 3; the bound is that of
    `mmdb.train.schedule.simulate.lower_bound`.
    Memory: the state and batch of one candidate, and the states that a worker keeps live.
    """
    table, allocations, cluster, load, live = costs
    chain = chain_s(table)
    moves = moves_an_epoch(table, allocations, load) * table.epochs
    moved_s = table.publish_s + table.take_s
    left = left_an_epoch(table, allocations, load) * table.epochs
    read_s, once = reading(table, allocations, load)
    busy = min(table.candidates, int(allocations.workers.max()))
    factor = slowed(cluster, allocations, busy)
    work = float(chain.sum()) + moves * float(moved_s.sum()) + left * float(table.publish_s.sum())
    longest = (chain + moves[:, None] * moved_s + left[:, None] * table.publish_s).max(axis=1)
    hop = float(table.train_epoch_s.mean()) / table.partitions
    useful = np.minimum(allocations.workers, table.candidates)
    node_s = node_bound_s(table, allocations, cluster, load)
    bound = np.maximum(
        np.maximum(
            chain.max() * fastest(cluster), (float(chain.sum()) + once) / allocations.capacity
        ),
        node_s,
    )
    about = open_shop_s(longest * factor, (work + read_s) * factor, useful, hop * factor)
    return terms(
        allocations,
        seconds=np.maximum(about, node_s),
        bound_s=bound,
        compute_s=table.epochs * float(table.train_epoch_s.sum()) * factor,
        read_s=read_s * factor,
        hop_s=(work - _useful_s(table)) * factor,
        validation_s=table.epochs * float(table.validate_s.sum()) * factor,
        bytes_moved=(moves * 2 + table.epochs) * float(table.state_bytes.sum()),
        memory_bytes=float(table.memory_bytes.max()) + live_bytes(table, live),
    )


def _useful_s(table: Columns) -> float:
    return table.epochs * float((table.train_epoch_s + table.validate_s).sum())


def task(costs: CostInputs) -> Terms:
    """Return what task parallelism takes.

        q_c   = as for `mop`; states never move
        bound = max( max_c q_c,  sum_c q_c / W )
        about = longest-first makespan of q on W workers, at most 4/3 - 1/(3 W) of the best

    Where partitions lie on nodes of their own, no worker finds them all: it cannot be done.
    Source: Graham, SIAM J. Appl. Math. 17(2) 1969. Memory: as for `mop`.
    """
    table, allocations, cluster, load, live = costs
    chain = chain_s(table)
    read_s, once = reading(table, allocations, load)
    factor = slowed(cluster, allocations, min(table.candidates, int(allocations.workers.max())))
    sizes = {int(w): longest_first_s(chain, int(w)) for w in np.unique(allocations.workers)}
    about = np.array([sizes[int(w)] for w in allocations.workers])
    busy = np.minimum(allocations.workers, table.candidates)
    bound = np.maximum(
        chain.max() * fastest(cluster), (float(chain.sum()) + once) / allocations.capacity
    )
    compute = table.epochs * float(table.train_epoch_s.sum())
    validation = table.epochs * float(table.validate_s.sum())
    return terms(
        allocations,
        seconds=(about + read_s / busy) * factor,
        bound_s=bound,
        compute_s=compute * factor,
        read_s=read_s * factor,
        hop_s=(float(chain.sum()) - compute - validation) * factor,
        validation_s=validation * factor,
        bytes_moved=table.epochs * float(table.state_bytes.sum()),
        memory_bytes=float(table.memory_bytes.max()) + live_bytes(table, live),
    )


def model_average(costs: CostInputs) -> Terms:
    """Return what model averaging takes.

      hop(c, p) = take + train(c, p) + leave + publish          (epoch 0: begin instead of take)
      q_c       = E * ( max_p hop(c, p) + merge + take + validate )
      work_c    = E * ( sum_p hop(c, p) + merge + take + validate )
      bound     = max( max_c q_c,  sum_c work_c / W ), where a hop after a validation takes nothing
      about     = max( max_c q_c with ceil(P / W) hops one after another,  sum / W + half a hop )

    Every hop takes the state up anew: what a session holds live is the state after its own hop. The
    merge reads P states (`equations.merge_s`) and makes their mean durable.
    Source: McDonald, Hall and Mann, NAACL 2010 (the method); mmdb.train.hops.runner does it.
    Memory: one candidate's, or while merging one state and a sum of twice its size.
    """
    table, allocations, cluster, load, live = costs
    parts, epochs = table.partitions, table.epochs
    take = np.minimum(table.take_s, table.begin_s)
    around = take + table.leave_s + table.publish_s
    end = table.merge_s + (table.take_s + table.validate_s) * table.validates
    slowest = table.train.max(axis=1) + around
    held = take * table.validates  # a hop after a validation on the same worker takes up nothing
    chain = epochs * (slowest - held + end)
    work = epochs * (table.train_epoch_s + parts * around - held + end)
    read_s, once = reading(table, allocations, load)
    at_once = table.candidates * parts
    factor = slowed(cluster, allocations, min(at_once, int(allocations.workers.max())))
    node_s = node_bound_s(table, allocations, cluster, load)
    bound = np.maximum(
        np.maximum(
            chain.max() * fastest(cluster), (float(work.sum()) + once) / allocations.capacity
        ),
        node_s,
    )
    taken = table.begin_s + (epochs - 1) * table.take_s
    full = work + epochs * held + parts * (taken - epochs * take)
    turns = np.ceil(parts / allocations.workers)
    alone = np.array([(epochs * (slowest * k + end)).max() for k in np.unique(turns)])
    alone = alone[np.searchsorted(np.unique(turns), turns)]
    about = open_shop_s(0.0, float(full.sum()) + read_s, allocations.workers, float(slowest.mean()))
    compute = epochs * float(table.train_epoch_s.sum())
    validation = epochs * float(table.validate_s.sum())
    return terms(
        allocations,
        seconds=np.maximum(np.maximum(about, alone) * factor, node_s),
        bound_s=bound,
        compute_s=compute * factor,
        read_s=read_s * factor,
        hop_s=(float(full.sum()) - compute - validation) * factor,
        validation_s=validation * factor,
        bytes_moved=epochs * (2 * parts + 3) * float(table.state_bytes.sum()),
        memory_bytes=float(
            np.maximum(
                table.memory_bytes + live_bytes(table, live),
                4 * table.state_bytes + live_bytes(table, live),
            ).max()
        ),
    )
