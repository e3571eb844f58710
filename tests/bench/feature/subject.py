"""What is trained: rows, backbones and runs, all under one prefix of names."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from mmdb.api import Database, Run
from mmdb.bench.workload import FULL, BenchShare, bench_names
from mmdb.db.queries import Queries, load
from mmdb.store import states
from mmdb.train.compute.live import weights
from tests.bench.points import load_points

QUERIES = Queries(Path(__file__).with_name("bench_feature.sql"))
CLASSES, BATCH = 10, 64
#: Eight heads, from one layer to two hidden ones.
HEADS: tuple[Any, ...] = (
    "linear",
    *({"name": "mlp", "hidden": [width]} for width in (16, 32, 64, 96, 128)),
    {"name": "mlp", "hidden": [64], "activation": "tanh"},
    {"name": "mlp", "hidden": [64, 32]},
)
#: Without momentum what differs in the last bit at first still does at the end.
OPTIMIZER = {"optimizer": {"name": "sgd"}, "lr": 0.05, "batch_size": BATCH}


@dataclass(frozen=True, slots=True)
class Subject:
    """A database, and the prefix of the names that a part makes there."""

    database: Database
    prefix: str
    share: BenchShare = FULL
    _factories: dict[str, str] = field(default_factory=dict)

    @property
    def engine(self) -> str:
        """Its name, for figures."""
        return self.database.connection.engine

    def dataset(
        self,
        name: str,
        shape: Sequence[int],
        rows: int,
        *,
        partitions: int = 2,
        validation: float = 0.2,
    ) -> str:
        """Make a dataset of rows that a network can learn something about; return its name."""
        table = f"{self.prefix}_{name}"
        load_points(self.database, table, *points(shape, rows))
        self.database.create_dataset(
            table,
            f"SELECT x, y FROM {table}",
            partitions=partitions,
            validation=validation,
            options={"shape": list(shape)},
        )
        self.database.sql(f"DROP TABLE {table}")
        return table

    def factory(self, target: str) -> str:
        """Return the name under which a factory is registered."""
        if target not in self._factories:
            name = f"{self.prefix}_{len(self._factories)}"
            self.database.register_factory(name, target)
            self._factories[target] = name
        return self._factories[target]

    def run(
        self,
        name: str,
        dataset: str,
        architecture: Mapping[str, Any],
        space: Mapping[str, Any],
        *,
        epochs: int,
        features: Mapping[str, Any],
        seed: int = 0,
        validates: bool = True,
    ) -> Run:
        """Create a run whose candidates are compared by their validation loss.

        Args:
            features: the run option of that name.
            validates: whether the dataset has rows for that.
        """
        options = {"features": dict(features)}
        return self.database.create_run(
            f"{self.prefix}-{name}",
            dataset=dataset,
            architecture=architecture,
            search={"space": OPTIMIZER | dict(space)},
            epochs=epochs,
            strategy="mop",
            seed=seed,
            options=options | ({"metric": "loss"} if validates else {}),
        )

    # -- what became of a run ------------------------------------------------------

    def objectives(self, run: Run) -> dict[int, float]:
        """Return each candidate's place in the search and its objective; none that failed."""
        ordinals = {row["candidate_id"]: row["ordinal"] for row in self.candidates(run)}
        board = self.database.connection.rows(load("bench_hops").read_leaderboard, prefix=run.name)
        return {
            ordinals[row["candidate_id"]]: row["objective"]
            for row in board
            if row["objective"] is not None
        }

    def candidates(self, run: Run) -> list[dict[str, Any]]:
        """Return the candidates of a run, in the order of the search."""
        connection = self.database.connection
        (found,) = connection.rows(load("runs").find_run, name=run.name)
        rows = connection.rows(load("runs").find_candidates, run_id=found["run_id"])
        return [dict(row) | {"config": json.loads(row["config"])} for row in rows]

    def weights(self, candidate_id: int) -> dict[str, Tensor]:
        """Return what a candidate has trained: its last weights."""
        connection = self.database.connection
        last = states.checkpoints(connection, candidate_id)[-1]
        name = last["state_hash"].hex()
        state = states.read_checkpoint(connection, last["part_id"], candidate_id, name)
        assert state is not None
        return weights(state)

    def uses(self, run: Run) -> list[dict[str, Any]]:
        """Return how a run got its features: rows of mmdb.run_features."""
        rows = self.database.connection.rows(QUERIES.find_uses, run=run.name)
        return [dict(row) for row in rows]

    def choices(self, run: Run) -> set[str]:
        """Return the choices that were made for a run's features."""
        return {use["choice"] for use in self.uses(run)}


@contextmanager
def subject_of(database: Database, share: BenchShare = FULL) -> Iterator[Subject]:
    """Yield a subject; what it made is deleted, and the client's node's cache is one of its own."""
    with _own_cache(), bench_names(database) as prefix:
        yield Subject(database, prefix, share)


def points(shape: Sequence[int], rows: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 (rows, numbers) and int32 (rows,): a pattern for each class, and noise."""
    draw = np.random.default_rng(seed)
    patterns = draw.standard_normal((CLASSES, prod(shape)), dtype=np.float32)
    y = draw.integers(CLASSES, size=rows).astype(np.int32)
    noise = draw.standard_normal((rows, prod(shape)), dtype=np.float32)
    return 0.3 * patterns[y] + noise, y


@contextmanager
def _own_cache() -> Iterator[None]:
    before = os.environ.get("MMDB_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="mmdb-bench-") as folder:
        os.environ["MMDB_CACHE_DIR"] = str(Path(folder) / "cache")
        try:
            yield
        finally:
            if before is None:
                del os.environ["MMDB_CACHE_DIR"]
            else:
                os.environ["MMDB_CACHE_DIR"] = before
