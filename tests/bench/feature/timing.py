"""How long rows take in frozen layers, on one thread, and how many fill a run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import nn

from mmdb.bench.figures import one_thread, seconds_of
from mmdb.graph.cut.cut import prefix_of
from tests.bench.feature.subject import BATCH

LEAST_ROWS = 320
_TIMES = 3


def row_seconds(module: nn.Module, cuts: Sequence[str], shape: tuple[int, ...]) -> float:
    """Return the seconds that a row takes in the layers up to each cut, all cuts together."""
    x, total = torch.zeros(BATCH, *shape), 0.0
    with one_thread(), torch.no_grad():
        for cut in cuts:
            layers = prefix_of(module, cut)
            total += min(seconds_of(partial(layers, x)) for _ in range(_TIMES)) / BATCH
    return total


def rows_for(seconds: float, row_s: float) -> int:
    """Return how many rows take so long, in whole batches of each of two partitions and more."""
    return max(LEAST_ROWS, round(seconds / row_s / BATCH) * BATCH)
