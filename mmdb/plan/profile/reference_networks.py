"""Training steps of small networks: what operations cost in a step, beside one another.

An operation measured alone finds its arguments in the caches. The networks are of no family that a
user would train: blocks of common layers in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mmdb.plan.profile.measurements import Measurement
from mmdb.plan.profile.timing import Allowance
from mmdb.train.compute.optimizer import step_of

#: Rows of a network's data, in batches; classes.
_BATCHES, _CLASSES = 2, 10
#: Seconds that one network is measured for, at most.
_EACH_S = 0.25
KIND = "reference"


class ReferenceNetwork(NamedTuple):
    """A network, and the batch that it is trained in; known by its number."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    tokens: int = 0  # words of a vocabulary, where the input is integers


class _Gate(nn.Module):
    """Channels weighed by what all of them are on the whole."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, channels // 4, 1), nn.ReLU(),
            nn.Conv2d(channels // 4, channels, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        gate: Tensor = self.layers(x.mean((2, 3), keepdim=True))
        return x * gate


class _Joined(nn.Module):
    """A convolution's result behind its input."""

    def __init__(self, channels: int, more: int, groups: int = 1) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.layer = nn.Conv2d(channels, more, 3, padding=1, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layer(torch.relu(self.norm(x)))], 1)


class _Turned(nn.Module):
    """Layers that see places where others see channels: (n, T, D) -> (n, T, D)."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first, self.second = nn.Linear(tokens, 2 * tokens), nn.Linear(2 * tokens, tokens)
        self.mix = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        turned = torch.nn.functional.silu(self.first(self.norm(x).transpose(1, 2)))
        x = x + self.second(turned).transpose(1, 2)
        found: Tensor = x + self.mix(x)
        return found


class _Looking(nn.Module):
    """One look of all places at all places, without what usually follows it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.ask, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        parts = self.ask(x).view(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        found: Tensor = x + self.out(seen.transpose(1, 2).reshape(n, tokens, width))
        return found


class _Mean(nn.Module):
    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(self.dims)


def _layer(
    before: int, after: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    convolution = nn.Conv2d(
        before, after, kernel, stride, padding=kernel // 2, groups=groups, bias=False
    )
    return [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]


def _image_head(channels: int) -> list[nn.Module]:
    return [_Mean(2, 3), nn.Linear(channels, _CLASSES)]


def _plain(width: int) -> nn.Module:
    w = width
    return nn.Sequential(
        *_layer(3, w), *_layer(w, w), nn.MaxPool2d(2), *_layer(w, 2 * w), *_layer(2 * w, 2 * w),
        nn.MaxPool2d(2), *_layer(2 * w, 4 * w), *_layer(4 * w, 4 * w), *_image_head(4 * w),
    )  # fmt: skip


def _thin(width: int, depth: int) -> nn.Module:
    parts = _layer(3, width, stride=2)
    for level in range(depth):
        wide, stride = 4 * width, 2 if level % 3 == 2 else 1
        parts += [*_layer(width, wide, 1), *_layer(wide, wide, 3, stride, wide)]
        parts += [nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width)]
        parts += [_Gate(width)] if level % 2 else []
    return nn.Sequential(*parts, *_image_head(width))


def _joined(width: int, depth: int) -> nn.Module:
    parts: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for level in range(depth):
        parts.append(_Joined(width, 16, groups=2 if level % 2 else 1))
        width += 16
        if level % 3 == 2:
            parts += [*_layer(width, 32, 1), nn.AvgPool2d(2)]
            width = 32
    return nn.Sequential(*parts, *_image_head(width))


def _patches(width: int, depth: int) -> nn.Module:
    parts: list[nn.Module] = [nn.Conv2d(3, width, 4, 4)]
    for _ in range(depth):
        parts += [nn.Conv2d(width, width, 7, padding=3, groups=width), nn.BatchNorm2d(width)]
        parts += [nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1)]
    return nn.Sequential(*parts, *_image_head(width))


def _tokens(width: int, depth: int) -> nn.Module:
    parts: list[nn.Module] = [nn.Embedding(2000, width), nn.LayerNorm(width)]
    for level in range(depth):
        parts.append(_Turned(32, width) if level % 2 else _Looking(width, 4))
    return nn.Sequential(*parts, _Mean(1), nn.Linear(width, _CLASSES))


def _layers(width: int, depth: int, first: int, *, drops: bool = False) -> nn.Module:
    parts: list[nn.Module] = [nn.Linear(first, width)]
    for _ in range(depth):
        parts += [nn.LayerNorm(width), nn.SiLU(), *([nn.Dropout(0.1)] if drops else [])]
        parts.append(nn.Linear(width, width))
    return nn.Sequential(*parts, nn.LayerNorm(width), nn.Linear(width, _CLASSES))


#: The quickest first: a small budget measures some in any case.
REFERENCES: tuple[ReferenceNetwork, ...] = (
    ReferenceNetwork(lambda: _layers(32, 0, 16), (16,), 16),
    ReferenceNetwork(lambda: _layers(64, 2, 32), (32,), 64),
    ReferenceNetwork(lambda: _layers(16, 1, 2048), (2048,), 256),
    ReferenceNetwork(lambda: _plain(16), (3, 32, 32), 16),
    ReferenceNetwork(lambda: _thin(24, 6), (3, 64, 64), 16),
    ReferenceNetwork(lambda: _tokens(128, 4), (32,), 16, tokens=2000),
    ReferenceNetwork(lambda: _joined(24, 9), (3, 32, 32), 8),
    ReferenceNetwork(lambda: _patches(48, 3), (3, 64, 64), 8),
    ReferenceNetwork(lambda: _layers(512, 3, 128, drops=True), (128,), 128),
    ReferenceNetwork(lambda: _plain(24), (3, 32, 32), 4),
    ReferenceNetwork(lambda: _thin(16, 9), (3, 64, 64), 4),
    ReferenceNetwork(lambda: _tokens(64, 6), (32,), 64, tokens=2000),
    ReferenceNetwork(lambda: _joined(16, 12), (3, 32, 32), 32),
    ReferenceNetwork(lambda: _patches(64, 2), (3, 64, 64), 32),
    ReferenceNetwork(lambda: _thin(48, 6), (3, 32, 32), 64),
)


def measure_references(
    allowance: Allowance, seed: int, device: torch.device
) -> Iterator[Measurement]:
    """Measure training steps of the networks, with Adam, for as long as the budget lasts."""
    for number, reference in enumerate(REFERENCES):
        if number and allowance.left_s <= 0:
            return
        step = _step(reference, seed, device)
        timed = allowance.measure(step, min(_EACH_S, allowance.left_s), sure_s=1.0)
        if timed is None:
            continue
        yield timed.row(KIND, float(number))


def _step(reference: ReferenceNetwork, seed: int, device: torch.device) -> Callable[[], object]:
    generator = torch.Generator().manual_seed(seed)
    rows = _BATCHES * reference.batch
    size = (rows, *reference.shape)
    x = torch.rand(size, generator=generator)
    if reference.tokens:
        x = torch.randint(0, reference.tokens, size, generator=generator)
    x, y = x.to(device), torch.zeros(rows, dtype=torch.long, device=device)
    module = reference.build().to(device).train()
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-4)
    update, parameters = step_of(optimizer), list(module.parameters())
    index = torch.randperm(rows, generator=generator)[: reference.batch].to(device)

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        result = module(x.index_select(0, index))
        nn.functional.cross_entropy(result, y.index_select(0, index)).backward()
        update()

    return step
