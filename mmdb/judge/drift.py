"""How far rows have moved from those that a model learned from, column by column."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from mmdb.data.decoding import Task
from mmdb.train.values.row_batch import fitted

#: Tenths by which numbers are put into bins, texts that have a bin of their own, and the least
#: share of a bin: the logarithm of an empty one is infinite.
_BINS, _TEXTS, _LEAST = 10, 100, 1e-4
#: Rows that a bin is expected to have, at least, so that the chi-squared test holds.
_EXPECTED = 5.0
#: Rows by which a jackknife tells a variance, and groups of them that it leaves out in turn.
_LEFT_OUT, _GROUPS = 20_000, 50


class Drift(NamedTuple):
    """How far one column has moved; shares are from 0 to 1."""

    psi: float  # population stability index
    distance: float  # Kolmogorov-Smirnov's of numbers, Jensen-Shannon's of texts, 0 to 1
    p_value: float  # that rows of one source are as far apart, or farther
    nulls_before: float
    nulls_now: float
    unseen: float = 0.0  # of texts, those that the rows before did not have


def of_numbers(before: np.ndarray, now: np.ndarray) -> Drift:
    """Compare numbers, float (n,) and (m,), with NaN for NULL.

    Source: two-sample Kolmogorov-Smirnov test with its asymptotic p-value; bins of the index are
        tenths of the rows before, and NULL. NULLs are compared by a chi-squared test, and the
        smaller p-value of both counts twice.
    """
    known, others = (np.sort(one[~np.isnan(one)]) for one in (before, now))
    nulls = np.array([len(before) - len(known), len(now) - len(others)])
    edges = np.unique(np.quantile(known, np.arange(1, _BINS) / _BINS)) if len(known) else known
    bins = [np.diff(np.searchsorted(one, edges), prepend=0, append=len(one))
            for one in (known, others)]  # fmt: skip
    table = np.stack([np.append(one, null) for one, null in zip(bins, nulls, strict=True)])
    distance = _kolmogorov_smirnov(*sorted((known, others), key=len))
    weight = len(known) * len(others) / max(len(known) + len(others), 1)
    there = np.stack([np.array([len(known), len(others)]), nulls], 1)
    p_value = min(kolmogorov(math.sqrt(weight) * distance), _chi_squared(there)) * 2
    return Drift(_psi(table), distance, min(p_value, 1.0), *_shares(nulls, before, now))


def of_texts(before: Mapping[str | None, int], now: Mapping[str | None, int]) -> Drift:
    """Compare how many rows have each text; None is NULL.

    Source: chi-squared test of the texts that most rows have, and the rest; the distance is the
        square root of the Jensen-Shannon divergence in bits.
    """
    first = sorted((t for t in before if t is not None), key=lambda t: (-before[t], t))[:_TEXTS]
    bins: Sequence[str | None] = [*first, None]
    table = np.array([[counts.get(text, 0) for text in bins] for counts in (before, now)])
    totals = np.array([sum(before.values()), sum(now.values())])
    table = np.column_stack([table, totals - table.sum(1)])
    shares = table / np.maximum(totals, 1)[:, None]
    middle = shares.mean(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(shares > 0, shares * np.log2(shares / middle), 0.0)
    distance = math.sqrt(max(float(terms.sum()) / 2, 0.0))
    new = sum(n for text, n in now.items() if text is not None and text not in before)
    nulls_before, nulls_now = (table[:, len(first)] / np.maximum(totals, 1)).tolist()
    return Drift(
        _psi(table),
        distance,
        _chi_squared(table),
        nulls_before,
        nulls_now,
        unseen=new / max(int(totals[1]), 1),
    )


def errors_of(task: Task, output: Tensor, y: Tensor) -> np.ndarray:
    """Return how far a model is from each row's label, float64 (n,): the loss, or a number's error.

    They are rounded to bfloat16: by a row's place in a batch, outputs differ by rounding.
    """
    output = fitted(output, y).double()
    if task == "classification":
        found = cross_entropy(output, y, reduction="none")
    elif task == "multilabel":
        found = binary_cross_entropy_with_logits(output, y.double(), reduction="none")
    else:
        found = y.double() - output
    return (found if found.ndim == 1 else found.mean(1)).bfloat16().double().numpy()


def metric_chance(
    counts: tuple[int, int], difference: float, measure: Callable[[Tensor], float | None]
) -> float:
    """Return how probable it is that a metric of two sources differs as much by chance.

    Source: normal approximation; the variance is that of the rows of both together, by a
        delete-a-group jackknife (Kott 2001).

    Args:
        counts: rows of each.
        measure: returns the metric of the rows of both at some places, int64 (n,); None where it
            is not defined.
    """
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(0))[:_LEFT_OUT]
    groups = order.tensor_split(min(_GROUPS, len(order)))
    parts = [[*groups[:k], *groups[k + 1 :]] for k in range(len(groups))]
    left = [measure(torch.cat(others)) for others in parts if others]
    found = torch.tensor([one for one in left if one is not None], dtype=torch.float64)
    if len(found) < 2 or not difference:
        return 1.0
    of_both = float(found.var(unbiased=False)) * (len(found) - 1)
    error = math.sqrt(of_both * len(order) * (1 / counts[0] + 1 / counts[1]))
    return math.erfc(abs(difference) / error / math.sqrt(2)) if error else 0.0


def corrected(p_values: Sequence[float]) -> list[float]:
    """Return p-values of several tests so that any of them below a level is no accident (Holm).

    >>> corrected([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    found, least = [0.0] * len(p_values), 0.0
    for place, k in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, p_values[k] * (len(p_values) - place)))
        found[k] = least
    return found


