"""Model Hopper Parallelism: an open shop of candidates and workers.

    q_c   = E * (sum_p train(c, p) + P * leave + durable + validate) + begin
    bound = max( max_c q_c,  sum_c q_c / W,  max_n (what only node n holds) / W_n )
    about = max( bound, with states on their way;  sum / W + (1 - 1/W) * hop / 2 )

Where workers of a node slow each other down, W is what they are worth (`capacity`) in the bound,
and q_c is multiplied by the slowdown in what it takes about. A state that changes its worker adds
`publish` and `take`: at each hop where nodes hold their own partitions or the policy rotates, and
once an epoch where one node holds all (affinity). Near its end a run publishes every state.
Source: Cerebro, PVLDB 13(11) 2020, section 3; the bound is that of mmdb.train.schedule.simulate.
Memory: the state and batch of one candidate, and the states that a worker keeps live.
"""

from __future__ import annotations

import numpy as np

from mmdb.plan.columns import Columns
from mmdb.plan.cost import Cluster, Load
from mmdb.plan.crews import Crews
from mmdb.plan.equations.hop import Floats
from mmdb.plan.equations.makespan import open_shop_s
from mmdb.plan.strategies.terms import (
    Terms,
    fastest,
    live_bytes,
    node_bound_s,
    reading,
    slowed,
    terms,
)


def chain_s(table: Columns) -> Floats:
    """Return q_c: each candidate's seconds from its first hop to its last, on one worker alone."""
    epoch = table.train_epoch_s + table.partitions * table.leave_s + table.durable_s
    return np.asarray(table.epochs * (epoch + table.validate_s) + table.begin_s)


def moves_an_epoch(table: Columns, crew: Crews, load: Load) -> Floats:
    """Return how often a candidate's state changes its worker in an epoch, about."""
    if load.placement:
        return np.where(crew.nodes > 1, float(table.partitions), 1.0) * (crew.workers > 1)
    return np.where(crew.workers > 1, 1.0, 0.0)


def left_an_epoch(table: Columns, crew: Crews, load: Load) -> Floats:
    """Return how many states a candidate leaves for others in an epoch that nobody takes, about.

    On one node states stay in their sessions while the workers' fair share of the work exceeds the
    longest candidate by two epochs (mmdb.train.schedule.schedule.Schedule._publish).
    """
    if load.placement:
        return np.zeros(len(crew))
    chain = chain_s(table)
    slack_s = float(chain.sum()) / crew.workers - chain.max()
    return np.where(slack_s < 2 * float(chain.mean()) / table.epochs, table.partitions - 1.0, 0.0)


def mop(table: Columns, crew: Crews, cluster: Cluster, load: Load, live: float) -> Terms:
    """Return what Model Hopper Parallelism takes.

    Args:
        live: bytes of live states that a worker keeps, at most.
    """
    chain = chain_s(table)
    moves = moves_an_epoch(table, crew, load) * table.epochs
    moved_s = table.publish_s + table.take_s
    left = left_an_epoch(table, crew, load) * table.epochs
    read_s, once = reading(table, crew, load)
    busy = min(table.candidates, int(crew.workers.max()))
    factor = slowed(cluster, crew, busy)
    work = float(chain.sum()) + moves * float(moved_s.sum()) + left * float(table.publish_s.sum())
    longest = (chain + moves[:, None] * moved_s + left[:, None] * table.publish_s).max(axis=1)
    hop = float(table.train_epoch_s.mean()) / table.partitions
    useful = np.minimum(crew.workers, table.candidates)
    node_s = node_bound_s(table, crew, cluster, load)
    bound = np.maximum(
        np.maximum(chain.max() * fastest(cluster), (float(chain.sum()) + once) / crew.capacity),
        node_s,
    )
    about = open_shop_s(longest * factor, (work + read_s) * factor, useful, hop * factor)
    return terms(
        crew,
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
