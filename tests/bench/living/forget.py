"""Rows forgotten at random: each model is made again, and compared with one that never had them."""

from __future__ import annotations

import random
import struct
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
from tests.bench.living.breaking import WAYS, Breakable, breakable
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
#: Numbers of a row, by which its bytes are known; the first says which row it is.
_ARRAY = (
    f"CAST(ARRAY[i / {_ROWS}.0, i * 37 % 101 / 101.0, i * 53 % 97 / 97.0, i * i % 89 / 89.0]"
    " AS real[])"
)
#: Rows with a text of their own; the others have one in common.
_TOLD = 150
_EACH = {"kind": "index", "min_count": 1}
_SEARCH = {"space": {"lr": 0.01, "batch_size": 16, "optimizer": "adam"}}
_CHILD = (
    "import sys, mmdb; db = mmdb.connect(sys.argv[1]); print(1, flush=True); db.remake(workers=1)"
)
_TABLES = (
    "SELECT table_name AS name FROM information_schema.tables"
    " WHERE table_schema = 'mmdb' AND table_type = 'BASE TABLE'"
)


def bench_forget(_: Database, share: BenchShare, prefix: str, engine: str) -> Iterator[Figure]:
    """Forget rows of datasets that are made for it; see docs/living.md."""
    count = share.of(50, 2)
    total: dict[str, int] = {}
    with breakable(engine) as place:
        for seed in range(count):
            for key, found in _Draw(place, f"f{seed}", seed).forget().items():
                total[key] = total.get(key, 0) + found
    yield at_most(f"{engine}: models of {count} draws that a plain walk finds, and forget did not",
                  [total["missed"]], "", 0)  # fmt: skip
    name = f"{engine}: models of {total['models']} that differ from ones without the rows"
    yield at_most(name, [total["differ"]], "", 0)
    name = f"{engine}: draws after which a table or a cache has bytes of rows"
    yield at_most(name, [total["traces"]], "", 0)
    for way in WAYS[engine]:
        name = f"{engine}: remakes broken off by the death of a {way}, and gone on with"
        yield Figure(name, total.get(way, 0), "")


