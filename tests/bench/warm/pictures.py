"""Pictures of ten classes amid nuisance: drawn shapes, 32x32, and handwritten digits, 16x16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from mmdb.cli.demo import read_digits
from tests.bench.warm.nuisance import Array, Between, Nuisance, axes, between_of, painted

SIDE, DIGIT_SIDE, CLASSES, AT_ONCE = 32, 16, 10, 1000


def drawn_pictures(count: int, seed: int, nuisance: Nuisance) -> tuple[Tensor, Tensor]:
    """Return uint8 (count, 3, 32, 32) and their classes, int64 (count,)."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(CLASSES, size=count)
    chunks = []
    for start in range(0, count, AT_ONCE):
        part = labels[start : start + AT_ONCE]
        inside = _inside(part, between_of(len(part), draw), nuisance)
        chunks.append(painted(inside, draw, nuisance))
    return torch.from_numpy(np.concatenate(chunks)), torch.from_numpy(labels)


def digit_pictures(
    rows: slice, copies: int, seed: int, nuisance: Nuisance
) -> tuple[Tensor, Tensor]:
    """Return scikit-learn's handwritten digits, enlarged, as strokes on painted ground.

    Args:
        rows: of the 1,797 digits in a shuffled order that is always the same.
        copies: pictures of each digit, each with other nuisance.
    Returns:
        uint8 (copies * digits, 3, 16, 16) and their classes, int64
    """
    images, labels = read_digits()
    order = np.tile(np.random.default_rng(0).permutation(len(labels))[rows], copies)
    small = torch.from_numpy(images[order].astype(np.float32) / 16).view(-1, 1, 8, 8)
    large = F.interpolate(small, (DIGIT_SIDE, DIGIT_SIDE), mode="bilinear")[:, 0].numpy()
    pictures = painted(large, np.random.default_rng(seed), nuisance)
    return torch.from_numpy(pictures), torch.from_numpy(labels[order].astype(np.int64))


def shuffled(labels: Tensor, seed: int) -> Tensor:
    """Return the labels in another order: each class as often, but on any picture."""
    return labels[torch.from_numpy(np.random.default_rng(seed).permutation(len(labels)))]


Field = Callable[[Array, Array], NDArray[Any]]


def _bar(across: Array, along: Array, half: float) -> Array:
    inside: Array = np.minimum(half - abs(across), 0.95 - abs(along))
    return inside


#: Of each class: positive inside its shape, where u and v are in [-1, 1].
FIELDS: dict[str, Field] = {
    "disc": lambda u, v: 1 - np.hypot(u, v),
    "square": lambda u, v: 0.85 - np.maximum(abs(u), abs(v)),
    "triangle": lambda u, v: 0.55 - np.maximum(v, 0.866 * abs(u) - 0.5 * v),
    "cross": lambda u, v: np.maximum(_bar(u, v, 0.3), _bar(v, u, 0.3)),
    "ring": lambda u, v: 0.25 - abs(np.hypot(u, v) - 0.75),
    "star": lambda u, v: 0.7 + 0.3 * np.cos(5 * np.arctan2(v, u)) - np.hypot(u, v),
    "bars": lambda u, v: _bar(abs(u) - 0.55, v, 0.25),
    "crescent": lambda u, v: np.minimum(1 - np.hypot(u, v), np.hypot(u - 0.45, v) - 0.75),
    "corner": lambda u, v: np.maximum(_bar(u + 0.55, v, 0.3), _bar(v - 0.6, u, 0.3)),
    "frame": lambda u, v: 0.22 - abs(abs(u) + abs(v) - 0.85),
}


def _inside(labels: NDArray[np.int64], between: Between, given: Nuisance) -> Array:
    """Return how much of each pixel the shape covers, (n, H, W)."""
    x, y = axes(SIDE)
    dx, dy = x - between(-given.shift, given.shift), y - between(-given.shift, given.shift)
    size, turn = between(*given.size), between(-given.turn, given.turn)
    u = (dx * np.cos(turn) + dy * np.sin(turn)) / size
    v = (dy * np.cos(turn) - dx * np.sin(turn)) / size
    field = np.empty_like(u)
    for label, of in enumerate(FIELDS.values()):
        here = labels == label
        field[here] = of(u[here], v[here])
    cover: Array = np.clip(field * size * SIDE / 2 + 0.5, 0, 1)
    return cover
