"""Other models of a run's time, given what the planner was given: one epoch on one worker or two.

Each returns a rating of a way of training; it would choose the one with the least, the first among
equals. All but Cerebro's rule are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from mmdb.plan.equations import longest_first_s
from tests.bench.plan.sizing import Size, flops_of_row
from tests.bench.plan.warmed import Warmed
from tests.bench.plan.workloads import Way, Workload

#: Weights as a part of a state, of which Adam keeps two more.
WEIGHTS = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What baselines know of a workload: its warm-ups, of all its candidates, and the machine."""

    workload: Workload
    size: Size
    warmed: Sequence[Warmed]
    bytes_per_s: float  # between two workers

    @property
    def fewest(self) -> Warmed:
        """The warm-up with the fewest workers."""
        return min(self.warmed, key=lambda one: one.workers)


def ratings_of(known: Known, way: Way) -> dict[str, float]:
    """Return each baseline's rating of a way of training, or nothing where none can be given."""
    if any(len(one.compute_s) < known.workload.candidates for one in known.warmed):
        return {}
    return {
        "Amdahl": amdahl_s(known, way),
        "Ernest": ernest_s(known, way),
        "Paleo": paleo_s(known, way),
        "Cerebro's rule": cerebro(known.workload, way),
    }


def useful(workload: Workload, way: Way) -> int:
    """Return how many workers have something to do at once."""
    spread = way.strategy in ("model_average", "data_parallel")
    return min(way.workers, workload.candidates * (workload.partitions if spread else 1))


def amdahl_s(known: Known, way: Way) -> float:
    """Return E (serial + parallel / W), through two warm-ups, or one and what was not computing.

    Source: Amdahl, AFIPS 1967.
    """
    one = known.fewest
    others = [w for w in known.warmed if w.workers > one.workers]
    if others:
        more = max(others, key=lambda w: w.workers)
        saved = max(0.0, one.seconds - more.seconds)
        parallel = min(saved / (1 / one.workers - 1 / more.workers), one.seconds * one.workers)
        serial = max(0.0, one.seconds - parallel / one.workers)
    else:
        serial = one.other_s / one.workers
        parallel = one.seconds * one.workers - one.other_s
    return known.size.epochs * (serial + parallel / useful(known.workload, way))


def ernest_s(known: Known, way: Way) -> float:
    """Return a + b s / m + c log m + d m, for s epochs on m machines, none of a to d below 0.

    Source: Venkataraman et al., NSDI 2016 (Ernest). Fitted to the warm-ups and to their halves.
    """
    points = [
        (share, one.workers, seconds)
        for one in known.warmed
        for share, seconds in ((0.5, one.half_s), (1.0, one.seconds))
    ]
    columns = np.array([_ernest(share, workers) for share, workers, _ in points])
    found = least_squares(columns, np.array([seconds for _, _, seconds in points]))
    wanted = _ernest(float(known.size.epochs), useful(known.workload, way))
    return float(np.dot(found, wanted))


def _ernest(share: float, machines: int) -> tuple[float, ...]:
    return 1.0, share / machines, math.log(machines), float(machines)


def least_squares(columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the coefficients of least squares, none below 0; all subsets of columns are tried.

    >>> least_squares(np.array([[1.0, 1.0], [1.0, 2.0]]), np.array([2.0, 1.0])).round(2).tolist()
    [1.5, 0.0]
    """
    count = columns.shape[1]
    best, least = np.zeros(count), math.inf
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            some, *_ = np.linalg.lstsq(columns[:, chosen], values)
            miss = float(((columns[:, chosen] @ some - values) ** 2).sum())
            if (some >= 0).all() and miss < least * (1 - 1e-9) - 1e-15:
                best, least = np.zeros(count), miss
                best[list(chosen)] = some
    return best


def paleo_s(known: Known, way: Way) -> float:
    """Return FLOPs / (peak x PPP) and bytes / bandwidth, without latencies.

    Source: Qi, Sparks and Talwalkar, ICLR 2017 (Paleo). The platform's percentage of peak is not
    guessed: it is such that the warm-up's computing takes what it took. States and gradients move
    at the bandwidth that was measured between workers.
    """
    workload, size, one = known.workload, known.size, known.fewest
    flops = [flops_of_row(workload.family, k, workload.batch_size) for k in workload.sizes]
    each = np.repeat(np.array(flops), workload.candidates // len(flops))
    chain = size.epochs * sum(one.compute_s.values()) * each / each.sum()
    states = np.array([one.state_bytes[c] for c in sorted(one.state_bytes)])
    workers, parts = useful(workload, way), workload.partitions
    moved = size.epochs * float(states.sum()) / known.bytes_per_s
    if way.strategy == "task":
        return longest_first_s(chain, workers)
    if way.strategy == "mop":
        return max(float(chain.max()), float(chain.sum()) / workers) + moved * (workers > 1)
    if way.strategy == "model_average":
        rounds = math.ceil(workload.candidates * parts / workers) / (workload.candidates * parts)
        return float(chain.sum()) * rounds + parts * moved
    steps = math.ceil(size.rows / workload.batch_size)
    exchanged = 2 * (workers - 1) / workers * WEIGHTS * moved
    rounds = math.ceil(parts / workers) / parts
    return float(chain.sum()) * rounds + steps * exchanged


def cerebro(workload: Workload, way: Way) -> float:
    """Return 0 for what Cerebro's authors advise, 1 for the rest.

    With as many candidates as workers, hop; with fewer, data parallelism (Horovod there).
    Source: Nakandala, Zhang and Kumar, PVLDB 13(11) 2020, section 5.
    """
    workers = max(one.workers for one in workload.ways)
    strategy = "mop" if workload.candidates >= workers else "data_parallel"
    return 0.0 if (way.strategy, way.workers) == (strategy, workers) else 1.0


def first_least(ratings: Mapping[Way, float]) -> Way:
    """Return what a baseline chooses."""
    return min(ratings, key=lambda way: ratings[way])
