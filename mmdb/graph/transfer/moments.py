"""Means and variances of a network's channels, from what its batch norms say of their results.

A batch norm gives channels of mean beta and variance gamma squared; behind a ReLU they are those of
a clipped normal distribution (Nagel et al. 2019, arXiv 1906.04721, appendix C). No data is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from mmdb.graph.flow.flow import Flow, Operation, Value
from mmdb.graph.transfer.axes import kinds

#: float64 (channels,) each: means and variances.
Moments: TypeAlias = tuple[Tensor, Tensor]
Find: TypeAlias = Callable[[Value], Moments | None]


def moments_of(
    flow: Flow, tensor_of: Callable[[str], Tensor | None], hands_on: Callable[[int], bool]
) -> Mapping[Value, Moments]:
    """Return the moments along axis 1 of values, where they are known.

    Args:
        tensor_of: a parameter by its path, None if it is not known.
        hands_on: whether an operation, by its ordinal, gives what it reads.
    """
    found: dict[Value, Moments] = {}
    for op in flow.operations:
        made = _moments(op, flow, tensor_of, found.get, is_idle=hands_on(op.ordinal))
        if made is not None:
            found[Value(op.ordinal)] = made
    return found


def _moments(
    op: Operation,
    flow: Flow,
    tensor_of: Callable[[str], Tensor | None],
    find: Find,
    *,
    is_idle: bool,
) -> Moments | None:
    if is_idle:
        return find(op.reads[0])
    if op.op == "batch_norm":
        weight, bias = (_tensor(op, name, flow, tensor_of) for name in ("weight", "bias"))
        return None if weight is None or bias is None else (bias, weight.square())
    several = [find(value) for value in op.reads]
    known = [one for one in several if one is not None]
    if not known or len(known) < len(several):
        return None
    if op.op in kinds.CLIPPING and op.arguments.get("min_val", 0) == 0:
        return _clipped(*known[0])
    if op.op in kinds.PER_CHANNEL and flow.shape_of(op.reads[0]) == op.shape:
        return known[0]
    if op.op == "add" and len(known) == 2 and op.arguments.get("alpha", 1) == 1:
        (mean, variance), (other, another) = known
        return (mean + other, variance + another) if len(mean) == len(other) else None
    if op.op == "cat" and op.arguments.get("dim") == 1:
        means, variances = zip(*known, strict=True)
        return torch.cat(means), torch.cat(variances)
    return None


def _clipped(mean: Tensor, variance: Tensor) -> Moments:
    """Return the moments of max(x, 0) for normal x."""
    deviation = variance.sqrt().clamp_min(1e-12)
    ratio = mean / deviation
    share = torch.special.ndtr(ratio)
    density = torch.exp(-ratio.square() / 2) / math.sqrt(2 * math.pi)
    clipped = mean * share + deviation * density
    square = (mean.square() + variance) * share + mean * deviation * density
    return clipped, (square - clipped.square()).clamp_min(0.0)


def _tensor(
    op: Operation, name: str, flow: Flow, tensor_of: Callable[[str], Tensor | None]
) -> Tensor | None:
    value = op.arguments.get(name)
    if not isinstance(value, Value):
        return None
    tensor = tensor_of(flow.operations[value.operation].path)
    return None if tensor is None else tensor.detach().double()
