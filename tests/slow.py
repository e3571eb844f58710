"""Factories whose models take their time; registered by tests."""

from __future__ import annotations

import math
import time
from pathlib import Path

from torch import Tensor, nn


class Slow(nn.Linear):
    """A linear layer that sleeps in each training step, and not where a plan follows it."""

    def __init__(self, width: int, outputs: int, seconds: float) -> None:
        super().__init__(width, outputs)
        self.seconds = seconds

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not x.is_meta:
            time.sleep(self.seconds)
        return super().forward(x)


def slow(input_shape: tuple[int, ...], outputs: int, *, seconds: float = 0.05) -> nn.Module:
    """Return a model whose every training step takes so long."""
    return Slow(math.prod(input_shape), outputs, seconds)


def waits(input_shape: tuple[int, ...], outputs: int, *, flag: str) -> nn.Module:
    """Return a linear layer, but not while a file of that name is there."""
    while Path(flag).exists():
        time.sleep(0.01)
    return nn.Linear(math.prod(input_shape), outputs)
