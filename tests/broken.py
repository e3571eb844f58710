"""Factories that fail in all the ways in which a user's can; registered by tests."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import torch
from torch import Tensor, nn


def raises(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    raise KeyError("no luck")


def exits(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    raise SystemExit("no GPU, no training")


def nothing(input_shape: tuple[int, ...], outputs: int) -> object:
    return None


def one_output_more(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Linear(math.prod(input_shape), outputs + 1)


def keeps_text(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    class Notes(nn.Linear):
        def get_extra_state(self) -> str:
            return "a note"

        def set_extra_state(self, state: object) -> None:
            return

    return Notes(math.prod(input_shape), outputs)


class Fails(nn.Module):
    """A linear layer whose forward raises when `when` says so."""

    def __init__(self, width: int, outputs: int, when: str) -> None:
        super().__init__()
        self.head = nn.Linear(width, outputs)
        self.when = when
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.when == "training":
            raise KeyError("lost")  # no class that torch itself raises
        if self.training and self.when == "exit":
            sys.exit("enough")
        if self.training and self.when == "interrupt":
            raise KeyboardInterrupt("enough")
        if len(x) > 2 and not self.training and self.when == "validation":
            raise AssertionError("not today")
        return self.head(x)  # type: ignore[no-any-return]


def fails(input_shape: tuple[int, ...], outputs: int, *, when: str = "never") -> nn.Module:
    """Return a module that raises in "training", in "validation" or "never".

    In training it also calls sys.exit ("exit") or raises KeyboardInterrupt ("interrupt").
    """
    return Fails(math.prod(input_shape), outputs, when)


class Flaky(nn.Linear):
    """A linear layer that raises in its first training step ever, and notes who stepped."""

    def __init__(self, width: int, outputs: int, notes: str) -> None:
        super().__init__(width, outputs)
        self.notes = Path(notes)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not x.is_meta and self.notes.name != "none":
            lines = self.notes.read_text().splitlines()
            if len(lines) < 2:
                self.notes.write_text("\n".join([*lines, str(os.getpid())]) + "\n")
            if not lines:
                raise RuntimeError("the first time")
        return super().forward(x)


def flaky(input_shape: tuple[int, ...], outputs: int, *, notes: str) -> nn.Module:
    """Return a module that fails once; `notes` is a file that all workers can write."""
    return Flaky(math.prod(input_shape), outputs, notes)


class Crowded(nn.Linear):
    """A linear layer that finds no memory for a batch of more than `rows`, on some devices."""

    def __init__(self, width: int, outputs: int, rows: int, spared: tuple[str, ...]) -> None:
        super().__init__(width, outputs)
        self.rows, self.spared = rows, spared

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type not in self.spared and len(x) > self.rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return super().forward(x)


def crowded(
    input_shape: tuple[int, ...], outputs: int, *, rows: int, spares_cpu: bool = True
) -> nn.Module:
    """Return a backbone, `0`, which finds no memory for larger batches, and a head."""
    spared = ("meta", "cpu") if spares_cpu else ("meta",)
    backbone = Crowded(math.prod(input_shape), 8, rows, spared)
    return nn.Sequential(backbone, nn.Linear(8, outputs))
