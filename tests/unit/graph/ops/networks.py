"""Small networks of the usual kinds, for tests of extraction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmdb.graph.ops.example_inputs import candidates
from mmdb.graph.ops.known_values import Inputs


def example_inputs(module: nn.Module, input_shape: Sequence[int] | None = None) -> Inputs:
    """Return the inputs that a module most likely takes."""
    return next(candidates(module, input_shape))


class Residual(nn.Module):
    """(B, 3, H, W) to (B, 10): `depth` blocks of two convolutions."""

    def __init__(self, width: int = 8, depth: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.stem(x)), inplace=True)
        for block in self.blocks:
            x = block(x)
        return cast("Tensor", self.head(x.mean((2, 3))))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.b = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(functional.relu(self.bn(self.a(x))))
        x = x.clone()
        x += y
        return x.relu_()


class Dense(nn.Module):
    """Each convolution reads all that came before it."""

    def __init__(self, growth: int = 4, depth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, growth, 3)
        self.layers = nn.ModuleList(
            nn.Conv2d(growth * (i + 1), growth, 3, padding=1) for i in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


class Separable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.pointwise = nn.Conv2d(8, 16, 1)
        self.grouped = nn.Conv2d(16, 32, 3, groups=4)
        self.up = nn.ConvTranspose2d(32, 3, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.up(self.grouped(self.pointwise(self.depthwise(x)))))


class Shuffle(nn.Module):
    """ShuffleNet's unit: one half is kept, the other computed, then channels are shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.branch = nn.Conv2d(4, 4, 1)
        self.last = nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept, rest = self.stem(x).chunk(2, dim=1)
        x = torch.cat((kept, self.branch(rest)), dim=-3)
        b, c, h, w = x.shape
        x = x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)
        return cast("Tensor", self.last(x))


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.down, self.up = nn.Linear(8, 2), nn.Linear(2, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        y = self.up(self.down(x.mean((2, 3))).relu()).sigmoid()
        return cast("Tensor", x * y[:, :, None, None])


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x


class Packed(nn.Module):
    """Attention with one projection for query, key and value."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        qkv = self.qkv(x).reshape(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v)
        return cast("Tensor", self.out(y.transpose(1, 2).flatten(2)))


class Grouped(nn.Module):
    """Attention with fewer heads for key and value, its product by hand."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.size, self.repeat = width // heads, heads // groups
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, self.size * groups, bias=False)
        self.v = nn.Linear(width, self.size * groups, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (
            part(x).view(b, t, -1, self.size).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        k, v = k.repeat_interleave(self.repeat, 1), v.repeat_interleave(self.repeat, 1)
        mask = torch.full((t, t), float("-inf"), device=x.device).triu(1)
        weights = (q @ k.mT / self.size**0.5 + mask).softmax(-1)
        return cast("Tensor", self.out((weights @ v).transpose(1, 2).reshape(b, t, -1)))


class Language(nn.Module):
    """Tokens to logits; the head's weight is the embedding's."""

    def __init__(self, attention: Callable[[], nn.Module], width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, width)
        self.position = nn.Parameter(torch.zeros(16, width))
        self.norm, self.last = RMSNorm(width), nn.LayerNorm(width)
        self.attention = attention()
        self.gamma = nn.Parameter(torch.ones(width))
        self.head = nn.Linear(width, 32, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.position[: tokens.shape[1]]
        x = x + self.gamma * self.attention(self.norm(x))
        return cast("Tensor", self.head(self.last(x)))


class Vision(nn.Module):
    """Patches, a class token, torch's own encoder layer."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, 17, width))
        self.encoder = nn.TransformerEncoderLayer(width, 2, 16, batch_first=True)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return cast("Tensor", self.head(self.encoder(x)[:, 0]))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embed(tokens))
        return cast("Tensor", self.head(states))


class Function(nn.Module):
    """A forward given as a function of (module, x)."""

    def __init__(self, body: Callable[..., object], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.body = body
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> object:
        return self.body(self, x)


#: Networks with the shape of one input; shapes of tokens have one dimension.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual": (Residual, (3, 32, 32)),
    "dense": (Dense, (3, 32, 32)),
    "separable": (Separable, (8, 16, 16)),
    "shuffle": (Shuffle, (3, 8, 8)),
    "gate": (Gate, (3, 8, 8)),
    "packed": (lambda: Language(lambda: Packed(8, 2)), (16,)),
    "grouped": (lambda: Language(lambda: Grouped(8, 4, 2)), (16,)),
    "vision": (Vision, (3, 32, 32)),
    "recurrent": (Recurrent, (16,)),
}
