"""Weights of several networks of one shape side by side, with what an optimizer keeps of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.graph import tabular
from mmdb.train.candidate.config import Config
from mmdb.train.stack.flow import WIDTH, filled
from mmdb.train.stack.updates import KEPT, Groups, Updates, column

#: Layers with a matrix that is stored as its transpose.
_TURNED = (nn.Linear, tabular.SharedLinear, nn.MultiheadAttention)
#: What is filled up in no dimension, by its name: its layers put it together otherwise.
_WHOLE: dict[str, tuple[type[nn.Module], ...]] = {
    "weight": (nn.Embedding, nn.Conv1d, nn.Conv2d),
    "frequency": (tabular.PeriodicEmbedding,),
    "phase": (tabular.PeriodicEmbedding,),
}


class ParameterSlot:
    """Where a parameter lies among a member's numbers: filled up, and matrices transposed."""

    def __init__(
        self, path: str, layer: nn.Module, shape: Sequence[int], start: int, unit: int
    ) -> None:
        self.path, self._start = path, start
        name = path.rpartition(".")[2]
        self._turns = name in ("weight", "in_proj_weight") and isinstance(layer, _TURNED)
        sizes = list(reversed(shape)) if self._turns else list(shape)
        self._sizes: tuple[Any, ...] = (..., *(slice(size) for size in sizes))
        is_matrix = self._turns or (name == "weight" and isinstance(layer, tabular.MemberLinear))
        fills = 2 if is_matrix else 0 if (name in _WHOLE and isinstance(layer, _WHOLE[name])) else 1
        units = (1,) * (len(sizes) - fills) + (unit,) * fills
        self._shape = tuple(map(filled, sizes, units))
        self._size = math.prod(self._shape)
        self.end = start + filled(self._size, unit)

    def of(self, numbers: Tensor) -> Tensor:
        """Return the parameter, filled up, as a view of numbers (..., width)."""
        part = numbers[..., self._start : self._start + self._size]
        return part.view(*numbers.shape[:-1], *self._shape)

    def put(self, numbers: Tensor, parameter: Tensor) -> None:
        """Write parameters (..., *shape), as torch has them, to numbers (..., width)."""
        self.of(numbers)[self._sizes].copy_(parameter.mT if self._turns else parameter)

    def take(self, numbers: Tensor) -> Tensor:
        """Return the parameter as torch has it, (..., *shape)."""
        found = self.of(numbers)[self._sizes]
        return (found.mT if self._turns else found).contiguous()


def slots_of(module: nn.Module, *, skipped: int = 0, unit: int = WIDTH) -> list[ParameterSlot]:
    """Return where each parameter lies, in their order.

    Args:
        skipped: dimensions in front of each parameter that are not of one network.
        unit: of which widths are multiples.
    """
    found: list[ParameterSlot] = []
    for path, parameter in module.named_parameters():
        layer = module.get_submodule(path.rpartition(".")[0])
        start = found[-1].end if found else 0
        found.append(ParameterSlot(path, layer, parameter.shape[skipped:], start, unit))
    return found


@dataclass(slots=True)
class Members:
    """The numbers of all members, (members, width) each: of what an optimizer keeps by its name."""

    slots: Sequence[ParameterSlot]
    weights: Tensor
    slopes: Tensor
    kept: dict[str, Tensor]

    @classmethod
    def blank(cls, slots: Sequence[ParameterSlot], count: int, optimizer: str) -> Members:
        """Return zeros, for an optimizer by its class."""
        weights, slopes = torch.zeros(2, count, slots[-1].end).unbind(0)
        kept = {kind: torch.zeros_like(weights) for kind in KEPT[optimizer]}
        return cls(slots, weights, slopes, kept)

    def first(self, count: int) -> Members:
        """Return the first members, over the same memory."""
        kept = {kind: numbers[:count] for kind, numbers in self.kept.items()}
        return Members(self.slots, self.weights[:count], self.slopes[:count], kept)


class Steps:
    """Takes steps with members' weights."""

    def __init__(self, members: Members, updates: Updates) -> None:
        self.updates, self._members = updates, members
        #: By path, (members, *filled shape): what a forward pass takes.
        self.views = {
            slot.path: slot.of(members.weights).requires_grad_() for slot in members.slots
        }
        self._gradients = [slot.of(members.slopes) for slot in members.slots]

    def take(
        self, losses: Tensor, configs: Sequence[Config], groups: Groups, rates: Sequence[float]
    ) -> None:
        """Go down each member's loss, (members,).

        Args: what follows is of each member, or one of all.
        """
        found = torch.autograd.grad(losses.sum(), list(self.views.values()))
        torch._foreach_copy_(self._gradients, list(found))
        _clip(self._members.slopes, configs)
        with torch.no_grad():
            self.updates.take(self._members.weights, self._members.slopes, groups, rates)


def _clip(slopes: Tensor, configs: Sequence[Config]) -> None:
    if any(config.clip_norm is not None for config in configs):
        most = column([math.inf if c.clip_norm is None else c.clip_norm for c in configs])
        norms = torch.stack([row.norm() for row in slopes])[:, None]
        slopes.mul_((most / (norms + 1e-6)).clamp(max=1.0))
    if any(config.clip_value is not None for config in configs):
        most = column([math.inf if c.clip_value is None else c.clip_value for c in configs])
        torch.minimum(torch.maximum(slopes, -most), most, out=slopes)
