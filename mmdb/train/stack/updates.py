"""Optimizers of several members at once, over weights that lie side by side, (members, numbers).

Each is torch's of the same name, with a coefficient for each member in place of one number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

#: A parameter group of each member, as torch's optimizers have it.
Groups = Sequence[Mapping[str, Any]]
#: What an optimizer keeps of each number: by its name in torch's state.
KEPT: dict[str, tuple[str, ...]] = {
    "SGD": ("momentum_buffer",),
    "Adam": ("exp_avg", "exp_avg_sq"),
    "AdamW": ("exp_avg", "exp_avg_sq"),
}
#: Switches that have no form here: they must be off.
_OFF = ("amsgrad", "maximize", "nesterov", "dampening")


def updates(name: str, group: Mapping[str, Any]) -> bool:
    """Return whether there is a form of an optimizer, by its class and a parameter group."""
    return name in KEPT and not any(group.get(switch) for switch in _OFF)


def column(values: Sequence[float]) -> Tensor:
    """Return a number of each member, float32 (members, 1)."""
    return torch.tensor(values, dtype=torch.float64).float()[:, None]


class Updates:
    """The optimizer of a stack.

    All members go through the same operations, those too that change nothing of some: they would
    differ in the sign of a zero.
    """

    def __init__(self, name: str, kept: Mapping[str, Tensor], steps: Sequence[int]) -> None:
        """Go on from what each member's optimizer keeps.

        Args:
            kept: by the names of `KEPT`, float32 (members, numbers); changed in place.
            steps: that each member has taken.
        """
        self.steps = list(steps)
        self._name, self._kept = name, kept
        # New memory for each result would be got from the system, and given back, at each step.
        self._scratch = torch.empty_like(next(iter(kept.values())))

    def take(self, weights: Tensor, slopes: Tensor, groups: Groups, rates: Sequence[float]) -> None:
        """Take a step: change the weights in place; slopes may be changed, too.

        Args:
            groups, rates: of each member, or one of all; rates are learning rates.
        """
        self.steps = [steps + 1 for steps in self.steps]
        decay = [float(group["weight_decay"]) for group in groups]
        if self._name == "AdamW":
            weights.mul_(column([1 - r * d for r, d in zip(rates, decay, strict=True)]))
        else:
            slopes.addcmul_(weights, column(decay))
        if self._name == "SGD":
            self._descend(weights, slopes, groups, rates)
        else:
            self._adapt(weights, slopes, groups, rates)

    def _descend(
        self, weights: Tensor, slopes: Tensor, groups: Groups, rates: Sequence[float]
    ) -> None:
        momentum = column([float(group["momentum"]) for group in groups])
        held = self._kept["momentum_buffer"].mul_(momentum).add_(slopes)
        weights.sub_(torch.mul(held, column(rates), out=self._scratch))

    def _adapt(
        self, weights: Tensor, slopes: Tensor, groups: Groups, rates: Sequence[float]
    ) -> None:
        mean, square = self._kept["exp_avg"], self._kept["exp_avg_sq"]
        first, second = zip(*(map(float, group["betas"]) for group in groups), strict=True)
        toward = torch.sub(slopes, mean, out=self._scratch)
        mean.add_(toward.mul_(column([1 - b for b in first])))
        slopes.square_().mul_(column([1 - b for b in second]))
        square.mul_(column(second)).add_(slopes)
        repeats = len(self.steps) // len(rates)
        taken = list(
            zip(*(repeats * [*one] for one in (rates, first, second)), self.steps, strict=True)
        )
        whole = column([(1 - b**t) ** 0.5 for _, _, b, t in taken])
        spread = torch.sqrt(square, out=self._scratch).div_(whole)
        spread.add_(column([float(g["eps"]) for g in groups]))
        step = torch.div(mean, spread, out=slopes)
        weights.sub_(step.mul_(column([r / (1 - b**t) for r, b, _, t in taken])))
