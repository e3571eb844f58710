"""What it takes to exchange gradients: seconds of one exchange among g workers.

g: workers. n: bytes of the gradients. start_s: fixed cost of a collective operation; without it
small models are under-predicted (Jansen, UvA/VU 2020). Link: latency a, bandwidth B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np

from mmdb.plan.cost import Link
from mmdb.plan.equations.hop import Floats, Number

#: Seconds of an exchange: (bytes, workers, link, start_s).
Exchange = Callable[[Number, int, Link, float], Floats]
#: Bytes of a bucket of gradients that travels while others are still computed (torch's DDP).
BUCKET_BYTES = 25 * 2**20
#: The part of a step that is its backward pass, in which gradients become ready.
BACKWARD_SHARE = 2 / 3


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

    Two workers use the backend's all-reduce. More send each other pieces and add them in the order
    of their ranks; as many bytes travel (mmdb.train.group.collectives.direct).
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


def exposed_s(
    ready_s: Sequence[Number], exchange_s: Sequence[Number], backward_s: Number
) -> Floats:
    """Return the seconds of exchanging that a backward pass does not hide, bucket by bucket.

    end_k = max(end_{k-1}, ready_k) + exchange_k; exposed = max(end, backward) - backward.
    Source: NeuSight (ASPLOS 2025), its recursion over buckets.

    Args:
        ready_s: when each bucket's gradients are there, since the backward pass began; ascending.
        exchange_s: what exchanging each bucket takes.
    """
    end = np.zeros_like(np.asarray(backward_s, dtype=np.float64))
    for ready, seconds in zip(ready_s, exchange_s, strict=True):
        end = np.maximum(end, ready) + seconds
    return np.asarray(np.maximum(end, backward_s) - backward_s)


def overlapped_s(
    gradient_bytes: Number, workers: int, link: Link, start_s: float, step_s: Number
) -> Floats:
    """Return what a step waits for, whose gradients travel in buckets while it goes backward.

    Buckets of BUCKET_BYTES become ready evenly over the backward pass of b seconds, and a ring
    takes e for each of the k: `exposed_s` is then max(e, b / k + k e - b).

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
