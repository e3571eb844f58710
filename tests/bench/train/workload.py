"""What every contender trains: the same models, rows, batches and learning rates.

Contenders run in processes of their own, some with another Python that has only torch and numpy; a
folder carries the work to them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

WIDTH, CLASSES = 64, 10
LEARNING_RATES = (0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.003, 0.002)
MOMENTUM, WORKERS = 0.9, 2
EVALUATION_BATCH = 1024
#: Arrays of a folder: x (n, *shape) and y (n,) to train on, the others to validate on.
ARRAYS = ("x", "y", "validation_x", "validation_y")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One architecture at one batch size."""

    name: str
    architecture: str  # "mlp" or "cnn"
    arguments: Mapping[str, Any]
    shape: Sequence[int]
    batch_size: int
    rows: int  # of the table: a fifth is held out
    epochs: int = 2

    @property
    def text(self) -> str:
        """The architecture as mmdb is told it."""
        arguments = ", ".join(f"{key}={json.dumps(v)}" for key, v in self.arguments.items())
        return f"{self.architecture}({arguments})"

    def module(self) -> nn.Module:
        """Return fresh weights, drawn from torch's generator as mmdb's factories draw them."""
        return mlp(**self.arguments) if self.architecture == "mlp" else cnn(**self.arguments)


#: Sizes by which the plain loop takes about half a minute on two cores.
WORKLOADS = (
    Workload(
        name="mlp, batch 32",
        architecture="mlp",
        arguments={"hidden": [256]},
        shape=(WIDTH,),
        batch_size=32,
        rows=400_000,
    ),
    Workload(
        name="mlp, batch 256",
        architecture="mlp",
        arguments={"hidden": [512, 512]},
        shape=(WIDTH,),
        batch_size=256,
        rows=400_000,
    ),
    Workload(
        name="cnn, batch 64",
        architecture="cnn",
        arguments={"width": 8},
        shape=(1, 8, 8),
        batch_size=64,
        rows=160_000,
    ),
)


def mlp(hidden: Sequence[int]) -> nn.Module:
    """Return what mmdb's factory of this name returns, for rows of WIDTH numbers."""
    parts: list[nn.Module] = [nn.Flatten()]
    before = WIDTH
    for width in hidden:
        parts += [nn.Linear(before, width), nn.ReLU()]
        before = width
    return nn.Sequential(*parts, nn.Linear(before, CLASSES))


def cnn(width: int) -> nn.Module:
    """Return what mmdb's factory of this name returns, for one channel of 8 x 8."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, 1, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, 2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * width * 16, CLASSES),
    )


def draw_points(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 (rows, WIDTH) and int32 (rows,): noise, and half a unit where a class has it.

    Class y moves the features k with k % 10 = y.
    """
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((rows, WIDTH), dtype=np.float32)
    y = draw.integers(0, CLASSES, rows, dtype=np.int32)
    x += 0.5 * (np.arange(WIDTH) % CLASSES == y[:, None]).astype(np.float32)
    return x, y


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A workload with its rows and seeds, as a contender reads it from a folder."""

    workload: Workload
    seeds: Sequence[int]  # of the candidates' initial weights
    x: Tensor
    y: Tensor
    validation_x: Tensor
    validation_y: Tensor

    def candidate(self, ordinal: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return a candidate with fresh weights and its optimizer."""
        torch.manual_seed(self.seeds[ordinal])
        module = self.workload.module()
        rate = LEARNING_RATES[ordinal]
        return module, torch.optim.SGD(module.parameters(), lr=rate, momentum=MOMENTUM)


def write_work(
    folder: Path, workload: Workload, seeds: Sequence[int], arrays: Sequence[np.ndarray]
) -> None:
    """Write a folder for the contenders; arrays are in the order of ARRAYS."""
    folder.mkdir(parents=True, exist_ok=True)
    head = {"workload": asdict(workload), "seeds": list(seeds)}
    (folder / "work.json").write_text(json.dumps(head))
    for name, array in zip(ARRAYS, arrays, strict=True):
        np.save(folder / f"{name}.npy", array)


def read_head(folder: Path) -> tuple[Workload, list[int]]:
    """Return the workload and the seeds of a folder."""
    head = json.loads((folder / "work.json").read_text())
    return Workload(**head["workload"]), head["seeds"]


def read_work(folder: Path) -> Work:
    """Return a folder's work with its rows in this process's memory."""
    workload, seeds = read_head(folder)
    rows = {name: torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ARRAYS}
    return Work(workload=workload, seeds=seeds, **rows)


def train_epoch(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    y: Tensor,
    batch_size: int,
    order: Tensor | None = None,
) -> float:
    """Train for one pass and return the mean loss.

    Args:
        order: of the rows, int64; a fresh one of all rows if left out.
    """
    criterion, losses = nn.CrossEntropyLoss(), []
    module.train()
    order = torch.randperm(len(x)) if order is None else order
    for index in order.split(batch_size):
        optimizer.zero_grad()
        loss = criterion(module(x.index_select(0, index)), y.index_select(0, index))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())


def correct(module: nn.Module, x: Tensor, y: Tensor) -> int:
    """Return how many rows are classified rightly."""
    module.eval()
    with torch.no_grad():
        found = [module(part).argmax(1) for part in x.split(EVALUATION_BATCH)]
    return int((torch.cat(found) == y).sum())


def train_candidate(work: Work, ordinal: int) -> float:
    """Train a candidate to its end, validated after each epoch; return its last accuracy."""
    module, optimizer = work.candidate(ordinal)
    accuracy = math.nan
    for _ in range(work.workload.epochs):
        train_epoch(module, optimizer, work.x, work.y, work.workload.batch_size)
        accuracy = correct(module, work.validation_x, work.validation_y) / len(work.validation_y)
    return accuracy


def warm_up(work: Work) -> None:
    """Do a step of everything, for torch's first calls load and allocate much."""
    module, optimizer = work.candidate(0)
    few = slice(0, 2 * work.workload.batch_size)
    train_epoch(module, optimizer, work.x[few], work.y[few], work.workload.batch_size)
    correct(module, work.x[few], work.y[few])


def write_result(folder: Path, started: float, ended: float, accuracies: Sequence[float]) -> None:
    """Write what a contender measured, times by `time.monotonic`, which all processes share."""
    result = {"train_s": ended - started, "accuracies": list(accuracies)}
    (folder / "result.json").write_text(json.dumps(result))
