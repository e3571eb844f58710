"""How sure a measured value is: bootstrap intervals, and tests of two models on the same rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

#: Draws of an interval; fewer of many rows, which need not as many to be steady.
DRAWS, _ROWS_DRAWN, _FEWEST = 1000, 100_000_000, 200
#: The confidence of intervals, and of the word that two models differ.
CONFIDENCE = 0.95

Metrics = Mapping[str, float]


class Interval(NamedTuple):
    """Ends between which a value is, with `CONFIDENCE`."""

    low: float
    high: float


class MetricDifference(NamedTuple):
    """A metric's difference, with its interval and how probable it is by chance."""

    low: float
    high: float
    p_value: float


def drawn(rows: int, measure: Callable[[Tensor], Metrics], *, seed: int = 0) -> dict[str, Tensor]:
    """Return metrics of rows drawn with replacement, float64 (draws,) each, where they are defined.

    Args:
        measure: returns the metrics of the rows at some places, int64 (n,).
    """
    source = torch.Generator().manual_seed(seed)
    draws = max(min(DRAWS, _ROWS_DRAWN // max(rows, 1)), _FEWEST)
    found: dict[str, list[float]] = {}
    for _ in range(draws):
        for name, value in measure(torch.randint(rows, (rows,), generator=source)).items():
            found.setdefault(name, []).append(value)
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items()}


def intervals(
    rows: int, values: Metrics, measure: Callable[[Tensor], Metrics]
) -> dict[str, Interval]:
    """Return the interval of each metric, by name; of none that most draws do not define.

    Source: Efron and Tibshirani 1993, chapter 14: percentiles, corrected for bias.
    """
    return {
        name: _percentiles(draws, values[name])
        for name, draws in drawn(rows, measure).items()
        if name in values and len(draws) >= _FEWEST // 2
    }


def _percentiles(draws: Tensor, value: float) -> Interval:
    normal = torch.distributions.Normal(0.0, 1.0)
    below = float(((draws < value).double().mean() + (draws <= value).double().mean()) / 2)
    shift = float(normal.icdf(torch.tensor(min(max(below, 1e-3), 1 - 1e-3), dtype=torch.float64)))
    ends = torch.tensor([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], dtype=torch.float64)
    low, high = torch.quantile(draws, normal.cdf(2 * shift + normal.icdf(ends))).tolist()
    return Interval(low, high)


def differences(
    rows: int, values: Metrics, measure: Callable[[Tensor], Metrics]
) -> dict[str, MetricDifference]:
    """Return for differences of two models' metrics on the same rows how sure they are."""
    found = {}
    for name, draws in drawn(rows, measure).items():
        if name not in values or len(draws) < _FEWEST // 2:
            continue
        low, high = _percentiles(draws, values[name])
        aside = min(float((draws <= 0).double().mean()), float((draws >= 0).double().mean()))
        p_value = min(2 * (aside * len(draws) + 1) / (len(draws) + 1), 1.0)
        found[name] = MetricDifference(low, high, p_value)
    return found


def mcnemar(only_a: int, only_b: int) -> float:
    """Return how probable it is by chance that rows which one model alone has right are so shared.

    Source: McNemar 1947; the exact binomial test, with half of the probability of what was seen
    (mid-p; Fagerland, Lydersen and Laake 2013), as the exact one errs on the side of equality.
    """
    n, k = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return 1.0
    logs = [
        math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) - n * math.log(2)
        for j in range(k + 1)
    ]
    seen = math.exp(logs[-1])
    if only_a == only_b:
        return 1.0 - seen / 2
    return min(2 * sum(map(math.exp, logs)) - seen, 1.0)
