"""How long many pieces of work take on several workers."""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np

from mmdb.plan.equations.hop import Floats, Number


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


def slowdown_at(slowdown: tuple[float, ...], busy: int) -> float:
    """Return by which factor work takes longer where so many workers of a node are busy.

    Beyond what is known the last factor holds on.
    """
    return slowdown[min(max(busy, 1), len(slowdown)) - 1]