class _Draw:
    """One dataset, its models, and the rows that it forgets."""

    def __init__(self, place: Breakable, name: str, seed: int) -> None:
        self._place, self._name, self._random = place, name, random.Random(seed)
        self._architecture, self._options, self._given = _MODELS[seed % len(_MODELS)]
        self._resumes = seed % 2 == 1
        place.db.sql(
            f"CREATE TABLE {name} AS SELECT i AS id, CAST(i % 5 AS integer) AS c,"
            f" {_ARRAY} AS v, 'told-of-' ||"
            f" CAST(CASE WHEN i <= {_TOLD} THEN i ELSE 0 END AS text) || '-{seed}' AS t,"
            f" i * {41 + 2 * (seed % 7)} % 11 % 3 AS y"
            f" FROM generate_series(1, {_ROWS}) AS g (i)"
        )

    @property
    def _db(self) -> Database:
        return self._place.db

    def forget(self) -> dict[str, int]:
        """Return how many models were missed, or differ, whether bytes are left, and what died."""
        name = self._name
        for dataset in (name, f"{name}_apart"):
            self._create(dataset)
        self._train(f"{name}_m", name)
        has_child = "per" not in self._given
        if has_child:
            self._begin_child("child", name, "m")
        missed, gone = 0, set[int]()
        for ids in self._drawn():
            condition = f"id IN ({', '.join(map(str, sorted(ids)))})"
            planned = self._db.forget(name, condition, dry_run=True)
            listed = {row["entity"] for row in planned if row["entity"].startswith("model:")}
            missed += len(models_below(self._db, f"dataset:{name}") - listed)
            assert self._traces(ids), "What is looked for could not be found."
            self._db.forget(name, condition)
            self._db.sql(f"DELETE FROM {name} WHERE {condition}")
            gone |= ids
        died = self._broken_off()
        self._db.remake(workers=1)
        self._db.refresh_dataset(f"{name}_apart")
        self._train(f"{name}_never", f"{name}_apart")
        pairs = [("m", "never")]
        if has_child:
            self._begin_child("other", f"{name}_apart", "never")
            pairs.append(("child", "other"))
        differ = sum(self._weights(one) != self._weights(other) for one, other in pairs)
        self._db.forget(f"{name}_apart")  # of its first version, too
        traces = self._traces(gone)
        if differ or traces or missed:
            print(f"{name}: {differ} differ, {missed} missed, {traces}", file=sys.stderr)
        for dataset in (name, f"{name}_apart"):
            self._db.drop_dataset(dataset, force=True)
        return {
            "missed": missed,
            "differ": differ,
            "models": len(pairs),
            "traces": bool(traces),
        } | died

    def _create(self, dataset: str) -> None:
        columns: str = "v"
        transforms: dict[str, Any] = {"v": "passthrough"}
        if "shape" not in self._options:  # which is of pictures alone
            columns, transforms = "v, c, t", transforms | {"c": "index", "t": _EACH}
        self._db.create_dataset(
            dataset,
            f"SELECT id, {columns}, y FROM {self._name}",
            label="y",
            partitions=3,
            options={"roles": {"id": "key"}, "transforms": transforms, **self._options},
        )

    def _train(self, run: str, dataset: str, **more: Any) -> None:
        given: dict[str, Any] = {"architecture": self._architecture, "epochs": 2, "search": _SEARCH}
        given |= {**self._given, **more}
        self._db.create_run(run, dataset=dataset, **given).train(workers=1)

    def _begin_child(self, kind: str, dataset: str, parent: str) -> None:
        """Train a model that begins with another one's weights, in every second draw as it was."""
        options = {**self._given.get("options", {}), "warm_start": {"optimizer": self._resumes}}
        start = f"{self._name}_{parent}@1"
        self._train(f"{self._name}_{kind}", dataset, warm_start=start, options=options)

    def _drawn(self) -> list[set[int]]:
        """Return which rows are forgotten: some, a partition's, or both, by one call or two."""
        kind = self._random.choice(["rows", "partition", "both", "one after the other"])
        drawn: list[set[int]] = []
        if kind != "partition":
            drawn.append(set(self._random.sample(range(1, _ROWS + 1), 7)))
        if kind != "rows":
            dataset = find_dataset(self._db.connection, self._name)
            part = self._random.choice([p for p in dataset.slices if p.role == "train"])
            held = read_columns(self._db.connection, part.part_id, dataset.decoding)
            rows = np.concatenate([np.asarray(one["v"]).reshape(-1, 4) for one in held])
            drawn.append({round(float(row[0]) * _ROWS) for row in rows})
        if kind == "one after the other" and drawn[1] - drawn[0]:
            return [drawn[0], drawn[1] - drawn[0]]
        return [set[int]().union(*drawn)]

    def _broken_off(self) -> dict[str, int]:
        """Break off a process that makes the models again, in three of four draws."""
        way = self._random.choice(["", *(WAYS[self._place.engine] * 3)[:3]])
        if not way:
            return {}
        (child,) = self._place.start(_CHILD)
        sleep(self._random.random() * 6)
        is_alive = self._place.interrupt(child, way, self._random)
        self._place.restart()
        self._place.reopen()
        return {way: int(is_alive)}

    def _traces(self, ids: set[int]) -> set[str]:
        """Return the tables that have an array or a text of rows, and whether a cache has."""
        rows = [[np.float32(k / _ROWS), *_numbers(k)] for k in ids]
        sought = [struct.pack("<4f", *row) for row in rows]
        sought += [f"told-of-{k}-{self._name[1:]}".encode() for k in ids if k <= _TOLD]

        def has(data: bytes) -> bool:
            return any(one in data for one in sought)

        found = set[str]()
        for table in [str(row["name"]) for row in self._db.sql(_TABLES)]:
            values = [
                v for row in self._db.sql(f"SELECT * FROM mmdb.{table}") for v in row.values()
            ]
            blobs = [bytes(v) for v in values if isinstance(v, bytes | bytearray | memoryview)]
            texts = [str(v).encode() for v in values if isinstance(v, str | dict | list)]
            if has(b"\n".join(blobs + texts)):
                found.add(table)
        return found | {"cache" for path in self._place.files() if has(path.read_bytes())}

    def _weights(self, kind: str) -> bytes:
        """Return the hash of the weights of a model's last version."""
        (row,) = self._db.sql(
            f"SELECT weights_hash FROM mmdb.model WHERE name = '{self._name}_{kind}'"
            " AND dropped_at IS NULL"
        )
        return bytes(row["weights_hash"])


def _numbers(k: int) -> list[float]:
    return [k * 37 % 101 / 101, k * 53 % 97 / 97, k * k % 89 / 89]
