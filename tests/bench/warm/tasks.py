"""What a network is trained on: batches, a loss, and a score on held-out data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SCORED_AT_ONCE = 250


class Task(Protocol):
    """Data for one training.

    The score is larger for a better network; `unit` says what it counts.
    """

    @property
    def unit(self) -> str: ...

    def batches(self, size: int, draw: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and targets without end."""
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        ...

    def score(self, module: nn.Module) -> float:
        """Return the score of a module in evaluation mode, on held-out data."""
        ...

    def example(self) -> Tensor:
        """Return inputs to trace a module with."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """Classification; uint8 (n, channels, H, W), classes int64 (n,). The score is the accuracy."""

    x: Tensor
    y: Tensor
    held_out_x: Tensor
    held_out_y: Tensor
    unit: str = "accuracy"

    def batches(self, size: int, draw: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            order = torch.randperm(len(self.x), generator=draw)
            for rows in order[: len(order) // size * size].split(size):
                yield _scaled(self.x[rows]), self.y[rows]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)

    def score(self, module: nn.Module) -> float:
        right = 0
        for x, y in zip(
            self.held_out_x.split(SCORED_AT_ONCE),
            self.held_out_y.split(SCORED_AT_ONCE),
            strict=True,
        ):
            right += int((module(_scaled(x)).argmax(1) == y).sum())
        return right / len(self.held_out_y)

    def example(self) -> Tensor:
        return _scaled(self.held_out_x[:2])


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """The next character; uint8 (n,) each. The score is minus the bits per character.

    Attributes:
        windows: held-out windows of `context` characters that are scored, evenly spread.
    """

    characters: Tensor
    held_out: Tensor
    context: int
    windows: int = 250
    unit: str = "-bits per character"

    def batches(self, size: int, draw: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        reach = torch.arange(self.context + 1)
        while True:
            starts = torch.randint(len(self.characters) - self.context, (size, 1), generator=draw)
            window = self.characters[starts + reach].long()  # (size, context + 1)
            yield window[:, :-1], window[:, 1:]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def score(self, module: nn.Module) -> float:
        held = self._windows()
        nats = [
            F.cross_entropy(
                module(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten(), reduction="sum"
            )
            for part in held.split(SCORED_AT_ONCE)
        ]
        total = float(torch.stack(nats).sum()) / (len(held) * self.context)
        return -total / float(torch.log(torch.tensor(2.0)))

    def example(self) -> Tensor:
        return self._windows()[:2, :-1]

    def _windows(self) -> Tensor:
        """Return int64 (windows, context + 1)."""
        last = len(self.held_out) - self.context - 1
        starts = torch.linspace(0, last, self.windows).long()[:, None]
        return self.held_out[starts + torch.arange(self.context + 1)].long()


def _scaled(x: Tensor) -> Tensor:
    """Return float32 in [-1, 1], channels last: twice as fast where channels are few."""
    return x.float().mul_(2 / 255).sub_(1).contiguous(memory_format=torch.channels_last)
