"""Networks that tests cut: one of each kind of forward."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmdb.graph.factories import SHIPPED
from mmdb.graph.spec.build import initial_module

WIDTH, TOKENS, WORDS, CLASSES = 8, 5, 20, 3


class Block(nn.Module):
    """A residual block as torchvision writes it: one ReLU, in place, used twice."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, 1 + (before != after), padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = nn.Conv2d(before, after, 1, 2) if before != after else None

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return cast("Tensor", self.relu(out))


class Pictures(nn.Module):
    """A residual network: (n, 3, 8, 8) -> (n, CLASSES)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(Block(WIDTH, WIDTH), Block(WIDTH, WIDTH))
        self.layer2 = nn.Sequential(Block(WIDTH, 2 * WIDTH), Block(2 * WIDTH, 2 * WIDTH))
        self.avgpool = nn.AvgPool2d(4)
        self.fc = nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.avgpool(self.layer2(self.layer1(x)))
        return cast("Tensor", self.fc(torch.flatten(x, 1)))


class Words(nn.Module):
    """A text classifier: int64 (n, TOKENS) -> (n, CLASSES); reads sizes, has its own weights."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.position = nn.Parameter(torch.randn(1, TOKENS + 1, WIDTH))
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.register_buffer("scale", torch.full((1,), 0.5), persistent=False)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        n, tokens = ids.shape
        assert tokens <= TOKENS
        first = self.first.expand(n, -1, -1)
        x = torch.cat([first, self.embed(ids)], dim=1) + self.position[:, : tokens + 1]
        x = self.encoder(self.dropout(x * self.scale))
        x = x.reshape(n, TOKENS + 1, WIDTH)
        x = functional.dropout(x[:, 0], 0.1, training=self.training)
        return cast("Tensor", self.fc(self.dropout(x)))


class Opaque(nn.Module):
    """A part whose forward depends on the numbers, and which returns an object of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> SimpleNamespace:
        x = self.embed(ids)
        if mask is not None and bool((mask == 0).any()):
            x = x * mask[..., None]
        return SimpleNamespace(last_hidden_state=x, ids=ids)


class Pooler(nn.Module):
    """Reads the numbers, too: it can only be a step."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x[:, 0])) if bool(torch.isfinite(x).all()) else x[:, 0]


class Masked(nn.Module):
    """Two inputs by name; the mask is read in the middle and, with `late`, at the end."""

    def __init__(self, late: bool = False) -> None:
        super().__init__()
        self.late = late
        self.bert = Opaque()
        self.pooler = Pooler()
        self.fc = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        found = self.bert(ids, mask=mask)
        x = self.fc(self.pooler(found.last_hidden_state))
        return cast("Tensor", x * mask[:, :1] if self.late else x)


class Tied(nn.Module):
    """The last layer has the weights of the first, and `norm` runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.body = nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)])
        self.out = nn.Linear(WIDTH, WORDS, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.embed(ids).mean(1))
        for layer in self.body:
            x = torch.relu(layer(x))
        return cast("Tensor", self.out(self.norm(x)))


class Branches(nn.Module):
    """What `side` gives comes in again at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, WIDTH)
        self.side = nn.Linear(WIDTH, WIDTH)
        self.main = nn.Linear(WIDTH, WIDTH)
        self.unused = nn.Linear(WIDTH, WIDTH)
        self.fc = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return cast("Tensor", self.fc(self.main(x) + self.side(x)))


GRAPH: dict[str, object] = {
    "layers": [
        {"name": "conv1", "op": "Conv2d", "args": {"out_channels": 6, "kernel_size": 3,
                                                   "padding": 1}},
        {"name": "relu1", "op": "ReLU"},
        {"name": "conv2", "op": "Conv2d", "args": {"out_channels": 6, "kernel_size": 3,
                                                   "padding": 1}},
        {"name": "sum", "op": "add", "inputs": ["relu1", "conv2"]},
        {"name": "relu2", "op": "ReLU"},
        {"name": "flat", "op": "Flatten"},
        {"name": "fc", "op": "Linear", "args": {"out_features": "$outputs"}},
    ]
}  # fmt: skip


def skipping() -> nn.Module:
    """Return a layer graph with a connection past `conv2`."""
    return initial_module(GRAPH, {}, (3, 8, 8), CLASSES, SHIPPED, seed=0)


def pictures(rows: int = 4) -> Tensor:
    return torch.randn(rows, 3, 8, 8)


def words(rows: int = 4) -> Tensor:
    return torch.randint(0, WORDS, (rows, TOKENS))


def masked(rows: int = 4) -> dict[str, Tensor]:
    mask = torch.ones(rows, TOKENS)
    mask[0, -1] = 0
    return {"ids": words(rows), "mask": mask}


#: name -> network, rows, and cuts in the order in which they run.
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], tuple[str, ...]]] = {
    "resnet": (
        Pictures,
        pictures,
        ("conv1", "bn1", "relu", "layer1.0", "layer1.1", "layer1", "layer2.0", "layer2.1",
         "layer2", "avgpool", "fc"),
    ),
    "layers": (skipping, pictures, ("conv1", "relu1", "sum", "relu2", "flat", "fc")),
    "encoder": (
        Words,
        words,
        ("encoder.layers.0", "encoder.layers.1", "encoder.layers.2", "encoder", "fc"),
    ),
    "inputs": (Masked, masked, ("pooler", "fc")),
    "tied": (Tied, words, ("embed", "body.0", "body.1", "out")),
    "branches": (Branches, lambda: torch.randn(4, 4), ("stem", "fc")),
}  # fmt: skip
