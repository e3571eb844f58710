"""Networks, candidates and partitions that tests of frozen layers share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mmdb.data import node_cache
from mmdb.data.decoding import Target
from mmdb.graph.factories import SHIPPED
from mmdb.train.values.feature_spec import Frozen
from mmdb.train.values.spec import CandidateSpec, HopSpec, HopStep

HERE = "tests.unit.train.features.networks"
SHAPE, CLASSES, ROWS = (3, 8, 8), 3, 150
TARGET = Target(name="y", task="classification", size=CLASSES)
LINEAR: dict[str, Any] = {"factory": "linear", "arguments": {}}
MLP: dict[str, Any] = {"factory": "mlp", "arguments": {"hidden": [8], "dropout": 0.2}}
LORA: dict[str, Any] = {"name": "lora", "rank": 2, "alpha": 4, "layers": None}


class Small(nn.Module):
    """A network with named parts."""

    def __init__(self, outputs: int, dropout: float, middle: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.middle = middle
        self.last = nn.Conv2d(6, 8, 3, 2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle(self.stem(x))
        found: Tensor = self.fc(self.drop(torch.relu(self.norm(self.last(x))).mean((2, 3))))
        return found


class AlwaysDrops(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(x, 0.5, training=True)


class OfTheBatch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0, keepdim=True)


class Learns(nn.Module):
    """Counts its batches, whatever its mode."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.count: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x * 1.0


class Tied(nn.Module):
    """The last layer's weight is the first one's."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(192, 6)
        self.between = nn.Linear(6, 6)
        self.back = nn.Linear(6, 192)
        self.back.weight = nn.Parameter(self.first.weight.detach().T.contiguous())
        self.again = nn.Linear(192, 6)
        self.again.weight = self.first.weight
        self.fc = nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1))
        found: Tensor = self.fc(self.again(self.back(self.between(x).relu())))
        return found


def small(shape: object, outputs: int, *, dropout: float = 0.0, stride: int = 1) -> nn.Module:
    middle = nn.Conv2d(6, 6, 3, stride, padding=1) if stride == 1 else nn.AvgPool2d(3, 1, 1)
    return Small(outputs, dropout, middle)


def dropping(shape: object, outputs: int) -> nn.Module:
    return Small(outputs, 0.0, AlwaysDrops())


def mixing(shape: object, outputs: int) -> nn.Module:
    return Small(outputs, 0.0, OfTheBatch())


def learning(shape: object, outputs: int) -> nn.Module:
    return Small(outputs, 0.0, Learns())


def tied(shape: object, outputs: int) -> nn.Module:
    return Tied(outputs)


_OWN = ("small", "dropping", "mixing", "learning", "tied")
FACTORIES = SHIPPED | {name: f"{HERE}:{name}" for name in _OWN}


def noise(x: Tensor, generator: torch.Generator) -> Tensor:
    return x + torch.randn(x.shape, generator=generator)


FUNCTIONS = {"augmentation": {"noise": f"{HERE}:noise"}}


def candidate(
    frozen: Frozen | None,
    *,
    factory: str = "small",
    seed: int = 5,
    arguments: dict[str, Any] | None = None,
) -> CandidateSpec:
    return CandidateSpec(
        candidate_id=1,
        architecture={"factory": factory, "arguments": arguments or {}},
        config={"lr": 0.01, "batch_size": 32},
        factories=FACTORIES,
        input_shape=SHAPE,
        targets=(TARGET,),
        seed=seed,
        frozen=frozen,
    )


def freezing(**values: Any) -> Frozen:
    given: dict[str, Any] = {"cut": "stem", "pool": "mean", "head": LINEAR, "seed": 9}
    return Frozen(**(given | values))


def put_rows(key: str, *, rows: int = ROWS, labels: int = 1) -> None:
    """Put a partition into the node's cache."""
    source = np.random.default_rng(1)
    x = source.standard_normal((rows, *SHAPE)).astype("<f4")
    y = [source.integers(0, CLASSES, rows) for _ in range(labels)]

    def write(folder: Path) -> None:
        np.save(folder / "x.npy", x)
        names = ["y.npy"] if labels == 1 else [f"y{place}.npy" for place in range(labels)]
        for name, array in zip(names, y, strict=True):
            np.save(folder / name, array)
        if labels > 1:
            (folder / "form.json").write_text(f'{{"inputs": null, "labels": {labels}}}')

    node_cache.ensure(bytes.fromhex(key), write)


def hop(
    spec: CandidateSpec,
    partition: str,
    *,
    epoch: int = 0,
    state_in: str | None = None,
    travels: bool = False,
    validates: bool = False,
) -> HopSpec:
    step = HopStep(
        part_id=1,
        partition=partition,
        epoch=epoch,
        ordinal=epoch,
        seed=100 + epoch,
        validates=validates,
        ends_epoch=True,
    )
    base = state_in if travels else None
    return HopSpec(candidate=spec, step=step, state_in=state_in, environment=None, base=base)
