"""What an owner would register: a factory, a loss, a metric and an augmentation."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Shop(nn.Module):
    """A picture, two numbers and a text in; a class, a number and tags out."""

    def __init__(
        self, shapes: dict[str, tuple[int, ...]], outputs: dict[str, int], width: int
    ) -> None:
        super().__init__()
        _, height, side = shapes["image"]
        self.words = nn.Embedding(64, 4)
        self.body = nn.Linear(height * side + shapes["meta"][0] + 4, width)
        self.heads = nn.ModuleDict({name: nn.Linear(width, n) for name, n in outputs.items()})

    def forward(self, image: Tensor, meta: Tensor, text: Tensor) -> dict[str, Tensor]:
        x = torch.cat([image.flatten(1), meta, self.words(text).mean(1)], 1)
        x = self.body(x).relu()
        return {name: head(x) for name, head in self.heads.items()}


def shop(
    shapes: dict[str, tuple[int, ...]], outputs: dict[str, int], *, width: int = 16
) -> nn.Module:
    """Return a model of several inputs and labels."""
    return Shop(shapes, outputs, width)


class Broken(Shop):
    """Raises in training, not when it is checked."""

    def forward(self, image: Tensor, meta: Tensor, text: Tensor) -> dict[str, Tensor]:
        if len(image) > 2:
            raise ValueError("too many rows")
        return super().forward(image, meta, text)


def broken(shapes: dict[str, tuple[int, ...]], outputs: dict[str, int]) -> nn.Module:
    """Return a model that raises."""
    return Broken(shapes, outputs, 8)


def cubes(output: Tensor, y: Tensor, *, power: float = 3.0) -> Tensor:
    """Return the mean of a power of the error."""
    return (output - y).abs().pow(power).mean()


def gain(output: Tensor, y: Tensor) -> float:
    """Return the number of rows that are right."""
    return float((output.argmax(-1) == y).sum())


def noise(
    x: dict[str, Tensor], generator: torch.Generator, *, std: float = 0.1
) -> dict[str, Tensor]:
    """Return the inputs with noise on the picture."""
    image = x["image"]
    return x | {"image": image + std * torch.randn(image.shape, generator=generator)}


def jitter(x: Tensor, generator: torch.Generator) -> Tensor:
    """Add a little noise to a batch of numbers."""
    return x + 0.05 * torch.randn(x.shape, generator=generator)
