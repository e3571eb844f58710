"""Models cut into contiguous stages, one a worker: where to cut, and what a step takes then.

Layers stay in their order and a stage is a run of them, so a plan is K - 1 cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from mmdb.plan.cost import Layer, Link
from mmdb.plan.equations.hop import Floats

Starts = npt.NDArray[np.int64]


#: Stages for which cuts are looked for at once.
STAGES = 16


def cut(layers: tuple[Layer, ...], stages: int, rows: float, link: Link) -> tuple[int, ...]:
    """Return where each stage ends, such that the slowest stage is as fast as can be.

    A stage takes three times its layers' forward seconds (backward is two forwards), and twice the
    way of what its last layer gives to the next stage. best(k, j) = min over i of
    max(best(k - 1, i), stage(i, j)): O(L^2 K).
    Source: the linear partition problem; PipeDream, SOSP 2019, section 3.1, without replication.

    Args:
        rows: of a micro-batch.
        stages: at most as many as layers.
    Returns:
        For each stage the index behind its last layer; the last is len(layers).
    """
    starts = _starts(layers, max(stages, min(STAGES, len(layers))), rows, link)
    ends = [len(layers)]
    for k in range(stages - 1, 0, -1):
        ends.append(int(starts[k, ends[-1]]))
    return tuple(reversed(ends))


@lru_cache(maxsize=4096)
def _starts(layers: tuple[Layer, ...], stages: int, rows: float, link: Link) -> Starts:
    """Return [k, j]: where the last of k + 1 stages begins that end together behind layer j."""
    count = len(layers)
    work = np.concatenate([[0.0], np.cumsum([3 * rows * x.forward_row_s for x in layers])])
    way = np.array([0.0] + [way_s(x, rows, link) for x in layers])
    way[count] = 0.0  # nothing comes after the last
    stage = work[None, :] - work[:, None] + way[None, :]  # [i, j]: layers i to j - 1
    stage[np.tril_indices(count + 1)] = np.inf
    best = stage[0]
    starts = np.zeros((stages, count + 1), dtype=np.int64)
    for k in range(1, stages):
        slowest = np.maximum(best[:, None], stage)
        starts[k] = slowest.argmin(axis=0)
        best = slowest.min(axis=0)
    return starts


def way_s(layer: Layer, rows: float, link: Link) -> float:
    """Return the seconds in which activations go to the next stage and their gradients back.

    2 (a + rows * bytes / B). Source: vTrain, MICRO 2024, point-to-point transfers.
    """
    return 2 * (link.latency_s + rows * layer.activation_row_bytes / link.bytes_per_s)


def stage_shares(layers: Sequence[Layer], ends: Sequence[int]) -> tuple[Floats, Floats, Floats]:
    """Return of each stage its share of the forward seconds, of the layers, of the weights."""
    starts = [0, *ends[:-1]]

    def share(values: Sequence[float]) -> Floats:
        total = sum(values)
        sums = [sum(values[a:b]) for a, b in zip(starts, ends, strict=True)]
        return np.array(sums) / total if total else np.full(len(ends), 1 / len(ends))

    return (
        share([x.forward_row_s for x in layers]),
        share([1.0] * len(layers)),
        share([x.parameter_bytes for x in layers]),
    )


def pipeline_step_s(stage_s: Sequence[float], micro_batches: int) -> float:
    """Return sum t_k + (m - 1) max t_k: filling the pipeline, then one micro-batch after another.

    With equal stages that is m t (K + m - 1) / m. With one micro-batch, stages take turns.
    Source: GPipe, NeurIPS 2019, section 2.2.

    Args:
        stage_s: seconds of one micro-batch on each stage, there and back, with the way between.
    """
    return float(sum(stage_s) + (micro_batches - 1) * max(stage_s, default=0.0))
