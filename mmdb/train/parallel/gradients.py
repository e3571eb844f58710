"""A module's gradients as flat tensors, which are summed over the members of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass(slots=True)
class _Bucket:
    """Parameters whose gradients are summed in one tensor; a flag for each stands at the end."""

    parameters: list[nn.Parameter] = field(default_factory=list)
    flat: Tensor | None = None


class Gradients:
    """The gradients of a module's parameters: float64 in one flat tensor, all else in float32.

    A flag says whether a parameter has a gradient. Where no rank has one it stays without: an
    optimizer would step on zeros, and weight decay shrink it.
    """

    def __init__(self, module: nn.Module) -> None:
        self._buckets: dict[torch.dtype, _Bucket] = {}
        for parameter in module.parameters():
            if parameter.requires_grad:
                dtype = torch.float64 if parameter.dtype == torch.float64 else torch.float32
                self._buckets.setdefault(dtype, _Bucket()).parameters.append(parameter)

    def pack(self) -> list[Tensor]:
        """Copy the gradients into the flat tensors and return those; a missing one is zero."""
        return [_packed(bucket, dtype) for dtype, bucket in self._buckets.items()]

    def unpack(self, flats: Sequence[Tensor]) -> None:
        """Let sums of packed gradients be the parameters' gradients; float32 ones share memory."""
        for bucket, flat in zip(self._buckets.values(), flats, strict=True):
            count = len(bucket.parameters)
            sizes = [parameter.numel() for parameter in bucket.parameters]
            found = flat[-count:].tolist()
            for parameter, part, flag in zip(
                bucket.parameters, flat[:-count].split(sizes), found, strict=True
            ):
                grad = part.view(parameter.shape).to(parameter.dtype)
                parameter.grad = grad if flag else None


def _packed(bucket: _Bucket, dtype: torch.dtype) -> Tensor:
    count = len(bucket.parameters)
    if bucket.flat is None:
        rows = sum(parameter.numel() for parameter in bucket.parameters)
        device = bucket.parameters[0].device
        bucket.flat = torch.empty(rows + count, dtype=dtype, device=device)
    sizes = [parameter.numel() for parameter in bucket.parameters]
    parts = bucket.flat[:-count].split(sizes)
    for parameter, part in zip(bucket.parameters, parts, strict=True):
        grad = parameter.grad
        if grad is None:
            part.zero_()
        else:
            dense = grad.to_dense() if grad.is_sparse else grad
            part.view(parameter.shape).copy_(dense)
    flags = [parameter.grad is not None for parameter in bucket.parameters]
    bucket.flat[-count:] = torch.tensor(flags, dtype=dtype)
    return bucket.flat
