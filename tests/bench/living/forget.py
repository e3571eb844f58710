"""Rows forgotten at random: each model is made again, and compared with one that never had them."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from time import sleep
from typing import Any

import numpy as np

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.workload import BenchShare
from mmdb.data.dataset import find_dataset
from mmdb.data.reader import read_columns
from tests.lineage_walk import models_below

_ROWS = 240
#: What a draw trains: an architecture, and options of its dataset and of its run.
_MODELS: tuple[tuple[str, Mapping[str, Any], Mapping[str, Any]], ...] = (
    ("mlp(hidden=[8])", {}, {}),
    ("mlp(hidden=[8], dropout=0.3)", {}, {"options": {"patience": 1}}),
    ("mlp(hidden=[8, 4], batch_norm=true)", {}, {}),
    ("cnn(width=2, dropout=0.2)", {"shape": [1, 2, 2]}, {}),
    ("tabular(hidden=[8])", {}, {}),
    ("mlp(hidden=[4])", {}, {"per": "c", "search": {}}),
)
_SEARCH = {"space": {"lr": 0.01, "batch_size": 16, "optimizer": "adam"}}
_CHILD = (
    "import sys, mmdb; db = mmdb.connect(sys.argv[1]); print(1, flush=True); db.remake(workers=1)"
)


def bench_forget(
    db: Database, share: BenchShare, prefix: str, engine: str, url: str | None
) -> Iterator[Figure]:
    """Forget rows of datasets that are made for it; see docs/living.md.

    Args:
        url: of the database, where another process may open it too: that is killed as it remakes.
    """
    count, missed, differ, killed = share.of(50, 2), 0, 0, 0
    for seed in range(count):
        found = _Draw(db, f"{prefix}_f{seed}", seed).forget(url)
        missed += found["missed"]
        differ += found["differ"]
        killed += found["killed"]
    yield at_most(f"{engine}: models of {count} draws that a plain walk finds, and forget did not",
                  [missed], "", 0)  # fmt: skip
    yield at_most(f"{engine}: models that differ from ones without the rows", [differ], "", 0)
    yield Figure(f"{engine}: remakes that were killed, and gone on with", killed, "")


class _Draw:
    """One dataset, its models, and the rows that it forgets."""

    def __init__(self, db: Database, name: str, seed: int) -> None:
        self._db, self._name, self._random = db, name, random.Random(seed)
        self._architecture, self._options, self._given = _MODELS[seed % len(_MODELS)]
        numbers = ", ".join(f"(i * {37 + 2 * k} % 101) / 101.0 AS x{k}" for k in range(3))
        db.sql(
            f"CREATE TABLE {name} AS SELECT i AS id, CAST(i AS real) AS f, {numbers},"
            f" i % 5 AS c, i * {41 + 2 * (seed % 7)} % 11 % 3 AS y"
            f" FROM generate_series(1, {_ROWS}) AS g (i)"
        )

    def forget(self, url: str | None) -> dict[str, int]:
        """Return how many models were missed, or differ, and whether a remake was killed."""
        db, name = self._db, self._name
        for dataset in (name, f"{name}_apart"):
            self._create(dataset)
        self._train(f"{name}_m", name)
        has_child = "per" not in self._given
        if has_child:
            self._train(f"{name}_child", name, warm_start=f"{name}_m@1")
        missed = 0
        for condition in self._conditions():
            planned = db.forget(name, condition, dry_run=True)
            listed = {row["entity"] for row in planned if row["entity"].startswith("model:")}
            missed += len(models_below(db, f"dataset:{name}") - listed)
            db.forget(name, condition)
            db.sql(f"DELETE FROM {name} WHERE {condition}")
        killed = self._killed(url)
        db.remake(workers=1)
        db.refresh_dataset(f"{name}_apart")
        self._train(f"{name}_never", f"{name}_apart")
        pairs = [("m", "never")]
        if has_child:
            self._train(f"{name}_other", f"{name}_apart", warm_start=f"{name}_never@1")
            pairs.append(("child", "other"))
        differ = sum(self._weights(one) != self._weights(other) for one, other in pairs)
        for dataset in (name, f"{name}_apart"):
            db.drop_dataset(dataset, force=True)
        return {"missed": missed, "differ": differ, "killed": killed}

    def _create(self, dataset: str) -> None:
        columns = "f, x0, x1, x2" if self._options else "f, x0, x1, x2, c"
        query = f"SELECT id, {columns}, y FROM {self._name}"
        options = {"roles": {"id": "key"}, **self._options}
        if "per" in self._given:
            options["transforms"] = {"c": "index"}
        if self._options:  # of pictures, which take no transforms
            options["transforms"] = dict.fromkeys(("f", "x0", "x1", "x2"), "passthrough")
        self._db.create_dataset(dataset, query, label="y", partitions=3, options=options)

    def _train(self, run: str, dataset: str, **more: Any) -> None:
        given: dict[str, Any] = {"architecture": self._architecture, "epochs": 2, "search": _SEARCH}
        given |= {**self._given, **more}
        self._db.create_run(run, dataset=dataset, **given).train(workers=1)

    def _conditions(self) -> list[str]:
        """Return which rows are forgotten: some, a partition's, or both, by one call or two."""
        kind = self._random.choice(["rows", "partition", "both", "one after the other"])
        drawn: list[set[int]] = []
        if kind != "partition":
            drawn.append(set(self._random.sample(range(1, _ROWS + 1), 7)))
        if kind != "rows":
            dataset = find_dataset(self._db.connection, self._name)
            part = self._random.choice([p for p in dataset.slices if p.role == "train"])
            held = read_columns(self._db.connection, part.part_id, dataset.decoding)
            drawn.append({int(v) for given in held for v in np.asarray(given["f"]).ravel()})
        if kind == "both":
            drawn = [set().union(*drawn)]
        return [f"id IN ({', '.join(map(str, sorted(ids)))})" for ids in drawn]

    def _killed(self, url: str | None) -> int:
        """Kill a process that makes the models again; return 1 if it had not ended."""
        if url is None or self._random.random() < 0.5:
            return 0
        command = [sys.executable, "-W", "ignore", "-c", _CHILD, url]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            sleep(self._random.random() * 6)
            is_alive = child.poll() is None
            child.send_signal(signal.SIGKILL)
        return int(is_alive)

    def _weights(self, kind: str) -> bytes:
        """Return the hash of the weights of a model's last version."""
        (row,) = self._db.sql(
            f"SELECT weights_hash FROM mmdb.model WHERE name = '{self._name}_{kind}'"
            " AND dropped_at IS NULL"
        )
        return bytes(row["weights_hash"])
