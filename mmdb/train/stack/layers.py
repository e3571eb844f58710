"""Layers of several networks of one shape at once: (members, n, width) to (members, n, width).

Each member's numbers are those that it has in any other stack, alone included: a product is one of
a batch, whatever else is in the batch, and each draws from its own generator. So that no member's
numbers lie otherwise in the processor's registers than another's, every width is filled up to a
multiple of WIDTH by zeros, which all layers leave as they are; of 1 where the company is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from mmdb.graph import tabular

#: Numbers of two of the processor's registers, by which torch's loops go; the rest of a loop, which
#: is computed otherwise, has none of a member's numbers then.
WIDTH = 32
#: What a layer needs beside its input: parameters and buffers of all members by path.
Tensors = Mapping[str, Tensor]
Generators = Sequence[torch.Generator]
#: From the input of all members to their output.
Step = Callable[[Tensor], Tensor]
_EACH: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {
    nn.ReLU: torch.relu,
    nn.SiLU: nn.functional.silu,
    nn.Tanh: torch.tanh,
    nn.Identity: lambda x: x,
}


def filled(width: int, unit: int = WIDTH) -> int:
    """Return a width filled up to a multiple.

    >>> filled(1), filled(32), filled(33)
    (32, 32, 64)
    """
    return -(-width // unit) * unit


def fill(x: Tensor, unit: int = WIDTH) -> Tensor:
    """Return what ends in a width, filled up by zeros."""
    more = filled(x.shape[-1], unit) - x.shape[-1]
    return nn.functional.pad(x, (0, more)) if more else x


class NotStackable(Exception):
    """A layer has no form for several members."""


def stacked(
    modules: Sequence[nn.Module],
    tensors: Tensors,
    draws: Generators,
    path: str = "",
    *,
    unit: int = WIDTH,
) -> Step:
    """Return what the same layer of each member does, in training.

    Args:
        modules: the layer of each member; they differ in numbers such as a dropout's alone. One
            stands for all members, and has one generator, where they do not differ.
        tensors: (members, *shape) by path; buffers are changed in place.
        draws: of each member.
        path: of the layer, with a dot at its end; empty for the whole network.
        unit: of which widths are multiples.
    Raises:
        NotStackable
    """
    match modules[0]:
        case nn.Sequential() as first if type(first) is nn.Sequential:
            return _in_turn(
                [
                    stacked(
                        [m.get_submodule(name) for m in modules],
                        tensors,
                        draws,
                        f"{path}{name}.",
                        unit=unit,
                    )
                    for name, _ in first.named_children()
                ]
            )
        case nn.Flatten(start_dim=1, end_dim=-1):
            return lambda x: fill(x.flatten(2), unit)
        case nn.Linear(bias=Tensor()) as first if type(first) is nn.Linear:
            weight, bias = tensors[f"{path}weight"], tensors[f"{path}bias"]
            return lambda x: torch.baddbmm(bias[:, None], x, weight)
        case nn.Dropout():
            return _dropout([cast(nn.Dropout, m).p for m in modules], draws)
        case nn.BatchNorm1d(affine=True, track_running_stats=True) as first:
            return _batch_norm(first, tensors, path)
        case tabular.Scaled(mean=float(mean), deviation=float(deviation)):
            return lambda x: x * deviation + mean
        case tabular.ColumnInput(dropout=0.0) as first if not first.readers:
            return _columns(first, tensors, path, unit)
        case nn.GELU(approximate="none"):
            return nn.functional.gelu
        case first if type(first) in _EACH:
            return _EACH[type(first)]
    raise NotStackable(type(modules[0]).__name__)


def _in_turn(steps: Sequence[Step]) -> Step:
    def run(x: Tensor) -> Tensor:
        for step in steps:
            x = step(x)
        return x

    return run


def _dropout(shares: Sequence[float], draws: Generators) -> Step:
    if not any(shares):
        return lambda x: x

    def run(x: Tensor) -> Tensor:
        kept = torch.empty_like(x)
        for mask, share, generator in zip(kept.chunk(len(draws)), shares, draws, strict=True):
            if share:
                mask.bernoulli_(1 - share, generator=generator).div_(1 - share)
            else:
                mask.fill_(1.0)
        return x * kept

    return run


def _batch_norm(layer: nn.BatchNorm1d, tensors: Tensors, path: str) -> Step:
    names = ("running_mean", "running_var", "weight", "bias")
    running_mean, running_var, weight, bias = (tensors[f"{path}{name}"] for name in names)
    count, momentum = tensors[f"{path}num_batches_tracked"], layer.momentum

    def run(x: Tensor) -> Tensor:
        members, rows, width = x.shape
        count.add_(1)
        share = float(1 / count[0]) if momentum is None else momentum
        flat = x.transpose(0, 1).reshape(rows, members * width)
        found = nn.functional.batch_norm(
            flat, running_mean.view(-1), running_var.view(-1),
            weight.reshape(-1), bias.reshape(-1), True, share, layer.eps,
        )  # fmt: skip
        # Kernels take another way through what is not contiguous, as a single member's is.
        return found.reshape(rows, members, width).transpose(0, 1).contiguous()

    return run


def _columns(layer: tabular.ColumnInput, tensors: Tensors, path: str, unit: int) -> Step:
    tables = [tensors[f"{path}embeddings.{k}.weight"] for k in range(len(layer.codes))]

    def run(x: Tensor) -> Tensor:
        x = x.flatten(2)
        who = torch.arange(len(x))[:, None]
        parts = [x.index_select(2, layer.numbers)]
        for place, table in zip(layer.codes, tables, strict=True):
            parts.append(table[who, x[:, :, place].long()])
        return fill(torch.cat(parts, 2), unit)

    return run
