"""Models cut into K contiguous stages, a what-if: K workers train a candidate together.

    t_k   = a0 * (its part of the layers) + a1 * (its part of the seconds) * rows + way to the next
    step  = sum_k t_k + (m - 1) * max_k t_k,     rows = batch / m
    T     = longest-first makespan on floor(W / K) groups of  E * ceil(N / batch) * step

With m = 1 micro-batch the stages take turns: plain model partitioning, which saves memory and no
time. With fewer groups than candidates it is the hybrid with Model Hopper Parallelism.
Source: `equations.cuts` (GPipe, PipeDream).
Memory of the fullest stage: its part of the state, and its layers' activations of the whole batch.
"""

from __future__ import annotations

import numpy as np

from mmdb.plan.columns import Columns
from mmdb.plan.cost import Cluster, Layer, Link, Load
from mmdb.plan.crews import Crews
from mmdb.plan.equations.cuts import cut, pipeline_step_s, stage_shares, way_s
from mmdb.plan.equations.makespan import longest_first_s
from mmdb.plan.strategies.terms import Terms, fastest, reading, slowed, terms


def stage_seconds(
    layers: tuple[Layer, ...], stages: int, rows: float, step_s: float, row_s: float, link: Link
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


def pipeline(
    table: Columns,
    crew: Crews,
    cluster: Cluster,
    load: Load,
    stages: int,
    micro_batches: int,
) -> Terms:
    """Return what pipelines of `stages` workers take; every candidate has as many layers."""
    link = cluster.local if stages <= int(crew.per_node.max()) else cluster.link
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
    groups = np.maximum(crew.workers // stages, 1)
    made = {int(n): longest_first_s(chain, int(n)) for n in np.unique(groups)}
    factor = slowed(cluster, crew, min(table.candidates * stages, int(crew.workers.max())))
    read_s, _ = reading(table, crew, load)
    bound = np.maximum(chain.max(), chain.sum() / groups) * fastest(cluster)
    cuts = (stages - 1) * float(table.rows.sum()) * table.epochs * 2
    sent = sum(max(x.activation_row_bytes for x in layers) for layers in table.layers)
    return terms(
        crew,
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
