"""Parameter servers, which mmdb does not run: workers push gradients and pull weights.

S: bytes of the weights. p: servers, each with an equal part. W: workers. u: seconds in which a
server adds a byte. Source: Yan, Ruwase, He and Chilimbi, KDD 2015 (the problem); Optimus, EuroSys
2018, for the shape of the equations.
"""

from __future__ import annotations

import numpy as np

from mmdb.plan.cost import Link
from mmdb.plan.equations.hop import Floats, Number


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
    """Return steps a second of all workers together, none of which waits for another.

    min(W / (compute + 2 (a + S / B)), p B / (2 S), p / (S u)): the workers, the servers' links, or
    their updates, whichever is the slowest.
    """
    size = np.maximum(np.asarray(weight_bytes, dtype=np.float64), 1e-9)
    alone = workers / (np.asarray(compute_s) + 2 * (link.latency_s + size / link.bytes_per_s))
    links = servers * link.bytes_per_s / (2 * size)
    updates = servers / (size * max(update_byte_s, 1e-30))
    return np.asarray(np.minimum(alone, np.minimum(links, updates)))
