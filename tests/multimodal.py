"""A model of several inputs and outputs, and functions that an owner may register."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Reviews(nn.Module):
    """Reads numbers and tokens; returns a tensor for each label, by name."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], outputs: Mapping[str, int]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(600, 4)
        width = math.prod(shapes["meta"]) + 4
        self.heads = nn.ModuleDict({name: nn.Linear(width, n) for name, n in outputs.items()})

    def forward(self, meta: Tensor, review: Tensor) -> dict[str, Tensor]:
        read = torch.cat([meta.flatten(1), self.embedding(review).mean(1)], 1)
        return {name: head(read) for name, head in self.heads.items()}


def reviews(input_shape: Mapping[str, tuple[int, ...]], outputs: Mapping[str, int]) -> nn.Module:
    """Return the factory's module."""
    return Reviews(input_shape, outputs)


def letters(texts: list[str]) -> list[list[int]]:
    """Return the place of each letter in the alphabet."""
    return [[ord(letter) - 96 for letter in text if "a" <= letter <= "z"] for text in texts]


def negative(texts: list[str]) -> list[list[int]]:
    """Return what are no ids."""
    return [[-1] for _ in texts]


def fewer(texts: list[str]) -> list[list[int]]:
    """Return too few lists."""
    return [[1]]


def floats(texts: list[str]) -> list[list[float]]:
    """Return numbers that are not whole."""
    return [[0.5] for _ in texts]


def raises(texts: list[str]) -> list[list[int]]:
    """Fail."""
    raise LookupError("no vocabulary")
