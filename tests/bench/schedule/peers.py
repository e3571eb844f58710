"""Schedulers of other systems, in simulated time: one worker and one partition a node."""

from __future__ import annotations

import heapq

import numpy as np

from mmdb.train.schedule.simulate import Seconds


def drawn(costs: Seconds, epochs: int, noise: float, seed: int) -> Seconds:
    """Return (E, M, P) seconds that hops take, where (M, P) are expected."""
    source = np.random.default_rng(seed)
    return costs * np.exp(source.normal(0.0, noise, (epochs, *costs.shape)))


def bound_s(seconds: Seconds) -> float:
    """Return the lower bound of a makespan: the busiest candidate or partition."""
    return float(max(seconds.sum(axis=(0, 2)).max(), seconds.sum(axis=(0, 1)).max()))


def random_s(seconds: Seconds, seed: int) -> float:
    """Return the makespan of Cerebro's default: any hop that could start, drawn at random.

    Algorithm 1 of PVLDB 13(11) 2020, section 5, with its barrier after every epoch left out.
    """
    epochs, candidates, partitions = seconds.shape
    source = np.random.default_rng(seed)
    left = np.ones((candidates, partitions), bool)
    epoch = np.zeros(candidates, int)
    free, idle = np.ones(candidates, bool), np.ones(partitions, bool)
    ends: list[tuple[float, int, int]] = []
    now = 0.0
    while True:
        for part in source.permutation(np.flatnonzero(idle)):
            able = np.flatnonzero(free & left[:, part])
            if len(able):
                c = int(source.choice(able))
                free[c] = idle[part] = False
                heapq.heappush(ends, (now + seconds[epoch[c], c, part], c, int(part)))
        if not ends:
            return now
        now, c, part = heapq.heappop(ends)
        idle[part], left[c, part] = True, False
        if not left[c].any():
            left[c], epoch[c] = True, epoch[c] + 1
        free[c] = epoch[c] < epochs


def barrier_s(seconds: Seconds) -> float:
    """Return the makespan of MADlib's rotation: all hops of a step end before the next begins.

    `FitMultipleModel` in madlib_keras_fit_multiple_model.py_in: max(M, P) steps an iteration.
    """
    _, candidates, partitions = seconds.shape
    steps = max(candidates, partitions)
    total = 0.0
    for epoch in seconds:
        for step in range(steps):
            members = (np.arange(partitions) + step) % steps
            here = members < candidates
            total += epoch[members[here], np.arange(partitions)[here]].max(initial=0.0)
    return total
