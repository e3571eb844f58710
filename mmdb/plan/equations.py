"""The equations of a plan: one function each for hops, exchanges, makespans, cuts and bands.

They take numbers and arrays alone. Every function says what goes in, in which unit, and where the
formula is from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heapreplace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from mmdb.plan.cost import Link
from mmdb.plan.step import LayerCost

#: The 90th percentile of the normal distribution.
Z90 = 1.2815515655446004


def deviation_of(hop: float, hops: float, workers: float, run: float, costs: float) -> float:
    """Return the relative standard deviation of a run's seconds.

    sqrt(hop^2 / (hops / workers) + run^2 + costs^2): single hops average out over those of a
    worker; what all hops of a run have in common, and an error of the costs themselves, do not.

    Args:
        hop: relative standard deviation of a hop's seconds.
        run, costs: the same of a factor common to all hops of a run, and of the predicted costs.
    """
    return math.sqrt(hop * hop / max(hops / max(workers, 1.0), 1.0) + run * run + costs * costs)


def band(median_s: float, deviation: float) -> tuple[float, float, float]:
    """Return p10, p50 and p90 of a lognormal distribution: median * exp(-+ 1.28 sd)."""
    factor = math.exp(Z90 * math.sqrt(math.log1p(deviation * deviation)))
    return median_s / factor, median_s, median_s * factor


def deviation_seen(errors: Sequence[float], least: int = 8) -> float | None:
    """Return the deviation with which a band would have held four of five runs; None for too few.

    Split conformal prediction: the ceil(0.8 (n + 1))-th smallest of n errors, over 1.28.
    Source: Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005.

    Args:
        errors: log(took / said).
    """
    if len(errors) < least:
        return None
    sizes = sorted(abs(one) for one in errors)
    place = min(math.ceil(0.8 * (len(sizes) + 1)), len(sizes))
    return max(sizes[place - 1] / Z90, 1e-3)


Floats = npt.NDArray[np.float64]
Number = float | Floats | npt.NDArray[np.int64]


def steps(rows: Number, batch_size: Number) -> Floats:
    """Return the optimizer's steps of a pass over `rows`.

    ceil(n / b), less one where the last batch would have a single row: it joins the one before
    (mmdb.train.compute.optimizer.batches).
    """
    n, b = np.asarray(rows, dtype=np.float64), np.asarray(batch_size, dtype=np.float64)
    count = np.ceil(n / b)
    return np.asarray(count - ((count > 1) & (n - (count - 1) * b == 1)))


def train_s(rows: Number, batch_size: Number, step_s: Number, row_s: Number) -> Floats:
    """Return the seconds of a pass: steps * a0 + rows * a1.

    Source: the step is a0 + a1 * b (Pollux, OSDI 2021, T_grad; fitted to measured steps), and its
        sum over a pass; only the last batch is smaller.
    """
    found = steps(rows, batch_size) * step_s + np.asarray(rows) * row_s
    return np.asarray(found, dtype=np.float64)


def take_s(state_bytes: Number, build_s: Number, load_byte_s: float) -> Floats:
    """Return the seconds until a state that another worker left is live here: build, then load.

    Source: measured; linear in the bytes (mmdb.train.hops.device_worker.DeviceWorker._take).
    """
    return np.asarray(build_s + np.asarray(state_bytes) * load_byte_s)


def leave_s(state_bytes: Number, hop_s: Number, encode_byte_s: float) -> Floats:
    """Return the seconds that each train hop ends with: naming its state, and writing its row.

    The state is encoded and hashed even where it stays (Session.perform). Source: measured.
    """
    return np.asarray(hop_s + np.asarray(state_bytes) * encode_byte_s)


def merge_s(
    partitions: int, state_bytes: Number, hop_s: Number, load_byte_s: float, merge_byte_s: float
) -> Floats:
    """Return the seconds in which one worker averages the states of `partitions` hops.

    They are read and added one by one, in float64: hop + P * S * (load + merge).
    Source: mmdb.train.group.group_pass; the rates are measured.
    """
    bytes_read = partitions * np.asarray(state_bytes)
    return np.asarray(hop_s + bytes_read * (load_byte_s + merge_byte_s))


def longest_first_s(seconds: Floats, workers: int) -> float:
    """Return the makespan where whoever is idle takes the longest piece that is left.

    At most 4/3 - 1/(3 W) of the best. Source: Graham, SIAM J. Appl. Math. 17(2) 1969 (LPT).

    Args:
        seconds: of each piece, (n,).
    """
    if workers >= len(seconds):
        return float(seconds.max(initial=0.0))
    ends = [0.0] * workers
    heapify(ends)
    for piece in np.sort(seconds)[::-1].tolist():
        heapreplace(ends, ends[0] + piece)
    return max(ends)


def open_shop_s(chain_s: Number, work_s: Number, workers: Number, hop_s: Number) -> Floats:
    """Return about what hops take that need one worker and one candidate each.

    max(longest candidate, work / W + (1 - 1/W) hop / 2): the bound of an open shop, and half a hop
    in which the other workers have nothing left. With one worker it is the sum of the work.
    Source: Gonzalez and Sahni, JACM 23(4) 1976 (bound); the half hop is measured on simulations.
    """
    count = np.asarray(workers, dtype=np.float64)
    shared = work_s / count + (1 - 1 / count) * hop_s / 2
    return np.asarray(np.maximum(chain_s, shared))


def capacity(slowdown: tuple[float, ...], workers: int) -> float:
    """Return how many workers alone on a node its workers are worth at most: max k / slowdown_k."""
    return max((k + 1) / slowdown_at(slowdown, k + 1) for k in range(workers))


def slowdown_at(slowdown: tuple[float, ...], busy: float) -> float:
    """Return by which factor work takes longer where so many workers of a node are busy.

    Beyond what is known the last factor holds on. Between two numbers of workers work goes on at
    the one's pace for a part of the time, and then at the other's.
    """
    busy = min(max(busy, 1), len(slowdown))
    fewer = int(busy)
    factor, part = slowdown[fewer - 1], busy - fewer
    return 1 / ((1 - part) / factor + part / slowdown[fewer]) if part else factor


#: Bytes of a bucket of gradients that travels while others are still computed (torch's DDP).
BUCKET_BYTES = 25 * 2**20
#: The part of a step that is its backward pass, in which gradients become ready.
BACKWARD_SHARE = 2 / 3


# Exchanges of gradients, among g workers of n bytes. start_s is the fixed cost of a collective
# operation; without it small models are under-predicted (Jansen, UvA/VU 2020). Link: latency a,
# bandwidth B.


def ring_s(gradient_bytes: Number, workers: int, link: Link, start_s: float) -> Floats:
    """Return start + 2 (g - 1) a + 2 (g - 1) / g * n / B.

    Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2) 2009 (ring all-reduce).
    """
    n = np.asarray(gradient_bytes, dtype=np.float64)
    if workers < 2:
        return np.zeros_like(n)
    others = workers - 1
    wire = 2 * others * link.latency_s + 2 * others / workers * n / link.bytes_per_s
    return np.asarray(start_s + wire)


def direct_s(gradient_bytes: Number, workers: int, link: Link, start_s: float) -> Floats:
    """Return what mmdb's own exchange takes: a ring's, and from three workers on a meeting first.

    Two workers send each other all, on a GPU by the backend's all-reduce. More send each other
    pieces and add them in the order of their ranks; as many bytes travel (mmdb.train.group).
    """
    meeting_s = start_s if workers > 2 else 0.0
    return ring_s(gradient_bytes, workers, link, start_s) + meeting_s


def tree_s(gradient_bytes: Number, workers: int, link: Link, start_s: float) -> Floats:
    """Return start + 2 ceil(log2 g) (a + n / B): up a binomial tree, and down again.

    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1) 2005; Paleo (ICLR 2017) without latency.
    """
    n = np.asarray(gradient_bytes, dtype=np.float64)
    if workers < 2:
        return np.zeros_like(n)
    depth = int(np.ceil(np.log2(workers)))
    return np.asarray(start_s + 2 * depth * (link.latency_s + n / link.bytes_per_s))


def overlapped_s(
    gradient_bytes: Number, workers: int, link: Link, start_s: float, step_s: Number
) -> Floats:
    """Return what a step waits for, whose gradients travel in buckets while it goes backward.

    Buckets of BUCKET_BYTES become ready evenly over the backward pass of b seconds, and a ring
    takes e for each of the k: what they do not hide is then max(e, b / k + k e - b).

    Args:
        step_s: seconds of the step, of which BACKWARD_SHARE is its backward pass.
    """
    size = np.asarray(gradient_bytes, dtype=np.float64)
    count = np.maximum(np.ceil(size / BUCKET_BYTES), 1.0)
    backward = np.asarray(step_s) * BACKWARD_SHARE
    each = ring_s(size / count, workers, link, start_s)
    return np.asarray(np.maximum(each, backward / count + count * each - backward))


def straggler(workers: int, deviation: Number) -> Floats:
    """Return how much longer than the mean the slowest of g equal workers takes, as a factor.

    1 + sd * z((g - 0.375) / (g + 0.25)), the expected largest of g normal values.
    Source: Blom, Statistical Estimates and Transformed Beta-Variables, 1958.
    """
    z = NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25)) if workers > 1 else 0.0
    return np.asarray(1 + np.asarray(deviation) * z)


# Parameter servers, which mmdb does not run: W workers push gradients to p servers, each with an
# equal part of S bytes of weights, and pull weights; a server adds a byte in u seconds. Source:
# Yan, Ruwase, He and Chilimbi, KDD 2015 (the problem); Optimus, EuroSys 2018, for the shape.


def synchronous_s(
    weight_bytes: Number, workers: int, servers: int, link: Link, update_byte_s: float
) -> Floats:
    """Return the seconds by which a step's exchange lengthens it.

    2 a + 2 max(S / B, W S / (p B)) + W S u / p: push and pull over the narrower of a worker's link
    and a server's, and the update.
    """
    size = np.asarray(weight_bytes, dtype=np.float64)
    wire = np.maximum(size, workers * size / servers) / link.bytes_per_s
    return np.asarray(2 * link.latency_s + 2 * wire + workers * size * update_byte_s / servers)


def asynchronous_rate(
    compute_s: Number,
    weight_bytes: Number,
    workers: int,
    servers: int,
    link: Link,
    update_byte_s: float,
) -> Floats:
    """Return how many steps a second all workers do together without waiting for each other.

    min(W / (compute + 2 (a + S / B)), p B / (2 S), p / (S u)): the workers, the servers' links, or
    their updates, whichever is the slowest.
    """
    size = np.maximum(np.asarray(weight_bytes, dtype=np.float64), 1e-9)
    alone = workers / (np.asarray(compute_s) + 2 * (link.latency_s + size / link.bytes_per_s))
    links = servers * link.bytes_per_s / (2 * size)
    updates = servers / (size * max(update_byte_s, 1e-30))
    return np.asarray(np.minimum(alone, np.minimum(links, updates)))


Starts = npt.NDArray[np.int64]


# Models cut into K contiguous stages, one a worker: layers stay in their order, so a plan is K - 1
# cuts.

#: Stages for which cuts are looked for at once.
STAGES = 16


def cut(layers: tuple[LayerCost, ...], stages: int, rows: float, link: Link) -> tuple[int, ...]:
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
def _starts(layers: tuple[LayerCost, ...], stages: int, rows: float, link: Link) -> Starts:
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


def way_s(layer: LayerCost, rows: float, link: Link) -> float:
    """Return the seconds in which activations go to the next stage and their gradients back.

    2 (a + rows * bytes / B). Source: vTrain, MICRO 2024, point-to-point transfers.
    """
    return 2 * (link.latency_s + rows * layer.activation_row_bytes / link.bytes_per_s)


def stage_shares(layers: Sequence[LayerCost], ends: Sequence[int]) -> tuple[Floats, Floats, Floats]:
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
