"""What a strategy's formula says of every crew, and what strategies share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmdb.plan.columns import Columns
from mmdb.plan.cost import Cluster, Load
from mmdb.plan.crews import Crews, exclusive, slow
from mmdb.plan.equations.hop import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Of each crew, (K,); phases are worker-seconds of the whole run."""

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


def terms(
    crew: Crews,
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
    """Return terms; a number holds for every crew."""

    def wide(value: Floats | float) -> Floats:
        return np.asarray(np.broadcast_to(np.asarray(value, dtype=np.float64), len(crew)))

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


def reading(table: Columns, crew: Crews, load: Load) -> tuple[Floats, float]:
    """Return the seconds of reading partitions: of each crew, and of reading each one once.

    A node decodes a partition once, for all its workers. Where partitions lie on nodes each reads
    its own; else any node may come to need any.
    """
    once = float(table.read_s.sum()) + table.read_validation_s
    if load.placement:
        return once + (crew.nodes.astype(np.float64) - 1) * table.read_validation_s, once
    return crew.nodes.astype(np.float64) * once, once


def slowed(cluster: Cluster, crew: Crews, busy: int) -> Floats:
    """Return by which factor work takes longer where so many workers of each crew are busy."""
    return np.array([slow(cluster, counts, busy) for counts in crew.counts])


def node_bound_s(table: Columns, crew: Crews, cluster: Cluster, load: Load) -> Floats:
    """Return what the busiest node takes at least with what only it can do."""
    nodes = exclusive(cluster, load)
    if not len(nodes):
        return np.zeros(len(crew))
    index = {node.name: k for k, node in enumerate(cluster.nodes)}
    work = np.zeros(len(cluster.nodes))
    leave = float(table.leave_s.sum())
    by_partition = (table.by_partition() + leave) * table.epochs + table.read_s
    for part, held in load.placement.items():
        if part >= 0 and len(held) == 1 and (name := next(iter(held))) in index:
            work[index[name]] += by_partition[part]
    there = crew.node_capacity[:, nodes]  # a crew that lacks such a node is refused elsewhere
    took = np.divide(work[nodes], there, out=np.zeros(there.shape), where=there > 0)
    return np.asarray(took.max(axis=1))


def fastest(cluster: Cluster) -> float:
    """Return the factor of work that is slowed down least."""
    return min(min(node.slowdown) for node in cluster.nodes)


def live_bytes(table: Columns, kept: float) -> float:
    """Return bytes of the states that a worker keeps live beside that of its hop, at most."""
    return float(min(kept, table.state_bytes.sum() - table.state_bytes.min()))
