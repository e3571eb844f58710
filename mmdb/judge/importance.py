"""How much worse a model is where a column's values are shuffled among rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mmdb.data.assembly import Values
from mmdb.db.connection import Texts
from mmdb.judge.resampling import CONFIDENCE

Metric = Callable[[tuple[Tensor, ...], Tensor], float]


class Importance(NamedTuple):
    """What is lost of a metric without what some columns tell; below 0 it is better without."""

    columns: tuple[str, ...]
    value: float
    low: float
    high: float


def importances(
    values: Mapping[str, Values],
    groups: Sequence[tuple[str, ...]],
    outputs_of: Callable[[Mapping[str, Values]], tuple[Tensor, ...]],
    metric: Metric,
    *,
    maximize: bool,
    repeats: int = 20,
    seed: int = 0,
) -> Iterator[Importance]:
    """Yield the importance of groups of columns, each shuffled as a whole, in the groups' order.

    Args:
        values: of the features, by column.
        metric: of outputs, and of the rows at some places, int64 (n,).
        repeats: shuffles; each is measured on rows drawn anew, so that the interval holds what
            another sample of rows would say, too.
    Source: Breiman 2001, section 10; Fisher, Rudin and Dominici 2019.
    """
    random = np.random.default_rng(seed)
    count = len(next(iter(values.values())))
    whole = outputs_of(values)
    sign = 1.0 if maximize else -1.0
    every = torch.arange(count)
    before = metric(whole, every)
    for columns in groups:
        lost, drawn = [], []
        for _ in range(repeats):
            order = random.permutation(count)
            shuffled = {**values, **{name: _taken(values[name], order) for name in columns}}
            outputs = outputs_of(shuffled)
            rows = torch.from_numpy(random.integers(count, size=count))
            lost.append(sign * (before - metric(outputs, every)))
            drawn.append(sign * (metric(whole, rows) - metric(outputs, rows)))
        ends = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
        low, high = np.nanquantile(drawn, ends) if np.isfinite(drawn).any() else (np.nan, np.nan)
        yield Importance(columns, float(np.mean(lost)), float(low), float(high))


def _taken(values: Values, order: np.ndarray) -> Values:
    if isinstance(values, np.ndarray):
        shuffled: np.ndarray = values[order]
        return shuffled
    if isinstance(values, Texts):
        return Texts(values.distinct, values.places[order])
    found: list[str | None] = [values[k] for k in order.tolist()]
    return found
