"""Which models are no parents by what is known of them: outliers, chance, near-duplicates. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

#: Robust deviations from the median from which on a value is an outlier, among so many or more.
#: Source: Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993), section 3.
OUTLIER, FEWEST_VALUES = 3.5, 5
#: An outlier is also off by this share of the median: where values are nearly equal, none is.
LEAST_GAP = 0.05
#: Standard errors by which a model has to be above chance.
ABOVE_CHANCE = 3.0
#: Values that differ by no more than this share are as good as equal.
NEARLY = 0.01
#: Two architectures that are this similar are as good as one.
DUPLICATE_SIMILARITY = 0.98

#: Metrics of which less is better, by the last part of their names; of all others more is.
_MINIMIZED = frozenset(
    {"loss", "log_loss", "rmse", "mse", "mae", "mape", "hamming", "error", "perplexity"}
)


def is_maximized(metric: str) -> bool:
    """Return whether more of a metric is better, by its name.

    >>> is_maximized("accuracy"), is_maximized("digit.log_loss")
    (True, False)
    """
    return metric.rpartition(".")[2] not in _MINIMIZED


def outlier_limit(values: Sequence[float], *, maximize: bool) -> float | None:
    """Return the value beyond which a model is too bad to be one of these; None for too few values.

    The modified z-score is 0.6745 (x - median) / MAD; where half of the values are equal, and MAD
    is 0, it is (x - median) / (1.2533 times the mean absolute deviation).
    """
    found = np.sort([value for value in values if math.isfinite(value)])  # sums depend on the order
    if len(found) < FEWEST_VALUES:
        return None
    median = float(np.median(found))
    apart = np.abs(found - median)
    scale = float(np.median(apart)) / 0.6745 or 1.2533 * float(apart.mean())
    gap = max(OUTLIER * scale, LEAST_GAP * abs(median))
    return median - gap if maximize else median + gap


def is_worse(value: float, limit: float, *, maximize: bool) -> bool:
    """Return whether a value is worse than a limit; NaN always is."""
    return not (value >= limit if maximize else value <= limit)


def chance_limit(
    metric: str, class_counts: Sequence[int] | None, validation_rows: int | None
) -> float | None:
    """Return the value that a model which has learned nothing does not exceed; None if not known.

    Accuracy: the share of the most frequent class, and three standard errors of a share measured on
    the validation rows. r2 of a constant is 0.

    Args:
        class_counts: train rows of each class.
    """
    name = metric.rpartition(".")[2]
    if name == "r2":
        return 0.0
    if name not in ("accuracy", "balanced_accuracy") or not class_counts or not sum(class_counts):
        return None
    share = max(class_counts) / sum(class_counts) if name == "accuracy" else 1 / len(class_counts)
    error = math.sqrt(share * (1 - share) / validation_rows) if validation_rows else 0.0
    return min(share + ABOVE_CHANCE * error, (1 + share) / 2)


def are_near(a: float, b: float) -> bool:
    """Return whether two values of one metric are as good as equal."""
    return abs(a - b) <= NEARLY * max(abs(a), abs(b))


def counts_of(
    metric: str, label: str, class_counts: Mapping[str, Sequence[int]] | None
) -> Sequence[int] | None:
    """Return the train rows of each class of the label that a metric is of.

    Args:
        label: the dataset's first one, for a metric without a label in its name.
    """
    owner, _, _ = metric.rpartition(".")
    return (class_counts or {}).get(owner or label)
