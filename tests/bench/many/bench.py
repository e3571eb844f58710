"""Experiment `many`: stacks of small networks, and a network for each of many groups."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import nn

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_least, at_most
from mmdb.bench.workload import BenchShare, bench_names
from mmdb.data.decoding import Target
from mmdb.graph.factories import SHIPPED
from mmdb.graph.spec.parse import parse
from mmdb.train.drive.stack_choice import measured
from mmdb.train.values.spec import CandidateSpec
from tests.random_stacks import differing, draw_stack

PARTS = ("search", "groups", "bits", "families")
_COLUMNS, _CLASSES, _EPOCHS = 64, 10, 2
ROOT = Path(__file__).parents[3]
_GROUP_COLUMNS, _GROUP_EPOCHS, _GROUP_BATCH = 8, 5, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyShare(BenchShare):
    """How much is measured; see `PARTS`."""

    only: Sequence[str] = ()


def bench_many(databases: list[Database], share: ManyShare) -> Iterator[Figure]:
    """Measure each part on each database."""
    for db in databases:
        engine = db.connection.engine
        with bench_names(db) as prefix:
            for name, part in {"search": _search, "groups": _groups}.items():
                if name in (share.only or PARTS):
                    yield from part(db, share, prefix, engine)
    for name, alone in {"bits": _bits, "families": _families}.items():
        if name in (share.only or PARTS):
            yield from alone(share)


# -- A search ----------------------------------------------------------------------


def _search(db: Database, share: ManyShare, prefix: str, engine: str) -> Iterator[Figure]:
    rows, count = share.of(100_000, 2_000), share.of(32, 3)
    series = f"generate_series(1, {rows}) AS g (i)"
    draw = ", ".join(f"(random() * 2 - 1)::real AS c{k}" for k in range(_COLUMNS))
    db.sql(f"CREATE TABLE {prefix}_rows AS SELECT {draw} FROM {series}")
    label = " + ".join(f"c{k} * {1 + k % 3}" for k in range(12))
    query = (
        f"SELECT *, least(greatest(floor(({label}) * 0.7 + 5), 0), {_CLASSES - 1})::integer AS y "
        f"FROM {prefix}_rows"
    )
    db.create_dataset(f"{prefix}_rows", query)
    rates = [float(rate) for rate in np.geomspace(1e-4, 1e-2, count)]
    for batch, bar in ((32, 3.0), (256, 0.97)):
        seconds: dict[str, float] = {}
        right: dict[str, float] = {}
        for stack in ("never", "auto"):
            run = f"{prefix}_{batch}_{stack}"
            space = {"lr": rates, "batch_size": [batch], "optimizer": ["adam"]}
            db.create_run(
                run,
                dataset=f"{prefix}_rows",
                architecture="mlp(hidden=[64, 64])",
                epochs=_EPOCHS,
                strategy="mop",
                search={"space": space},
                options={"stack": stack},
            )
            seconds[stack] = _seconds(partial(db.run(run).train, workers=2))
            board = db.run(run).leaderboard()
            right[stack] = float(np.mean([row["accuracy"] for row in board]))
        ratio = seconds["never"] / seconds["auto"]
        yield at_least(
            f"{engine}: {count} candidates, batches of {batch}, stacked", [ratio], "x", bar
        )
        yield Figure(f"{engine}: the same one by one", seconds["never"], "s")
        apart = abs(right["never"] - right["auto"])
        yield at_most(f"{engine}: mean accuracy, the difference", [apart], "", 0.005)
        if batch == 32 and (python := os.environ.get("RAY_PYTHON")):
            found = _ray(db, python, f"{prefix}_rows", query, rates, batch)
            ratio = found["seconds"] / seconds["auto"]
            yield at_least(f"{engine}: times as fast", [ratio], "x", 3, "Ray Tune")
            yield Figure(f"{engine}: mean accuracy, stacked", right["auto"], "")
            yield Figure(f"{engine}: mean accuracy, Ray Tune", found["accuracy"], "")


def _ray(
    db: Database, python: str, dataset: str, query: str, rates: Sequence[float], batch: int
) -> dict[str, float]:
    """Let Ray Tune train the same networks on as many of the same rows."""
    rows = db.sql(query)
    (held_out,) = db.sql(
        f"SELECT sum(p.row_count) AS n FROM mmdb.partition AS p "
        f"INNER JOIN mmdb.dataset AS d ON p.dataset_id = d.dataset_id "
        f"WHERE d.name = '{dataset}' AND p.role = 'validation'"
    )
    x = np.array([[row[f"c{k}"] for k in range(_COLUMNS)] for row in rows], dtype=np.float32)
    y = np.array([row["y"] for row in rows], dtype=np.int64)
    with TemporaryDirectory() as folder:
        work = Path(folder) / "work.npz"
        how = {"batch": batch, "epochs": _EPOCHS, "held_out": held_out["n"], "rates": rates}
        np.savez(work, allow_pickle=False, x=x, y=y, **how)
        command = [python, "-m", "tests.bench.many.ray_search", str(work)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- Groups ------------------------------------------------------------------------


def _groups(db: Database, share: ManyShare, prefix: str, engine: str) -> Iterator[Figure]:
    count = share.of(10_000, 50)
    draw = ", ".join(f"(random() * 2 - 1)::real AS c{k}" for k in range(_GROUP_COLUMNS))
    size = "50 + (g.shop * 7919) % 351"
    sold = " + ".join(f"c{k} * ((shop * {k + 3}) % 7 - 3)" for k in range(_GROUP_COLUMNS))
    db.sql(
        f"CREATE TABLE {prefix}_sale AS SELECT g.shop, {draw} FROM generate_series(1, {count}) "
        f"AS g (shop), generate_series(1, 400) AS r (i) WHERE r.i <= {size}"
    )
    query = f"SELECT *, ({sold})::real AS y FROM {prefix}_sale"
    (made,) = db.sql(f"SELECT count(*) AS n FROM {prefix}_sale")
    options = {"transforms": {"shop": "index"}}
    registered = _seconds(
        lambda: db.create_dataset(
            f"{prefix}_sale", query, partitions=1, validation=0.0, options=options
        )
    )
    yield Figure(f"{engine}: a dataset of {made['n']:,} rows", made["n"] / registered, "rows/s")
    run = f"{prefix}_groups"
    db.create_run(
        run,
        dataset=f"{prefix}_sale",
        per="shop",
        architecture="mlp(hidden=[16])",
        epochs=_GROUP_EPOCHS,
        search={"space": {"lr": [3e-3], "batch_size": [_GROUP_BATCH], "optimizer": ["adam"]}},
    )
    trained = _seconds(lambda: db.run(run).train(workers=1))
    (best,) = db.run(run).leaderboard()
    saved = _seconds(lambda: db.save_candidate(best["candidate_id"], f"{prefix}_again"))
    yield Figure(f"{engine}: {count:,} networks trained and saved", trained, "s")
    yield at_most(f"{engine}: saving them", [100 * saved / trained], "% of the time", 10)
    drawn = [_draw(k) for k in range(share.of(40, 2))]
    alone = sum(_seconds(partial(_plain, *one)) for one in drawn) / len(drawn)
    ratio = alone * count / trained
    yield at_least(f"{engine}: times as fast", [ratio], "x", 20, "a loop over plain modules")
    with get_context("spawn").Pool(2) as pool:
        pool.map(_sklearn, drawn[:2])  # imports
        work = [_draw(k) for k in range(share.of(80, 2))]
        alone = _seconds(lambda: pool.map(_sklearn, work, chunksize=1)) / len(work)
    ratio = alone * count / trained
    yield at_least(f"{engine}: times as fast", [ratio], "x", 20, "MLPRegressor on two cores")
    one_group = [
        1000 * _seconds(partial(db.recover_group, run, k)) for k in range(1, share.of(200, 20))
    ]
    median = sorted(one_group[5:])[len(one_group[5:]) // 2]
    yield at_most(f"{engine}: a group's network recovered, median", [median], "ms", 3)
    rows = f"SELECT row_number() OVER () AS id, * FROM {prefix}_sale"
    into = _seconds(lambda: db.predict_into(run, rows, f"{prefix}_into", key="id"))
    yield at_least(f"{engine}: predict_into by group", [made["n"] / into], "rows/s", 200_000)


# -- Stacks by themselves ----------------------------------------------------------


def _bits(share: ManyShare) -> Iterator[Figure]:
    """Draw stacks of every layer; two members of each are trained alone, too."""
    count, wrong = share.of(500, 10), 0
    for seed in range(count):
        draw = random.Random(seed)
        wrong += bool(differing(draw, draw_stack(draw)))
    yield at_most(f"{count} random stacks, those with a member of other bits", [wrong], "", 0)


def _families(share: ManyShare) -> Iterator[Figure]:
    """Time a step of a candidate, by itself and in a stack."""
    encoder = {"nhead": 4, "dim_feedforward": 64}
    layers: list[tuple[str, dict[str, Any]]] = [
        ("Embedding", {"num_embeddings": 500, "embedding_dim": 32}),
        ("Position", {}),
        ("TransformerEncoderLayer", encoder),
        ("mean", {"dim": [1]}),
        ("Linear", {"out_features": "$outputs"}),
    ]
    text = {"layers": [{"name": op.lower(), "op": op, "args": args} for op, args in layers]}
    digits, columns, tokens = (1, 8, 8), (16,), (16,)
    networks: dict[str, tuple[str | dict[str, Any], tuple[int, ...]]] = {
        "tabular, as by default": ("tabular(ensemble=8, dropout=0.2)", columns),
        "tabular, one network": ("tabular(dropout=0.2)", columns),
        "tabular, 64 units": ("tabular(hidden=[64, 64])", columns),
        "cnn": ("cnn", digits),
        "cnn, 8 channels": ("cnn(width=8)", digits),
        "resnet, 4 channels": ("resnet(width=4)", digits),
        "transformer, 32 numbers": ("transformer(d_model=32, layers=1)", (16, 8)),
        "text encoder": (text, tokens),
    }
    settings = product(share.first((32, 256)), share.first((8, 32)))
    for (name, (architecture, shape)), (batch, members) in product(networks.items(), settings):
        ratio = _speed(parse(architecture), shape, batch, members)
        yield Figure(f"{name}, batches of {batch}: {members} in a stack", ratio, "x")


def _speed(architecture: dict[str, Any], shape: tuple[int, ...], batch: int, members: int) -> float:
    """Return how many times as fast candidates learn in a stack."""
    candidate = CandidateSpec(
        candidate_id=0,
        architecture=architecture,
        config={"batch_size": batch, "optimizer": "adamw"},
        factories=dict(SHIPPED),
        input_shape=shape,
        targets=(Target(name="y", task="classification", size=10),),
        seed=0,
    )
    found = measured(candidate, members)
    return found.alone_s / found.stacked_s if found else math.nan


def _draw(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a group."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (50 + seed * 7919 % 351, _GROUP_COLUMNS)).astype(np.float32)
    return x, x @ np.arange(-3, 5, dtype=np.float32)


def _plain(x: np.ndarray, y: np.ndarray) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # more threads make steps of this size slower
    rows, labels = torch.from_numpy(x), torch.from_numpy(y)
    network = nn.Sequential(nn.Linear(x.shape[1], 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(_GROUP_EPOCHS):
        for at in torch.randperm(len(rows)).split(_GROUP_BATCH):
            optimizer.zero_grad()
            nn.functional.mse_loss(network(rows[at])[:, 0], labels[at]).backward()
            optimizer.step()
    torch.set_num_threads(before)


def _sklearn(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    import warnings

    from sklearn.neural_network import MLPRegressor

    asked: Mapping[str, Any] = {"batch_size": _GROUP_BATCH, "max_iter": _GROUP_EPOCHS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged
        MLPRegressor(hidden_layer_sizes=(16,), learning_rate_init=3e-3, **asked).fit(*drawn)


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start
