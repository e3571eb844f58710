"""Experiment `convergence`: validation error by epoch, hopping beside model averaging.

Hopping is stochastic gradient descent over one partition after the other: a plain PyTorch loop
that visits them in the logged order must come to the same bits. Model averaging (iterative
parameter mixing; McDonald, Hall and Mann 2010) trains a copy on each partition and takes the mean
once an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from torch import Tensor, nn

from mmdb.api import Database
from mmdb.bench.figures import Figure, one_thread
from mmdb.bench.workload import BenchShare, bench_names
from mmdb.cli.demo import read_digits
from mmdb.data.reader import read_partition
from mmdb.db.connection import Row
from mmdb.db.queries import load
from mmdb.graph.factories import mlp
from mmdb.store import states
from mmdb.terminal import show_rows
from mmdb.train.compute.live import weights
from mmdb.train.values.seeds import candidate_seed, hop_seed
from tests.bench.points import load_points
from tests.bench.train.plot import line_plots

PARTITIONS, CLASSES, RATES, ROWS = 8, 10, (0.003, 0.001, 0.0003), 100_000
UNIT = "error"
STRATEGIES = ("mop", "model_average")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Rows, and how an MLP is trained on them with Adam at each of RATES."""

    name: str
    x: np.ndarray  # float32 (n, width)
    y: np.ndarray  # int32 (n,)
    hidden: tuple[int, ...]
    batch_size: int
    epochs: int


@dataclass(frozen=True, slots=True)
class Part:
    """A partition in memory."""

    ordinal: int
    x: Tensor
    y: Tensor


def tasks(share: BenchShare) -> list[Task]:
    """Return the handwritten digits, and 100,000 rows labelled by a random network."""
    images, digits = read_digits()
    digits_x, digits_y = (images / 16).astype(np.float32), digits.astype(np.int32)
    x, y = labelled_rows(share.of(ROWS, 2_000), 20)
    return [
        Task(
            name="digits",
            x=digits_x,
            y=digits_y,
            hidden=(64,),
            batch_size=32,
            epochs=share.of(12, 2),
        ),
        Task(name="synthetic", x=x, y=y, hidden=(64, 64), batch_size=64, epochs=share.of(6, 2)),
    ]


