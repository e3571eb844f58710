"""Training functions that recipes of tests name."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from mmdb.train.replay.trainer import TrainingData


def fine_tune(
    module: nn.Module,
    data: TrainingData,
    *,
    seed: int,
    state: Mapping[str, Any],
    lr: float = 0.01,
    epochs: int = 1,
) -> None:
    """Train with Adam and a step schedule, from their states where there are any."""
    optimizer = torch.optim.Adam(module.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    if state:
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
    for _ in range(epochs):
        for x, y in data.batches(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()
        schedule.step()


def every_generator(module: nn.Module, data: TrainingData, **arguments: Any) -> None:
    """Move the weights by numbers of Python's, numpy's and torch's generators."""
    step = random.random() + np.random.random() + torch.rand(()).item()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(step)


def noise(module: nn.Module, data: TrainingData, **arguments: Any) -> None:
    """Move the weights by what the clock says."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(time.perf_counter_ns() % 1_000_003)


def fails(module: nn.Module, data: TrainingData, **arguments: Any) -> None:
    """Raise."""
    raise KeyError("no luck")
