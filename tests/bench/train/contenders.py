"""Contenders of the training bench: how each is started, and what it took.

Each trains in a process of its own, so that its memory and its start-up can be told from others'.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Protocol

import numpy as np

from mmdb.api import Database, connect
from mmdb.bench.train import makespan
from mmdb.bench.workload import clean, new_prefix
from mmdb.data.dataset import find_dataset
from mmdb.data.reader import read_partition
from mmdb.db.queries import load
from mmdb.train.values.seeds import candidate_seed
from tests.bench.points import load_points
from tests.bench.train.memory import PeakMemory, parent_of
from tests.bench.train.workload import (
    LEARNING_RATES,
    MOMENTUM,
    WORKERS,
    Workload,
    draw_points,
    write_work,
)

PARTITIONS = 4
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One contender's training of all candidates."""

    train_s: float  # from the first warm worker's first step to the last one's last
    whole_s: float  # of the command, with start-up and end
    accuracies: Sequence[float]  # of the candidates, after the last epoch
    peak_bytes: int  # of all processes together, the server's included
    data_bytes: int  # of the rows on disk
    left_bytes: int  # more on disk after the training than before


class Contender(Protocol):
    """Something that trains a workload."""

    name: str
    copies_rows: bool  # whether every worker node needs all rows, or each its own share

    def train(self) -> Measured:
        """Train all candidates once."""


class Peer:
    """A program that reads a folder of work and writes `result.json` there."""

    def __init__(
        self, name: str, program: str, folder: Path, *, copies_rows: bool, python: str
    ) -> None:
        self.name, self.copies_rows = name, copies_rows
        self._folder = folder
        self._command = [python, "-m", program, str(folder)]

    def train(self) -> Measured:
        """Run the program."""
        result = self._folder / "result.json"
        result.unlink(missing_ok=True)
        shutil.rmtree(self._folder / "ray", ignore_errors=True)
        before = _folder_bytes(self._folder)
        whole_s, peak, _ = _run(self._command, ())
        found = json.loads(result.read_text())
        return Measured(
            train_s=found["train_s"],
            whole_s=whole_s,
            accuracies=found["accuracies"],
            peak_bytes=peak,
            data_bytes=sum(file.stat().st_size for file in self._folder.glob("*.npy")),
            left_bytes=_folder_bytes(self._folder) - before,
        )


class Mop:
    """`mmdb train` with a worker for each core, by hopping."""

    copies_rows = False

    def __init__(self, url: str, dataset: str, workload: Workload) -> None:
        self._url, self._dataset, self._workload = url, dataset, workload
        self._runs = 0
        self.name = f"mmdb, {'PostgreSQL' if url.startswith('postgres') else 'DuckDB'}"

    def train(self) -> Measured:
        """Create a run and train it by the command."""
        self._runs += 1
        run = f"{self._dataset}-{self._runs}"
        with connect(self._url) as db:
            db.create_run(
                run,
                dataset=self._dataset,
                architecture=self._workload.text,
                search={
                    "space": {
                        "lr": list(LEARNING_RATES),
                        "batch_size": self._workload.batch_size,
                        "optimizer": [{"name": "sgd", "momentum": MOMENTUM}],
                    }
                },
                epochs=self._workload.epochs,
                strategy="mop",
            )
            before, servers = _stored_bytes(db), _server_pids(db)
        command = [sys.executable, "-m", "mmdb.cli", "train", run, "--json"]
        command += ["--workers", str(WORKERS), "--database", self._url]
        whole_s, peak, _ = _run(command, servers)
        with connect(self._url) as db:
            hops = db.connection.rows(load("bench_hops").timeline, prefix=run)
            return Measured(
                train_s=makespan(hops),
                whole_s=whole_s,
                accuracies=_accuracies(db, run),
                peak_bytes=peak,
                data_bytes=_data_bytes(db, self._dataset),
                left_bytes=_stored_bytes(db) - before,
            )


@contextmanager
def contenders(
    urls: Sequence[str], workload: Workload, folder: Path, ray_python: str | None
) -> Iterator[list[Contender]]:
    """Yield all contenders with a workload's rows at hand, and clean up.

    Args:
        ray_python: a Python with `ray[tune]`; None leaves Ray out.
    """
    x, y = draw_points(workload.rows)
    with _datasets(urls, workload, x, y) as datasets:
        found: list[Contender] = []
        for url, dataset in zip(urls, datasets, strict=True):
            found.append(Mop(url, dataset, workload))
        with connect(urls[0]) as db:
            arrays = _partitions(db, datasets[0])
        seeds = [candidate_seed(0, k) for k in range(len(LEARNING_RATES))]
        write_work(folder, workload, seeds, arrays)
        here = sys.executable
        found.append(
            Peer("plain loop", "tests.bench.train.loop", folder, copies_rows=True, python=here)
        )
        if ray_python:
            program = "tests.bench.train.ray"
            found.append(Peer("Ray Tune", program, folder, copies_rows=True, python=ray_python))
        program = "tests.bench.train.ddp"
        found.append(Peer("PyTorch DDP", program, folder, copies_rows=False, python=here))
        yield found