def labelled_rows(rows: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 (rows, width) and the class that a random tanh network gives each, int32."""
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((rows, width), dtype=np.float32)
    inner = draw.standard_normal((width, 64), dtype=np.float32) * 2 / np.sqrt(width)
    outer = draw.standard_normal((64, CLASSES), dtype=np.float32)
    return x, (np.tanh(x @ inner) @ outer).argmax(1).astype(np.int32)


def bench_convergence(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
    """Measure every database in one run."""
    for db in databases:
        for task in tasks(share):
            yield from measure(db, task)


def measure(db: Database, task: Task) -> Iterator[Figure]:
    """Yield a task's curves, averaged over the candidates, and what they must show."""
    with bench_names(db) as prefix:
        load_points(db, prefix, task.x, task.y)
        db.create_dataset(prefix, f"SELECT x, y FROM {prefix}", partitions=PARTITIONS)
        errors = {strategy: _train(db, task, prefix, strategy) for strategy in STRATEGIES}
        sequential, same = _replay(db, task, prefix)
    where = f"{db.connection.engine}, {task.name}"
    curves = {"mop": errors["mop"], "sequential SGD": sequential}
    curves["model averaging"] = errors["model_average"]
    means = {name: [mean(epoch) for epoch in zip(*c, strict=True)] for name, c in curves.items()}
    _show(where, means)
    for name, curve in means.items():
        yield Figure(name=f"{where}: {name}", value=curve[-1], unit=UNIT, runs=curve)
    equal = same and curves["mop"] == sequential
    yield Figure(
        name=f"{where}: errors and last weights equal sequential SGD's",
        value=float(equal),
        unit="",
        holds=equal,
    )
    gains = [a - m for m, a in zip(means["mop"], means["model averaging"], strict=True)]
    yield Figure(
        name=f"{where}: least gain on model averaging in an epoch",
        value=min(gains),
        unit=UNIT,
        bar="> 0",
        holds=min(gains) > 0,
    )


def plot(figures: Sequence[Figure], file: str) -> None:
    """Draw the curves of `bench_convergence` into an SVG file, a panel for each task."""
    panels: dict[str, dict[str, list[float]]] = {}
    for figure in figures:
        if figure.unit == UNIT and len(figure.runs) > 1:
            task, _, name = figure.name.rpartition(": ")
            panels.setdefault(task, {})[name] = figure.runs
    Path(file).write_text(line_plots(panels, "epoch", "validation error"))


def _show(where: str, means: dict[str, list[float]]) -> None:
    rows = [
        {"epoch": epoch + 1} | {name: f"{curve[epoch]:.4f}" for name, curve in means.items()}
        for epoch in range(len(means["mop"]))
    ]
    show_rows(f"validation error, mean of {len(RATES)} candidates: {where}", rows)


def _train(db: Database, task: Task, prefix: str, strategy: str) -> list[list[float]]:
    """Return the validation errors of each candidate, by epoch."""
    name = f"{prefix}-{strategy}"
    search = {"space": {"lr": list(RATES), "batch_size": task.batch_size, "optimizer": "adam"}}
    db.create_run(
        name,
        dataset=prefix,
        architecture=f"mlp(hidden={list(task.hidden)})",
        search=search,
        epochs=task.epochs,
        strategy=strategy,
    ).train(workers=2)
    errors: list[list[float]] = [[] for _ in RATES]
    for hop in sorted(_hops(db, name), key=lambda hop: hop["epoch"]):
        if hop["role"] == "validation":
            errors[hop["candidate"]].append(1 - hop["objective"])
    return errors


def _hops(db: Database, name: str) -> list[Row]:
    """Return a run's hops in the order of their start."""
    return db.connection.rows(load("bench_hops").timeline, prefix=name)


def _replay(db: Database, task: Task, prefix: str) -> tuple[list[list[float]], bool]:
    """Train as the log of hopping says, with PyTorch alone.

    Returns:
        the errors, as `_train`; whether all last weights are those that mmdb keeps.
    """
    hops = _hops(db, f"{prefix}-mop")
    parts = _parts(db, prefix)
    (held_out,) = (part for part in parts.values() if part.ordinal < 0)
    errors, same = [], True
    with one_thread():
        for candidate in range(len(RATES)):
            loop = SequentialSgd(task, candidate)
            mine = [h for h in hops if h["candidate"] == candidate and h["role"] == "train"]
            errors.append(list(loop.run(mine, parts, held_out)))
            candidate_id = next(h["candidate_id"] for h in mine)
            same = same and _kept(db, candidate_id, loop.module)
    return errors, same


class SequentialSgd:
    """One candidate, trained by a plain loop."""

    def __init__(self, task: Task, candidate: int) -> None:
        torch.manual_seed(candidate_seed(0, candidate))
        self.module = mlp((task.x.shape[1],), CLASSES, hidden=list(task.hidden))
        self._candidate, self._task = candidate, task
        self._optimizer = torch.optim.Adam(self.module.parameters(), lr=RATES[candidate])
        self._loss = nn.CrossEntropyLoss()

    def run(self, hops: Sequence[Row], parts: dict[int, Part], held_out: Part) -> Iterator[float]:
        """Visit partitions in the order of `hops`; yield the error after each epoch."""
        for epoch in range(self._task.epochs):
            for hop in hops:
                if hop["epoch"] == epoch:
                    self._visit(parts[hop["part_id"]], epoch)
            with torch.no_grad():
                right = (self.module(held_out.x).argmax(1) == held_out.y).double().mean()
            yield 1 - float(right)

    def _visit(self, part: Part, epoch: int) -> None:
        torch.manual_seed(hop_seed(0, self._candidate, epoch, part.ordinal))
        for index in torch.randperm(len(part.x)).split(self._task.batch_size):
            self._optimizer.zero_grad()
            self._loss(self.module(part.x[index]), part.y[index]).backward()
            self._optimizer.step()


def _parts(db: Database, dataset: str) -> dict[int, Part]:
    """Return a dataset's partitions in memory by part_id; the one held out has ordinal -1."""
    (row,) = db.connection.rows(load("datasets").find_dataset, name=dataset, is_first=False)
    found = {}
    for part in db.connection.rows(load("hops").find_partitions, dataset_id=row["dataset_id"]):
        x, y = read_partition(db.connection, part["part_id"], part["content_hash"]).plain
        ordinal = -1 if part["role"] == "validation" else part["ordinal"]
        rows = torch.from_numpy(x).clone(), torch.from_numpy(y).clone()
        found[part["part_id"]] = Part(ordinal, *rows)
    return found


def _kept(db: Database, candidate_id: int, module: nn.Module) -> bool:
    """Return whether a candidate's last checkpoint holds the weights of a module."""
    last = states.checkpoints(db.connection, candidate_id)[-1]
    state = states.read_checkpoint(
        db.connection, last["part_id"], candidate_id, last["state_hash"].hex()
    )
    if state is None:
        return False
    found = list(weights(state).values())
    return all(any(torch.equal(a, b) for a in found) for b in module.state_dict().values())
