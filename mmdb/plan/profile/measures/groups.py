"""Sums over a group of workers, as `data_parallel` makes them: seconds over the bytes of gradients.

Members compute before each sum, as in a step: who comes out of computing is slower to answer than
who only waits, and has to wait for who is late. A run takes the sum of its exchanges, some of which
take ten times the others, so it is their mean that counts.

All members measure at the same time and take the same decisions: the first one's times are those
that count, and it tells them to the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from statistics import fmean, median
from time import perf_counter

import torch

from mmdb.plan.profile.fits.points import coefficient_of_variation
from mmdb.plan.profile.measures.timing import LEAST, MOST, Allowance, Timed
from mmdb.plan.profile.row import Row
from mmdb.train.group.collectives import Communicator, Membership
from mmdb.train.values.spec import WorkerGroup

#: Bytes of gradients in float32.
GRADIENT_BYTES = (2**8, 2**12, 2**15, 2**17, 2**19, 2**21, 2**23, 2**25)
#: Side of the matrices that are multiplied before each sum, and how often: a millisecond or two.
_SIDE, _PRODUCTS = 256, 12
#: Medians that one sum counts as, at most: beyond that the machine had something else to do.
_OUTLYING = 4.0


def measure_group(
    allowance: Allowance, group: WorkerGroup, device: torch.device, budget_s: float
) -> Iterator[Row]:
    """Measure how long members take to meet, and sums over them; all return the same rows."""
    membership = Membership()

    def stopped() -> bool:
        allowance.check()
        return False

    try:
        begun = perf_counter()
        communicator = membership.join(group, device, stopped)
        with communicator.during(stopped):
            met_s = _agreed(communicator, perf_counter() - begun)
            yield Row(kind="meet", size=float(group.size), value=met_s)
            yield from _sums(communicator, budget_s - met_s, device)
    finally:
        membership.leave()


def _sums(communicator: Communicator, budget_s: float, device: torch.device) -> Iterator[Row]:
    matrix, left_s = torch.ones(_SIDE, _SIDE, device=device), budget_s
    summed = partial(_summed, communicator, matrix)
    for place, size in enumerate(GRADIENT_BYTES):
        share_s = left_s / (len(GRADIENT_BYTES) - place)
        flat = torch.ones(size // 4)
        begun = perf_counter()
        summed(flat)
        summed(flat)
        estimate_s = _agreed(communicator, (perf_counter() - begun) / 2)
        left_s -= 2 * estimate_s
        if place > 1 and LEAST * estimate_s > share_s:  # two sizes are measured in any case
            return
        samples = min(MOST, max(LEAST, int(share_s / estimate_s)))
        begun = perf_counter()
        found = [summed(flat.fill_(1.0)) for _ in range(samples)]
        left_s -= _agreed(communicator, perf_counter() - begun)
        most = _OUTLYING * median(found)
        mean_s = fmean(min(seconds, most) for seconds in found)
        mine = Timed(mean_s, coefficient_of_variation(found), samples)
        yield Timed(
            _agreed(communicator, mine.seconds), _agreed(communicator, mine.deviation), samples
        ).row(f"all_reduce_{communicator.group.size}", float(size))


def _summed(communicator: Communicator, matrix: torch.Tensor, flat: torch.Tensor) -> float:
    """Compute, then sum; return the seconds of the sum."""
    for _ in range(_PRODUCTS):
        torch.mm(matrix, matrix)
    begun = perf_counter()
    communicator.sum(flat)
    return perf_counter() - begun


def _agreed(communicator: Communicator, seconds: float) -> float:
    """Return the first member's value."""
    return float(json.loads(communicator.gather(json.dumps(seconds).encode())[0]))