def kolmogorov(x: float) -> float:
    """Return the probability that Kolmogorov's limit distribution exceeds x."""
    if x <= 0:
        return 1.0
    if x < 1:  # where the other series converges slowly
        terms = [math.exp(-(((2 * k - 1) * math.pi / x) ** 2) / 8) for k in range(1, 20)]
        return 1.0 - math.sqrt(2 * math.pi) / x * math.fsum(terms)
    return 2 * math.fsum((-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 20))


def _kolmogorov_smirnov(few: np.ndarray, many: np.ndarray) -> float:
    """Return the distance of sorted numbers: it is greatest just before or at one of the few."""
    apart = [
        np.searchsorted(few, few, side) / max(len(few), 1)
        - np.searchsorted(many, few, side) / max(len(many), 1)
        for side in ("left", "right")
    ]
    return float(np.abs(apart).max(initial=0.0))


def _shares(nulls: np.ndarray, before: np.ndarray, now: np.ndarray) -> tuple[float, float]:
    return float(nulls[0] / max(len(before), 1)), float(nulls[1] / max(len(now), 1))


def _psi(table: np.ndarray) -> float:
    """Return the index of two rows of counts by bin."""
    used = table[:, table.sum(0) > 0]
    shares = np.maximum(used / np.maximum(used.sum(1), 1)[:, None], _LEAST)
    return float(((shares[1] - shares[0]) * np.log(shares[1] / shares[0])).sum())


def _chi_squared(table: np.ndarray) -> float:
    """Return the p-value of two rows of counts; bins of few rows are one."""
    totals, rows = table.sum(0), table.sum(1)
    if not rows.all():
        return 1.0
    few = totals * rows.min() / rows.sum() < _EXPECTED
    table = np.column_stack([table[:, ~few], table[:, few].sum(1)])
    table = table[:, table.sum(0) > 0].astype(np.float64)
    if table.shape[1] < 2:
        return 1.0
    expected = table.sum(0) * table.sum(1)[:, None] / table.sum()
    found = ((table - expected) ** 2 / expected).sum()
    freedom = torch.tensor((table.shape[1] - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, torch.tensor(found / 2, dtype=torch.float64)))
