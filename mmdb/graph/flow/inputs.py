"""The inputs of a forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor

from mmdb.graph.flow.known import map_tensors

_LEAST_BATCH = 11


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a forward is called with: tensors, and what else it takes."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def changed(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """Return the same with each tensor changed, in their order."""
        args, kwargs = map_tensors((self.args, self.kwargs), change)
        return Inputs(args, kwargs)

    def tensors(self) -> list[Tensor]:
        """Return the tensors, in their order."""
        found: list[Tensor] = []

        def keep(tensor: Tensor) -> Tensor:
            found.append(tensor)
            return tensor

        self.changed(keep)
        return found

    @property
    def rows(self) -> int:
        """The length of the first axis of the first tensor that has one."""
        return next((one.shape[0] for one in self.tensors() if one.ndim), 0)

    def with_batch(self, size: int) -> Inputs:
        """Return a batch of this size, the rows of this one again and again.

        Tensors whose first axis is as long as that of the first one have rows.
        """
        rows = self.rows

        def repeat(tensor: Tensor) -> Tensor:
            if not rows or not tensor.ndim or tensor.shape[0] != rows:
                return tensor
            return tensor.detach()[torch.arange(size, device=tensor.device) % rows]

        return self.changed(repeat)


def batch_apart(sizes: Iterable[int]) -> int:
    """Return a batch size that divides none of these sizes, so that no axis is taken for it."""
    known = {size for size in sizes if size}
    return next(
        number
        for number in count(_LEAST_BATCH, 2)
        if all(number % factor for factor in range(3, int(number**0.5) + 1, 2))
        and all(size % number for size in known)
    )
