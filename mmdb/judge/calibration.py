"""Calibrated probabilities of a classifier, and the class that is predicted by them.

Outputs are float32 (n, classes), logits; labels int64 (n,); weights of rows float64 (n,), None for
equal ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mmdb.data.calibration import Calibration, Knots
from mmdb.errors import InvalidInput
from mmdb.train.candidate.metrics import ranked

Method = Literal["temperature", "isotonic"]
METHODS: tuple[Method, ...] = ("temperature", "isotonic")
#: No class is calibrated to be impossible: the rows that say so are few.
_LEAST = 1e-6
#: Where a temperature is looked for, as a logarithm, and how often the range is shortened.
_COLDEST, _HOTTEST, _STEPS = math.log(0.01), math.log(100.0), 40


def guesses(calibration: Calibration, probabilities: Tensor) -> Tensor:
    """Return the class that is predicted of each row, int64 (n,)."""
    if calibration.positive is None:
        return probabilities.argmax(-1)
    own = torch.tensor([calibration.positive])
    others = probabilities.index_fill(-1, own, -1.0).argmax(-1)
    is_positive = probabilities[:, calibration.positive] >= calibration.threshold
    return torch.where(is_positive, own, others)


class Calibrated(nn.Module):
    """A module whose outputs are calibrated: their softmax are the new probabilities."""

    def __init__(self, module: nn.Module, calibration: Calibration) -> None:
        """Take a module of one target."""
        super().__init__()
        self.module, self.temperature = module, calibration.temperature or 1.0
        self.curves = [[torch.tensor(part) for part in knots] for knots in calibration.isotonic]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs in the form in which the module returns them."""
        found = self.module(*args, **kwargs)
        if isinstance(found, Mapping):
            return {name: self.calibrate(output) for name, output in found.items()}
        if isinstance(found, tuple | list):
            return tuple(map(self.calibrate, found))
        return self.calibrate(found)

    def calibrate(self, output: Tensor) -> Tensor:
        """Return calibrated outputs."""
        if not self.curves:
            return output / self.temperature
        scores = output.softmax(-1).unbind(-1)
        shares = [_between(score, *c) for score, c in zip(scores, self.curves, strict=True)]
        return torch.stack(shares, -1).clamp(min=_LEAST).log()


def _between(x: Tensor, at: Tensor, values: Tensor) -> Tensor:
    """Return a function that is linear between knots, and constant beyond them."""
    if len(at) == 1:
        return values.expand(x.shape)
    right = torch.searchsorted(at, x.detach().contiguous()).clamp(1, len(at) - 1)
    share = ((x - at[right - 1]) / (at[right] - at[right - 1])).clamp(0.0, 1.0)
    return values[right - 1] + share * (values[right] - values[right - 1])


def calibrated(
    method: Method, output: Tensor, y: Tensor, weight: Tensor | None = None
) -> Calibration:
    """Return the calibration of a model by what it says of rows that it was not trained on.

    Source: Guo et al., ICML 2017 (temperature); Zadrozny and Elkan, KDD 2002 (isotonic, each class
    against the rest).
    Raises:
        InvalidInput: the rows that count are of one class, or an output is no number.
    """
    if not output.isfinite().all():
        raise InvalidInput("The model's outputs are not all finite.", hint="Train it anew.")
    if len((y if weight is None else y[weight > 0]).unique()) < 2:
        raise InvalidInput(
            "All rows are of one class, by which nothing can be calibrated.",
            hint="Read more rows.",
        )
    if method == "temperature":
        return Calibration(temperature=_temperature(output.double(), y, weight))
    scores = output.softmax(-1)
    classes = range(output.shape[-1])
    return Calibration(isotonic=tuple(_rising(scores[:, k], y == k, weight) for k in classes))


def _temperature(output: Tensor, y: Tensor, weight: Tensor | None) -> float:
    """Return what the outputs are to be divided by for the least log loss, by golden section."""
    weight = torch.ones(len(y), dtype=torch.float64) if weight is None else weight

    def loss(logarithm: float) -> float:
        losses = nn.functional.cross_entropy(output / math.exp(logarithm), y, reduction="none")
        return float((losses * weight).sum())

    low, high, golden = _COLDEST, _HOTTEST, (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    losses = loss(left), loss(right)
    for _ in range(_STEPS):
        if losses[0] <= losses[1]:
            high, right, left = right, left, right - golden * (right - low)
            losses = loss(left), losses[0]
        else:
            low, left, right = left, right, left + golden * (high - left)
            losses = losses[1], loss(right)
    return math.exp((low + high) / 2)


def _rising(scores: Tensor, positive: Tensor, weight: Tensor | None) -> Knots:
    """Return the rising shares that are nearest to the rows: neighbours that fall are pooled."""
    found = (part.flip(0).tolist() for part in ranked(scores, positive, weight))
    pools: list[tuple[float, float, float, float]] = []  # first score, last, hits, rows
    for score, hits, others in zip(*found, strict=True):
        first, rows = score, hits + others
        if not rows:  # weights of 0
            continue
        while pools and pools[-1][2] * rows >= hits * pools[-1][3]:
            first, _, before, held = pools.pop()
            hits, rows = hits + before, rows + held
        pools.append((first, score, hits, rows))
    ends: Sequence[tuple[float, float]] = [
        (at, hits / rows)
        for first, last, hits, rows in pools
        for at in dict.fromkeys((first, last))
    ]
    return tuple(at for at, _ in ends), tuple(share for _, share in ends)
