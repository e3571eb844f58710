"""Which rows an optimizer step learns from, and what weight each portion of them has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Portion:
    """Rows that go through the module at once.

    A step's gradient is the sum over its portions of `share` times the gradient of the portion's
    mean loss: with shares of n_i / (n_1 + n_2 + ...) that of the mean over all their rows.
    """

    index: Tensor  # int64 (n,); empty: the portion adds nothing
    share: float = 1.0


#: The portions of each optimizer step of a pass.
Plan = Sequence[Sequence[Portion]]
#: From the pass's row order, int64 (n,), to its plan.
Planner = Callable[[Tensor], Plan]


def batches(order: Tensor, size: int) -> list[Tensor]:
    """Return row indices by batch; a last batch of one row joins the batch before it.

    BatchNorm cannot learn from a single row.
    """
    parts = list(order.split(size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def steps(order: Tensor, size: int, accumulate: int = 1) -> list[list[Portion]]:
    """Return a pass's plan: `accumulate` batches of `size` rows for each step, fewer for the last.

    A row weighs the same in each portion of a step, whatever the portions' sizes.
    """
    parts = batches(order, size)
    if accumulate == 1:
        return [[Portion(part)] for part in parts]
    groups = [parts[k : k + accumulate] for k in range(0, len(parts), accumulate)]
    return [[Portion(p, len(p) / sum(map(len, group))) for p in group] for group in groups]