@contextmanager
def _datasets(
    urls: Sequence[str], workload: Workload, x: np.ndarray, y: np.ndarray
) -> Iterator[list[str]]:
    """Yield the name of a dataset in each database; each opens it anew, for it is closed."""
    made: list[str] = []
    try:
        for url in urls:
            with connect(url) as db:
                made.append(_make_dataset(db, workload, x, y))
        yield made
    finally:
        for url, name in zip(urls, made, strict=False):
            with connect(url) as db:
                clean(db, name)


def _make_dataset(db: Database, workload: Workload, x: np.ndarray, y: np.ndarray) -> str:
    prefix = new_prefix()
    load_points(db, prefix, x, y)
    options = {} if len(workload.shape) == 1 else {"shape": list(workload.shape)}
    query = f"SELECT x, y FROM {prefix}"
    db.create_dataset(prefix, query, partitions=PARTITIONS, validation=0.2, options=options)
    return prefix


def _partitions(db: Database, dataset: str) -> list[np.ndarray]:
    """Return the rows to train on and those to validate on, as mmdb keeps them."""
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {"train": [], "validation": []}
    for part in find_dataset(db.connection, dataset).slices:
        rows = read_partition(db.connection, part.part_id, part.content_hash)
        found[part.role].append(rows.plain)
    return [np.concatenate([pair[k] for pair in found[role]]) for role in found for k in (0, 1)]


def _run(command: Sequence[str], others: Sequence[int]) -> tuple[float, int, str]:
    """Run a command; return its seconds, the peak of its tree's memory, and its output.

    Args:
        others: processes whose trees count too.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    started = perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=ROOT,
    )
    with PeakMemory((process.pid, *others)) as memory:
        output, _ = process.communicate()
    seconds = perf_counter() - started
    if process.returncode != 0:
        raise ContenderFailed(f"{' '.join(command[:3])} failed.\n{output[-4000:]}")
    return seconds, memory.peak_bytes, output


class ContenderFailed(Exception):
    """A contender did not train."""


def _server_pids(db: Database) -> list[int]:
    """Return the process id of a PostgreSQL server on this machine."""
    if db.connection.engine != "postgres":
        return []
    (row,) = db.sql("SELECT pg_backend_pid() AS pid")
    parent = parent_of(row["pid"])
    return [] if parent is None else [parent]


def _stored_bytes(db: Database) -> int:
    if db.connection.engine == "postgres":
        (row,) = db.sql("SELECT pg_database_size(current_database()) AS bytes")
        return int(row["bytes"])
    db.sql("CHECKPOINT")
    return sum(file.stat().st_size for file in _files(db))


def _files(db: Database) -> list[Path]:
    path = Path(db.connection.url.removeprefix("duckdb:///"))
    return [file for file in (path, path.with_name(f"{path.name}.wal")) if file.exists()]


def _data_bytes(db: Database, dataset: str) -> int:
    """Return the bytes of a dataset's blocks and of its decoded copy in the node's cache."""
    parameter = "%(name)s" if db.connection.engine == "postgres" else "$name"
    (row,) = db.sql(
        "SELECT sum(octet_length(b.data)) AS blocks FROM mmdb.block b "
        "JOIN mmdb.partition p USING (part_id) JOIN mmdb.dataset d USING (dataset_id) "
        f"WHERE d.name = {parameter}",
        {"name": dataset},
    )
    decoded = sum(array.nbytes for array in _partitions(db, dataset))
    return int(row["blocks"]) + decoded


def _accuracies(db: Database, run: str) -> list[float]:
    parameter = "%(run)s" if db.connection.engine == "postgres" else "$run"
    rows = db.sql(
        "SELECT c.ordinal, h.objective FROM mmdb.hop h JOIN mmdb.candidate c USING (candidate_id) "
        "JOIN mmdb.run r USING (run_id) WHERE r.name = "
        f"{parameter} AND h.objective IS NOT NULL ORDER BY c.ordinal, h.epoch",
        {"run": run},
    )
    return list({row["ordinal"]: row["objective"] for row in rows}.values())


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
