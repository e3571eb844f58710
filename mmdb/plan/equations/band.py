"""How far a run may be from what is predicted of it."""

from __future__ import annotations

import math

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
