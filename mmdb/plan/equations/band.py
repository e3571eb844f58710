"""How far a run may be from what is predicted of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
