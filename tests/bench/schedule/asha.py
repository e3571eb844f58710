"""Experiment `asha`: successive halving of 81 candidates beside the full grid, on the digits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mmdb.api import Database
from mmdb.bench.figures import Figure
from mmdb.bench.train import makespan
from mmdb.bench.workload import BenchShare, bench_names
from mmdb.cli.demo import read_digits
from mmdb.db.connection import Row
from mmdb.db.queries import load
from tests.bench.points import load_points
from tests.bench.schedule.bound import conserving_bound

PARTITIONS, EPOCHS, WORKERS, ETA = 2, 27, 2, 3
#: How often each picture is there, each time moved a little: hops of a tenth of a second and more.
COPIES, SIDE, NOISE = 4, 8, 0.1
#: 81 combinations.
SPACE: dict[str, list[Any]] = {
    "lr": [0.3, 0.1, 0.05, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001],
    "architecture.width": [8, 16, 32],
    "batch_size": [16, 32, 64],
    "optimizer": [{"name": "sgd", "momentum": 0.9}],
}
MAKESPAN_BAR, HOPS_BAR = 1.05, 0.30
#: A difference of accuracies counts as noise up to so many standard errors.
STANDARD_ERRORS = 2.0


def bench_asha(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
    """Measure every database in one run."""
    space = {name: share.first(values, 2) for name, values in SPACE.items()}
    for db in databases:
        yield from measure(db, space, share.of(EPOCHS, ETA), share.of(COPIES))


def measure(db: Database, space: dict[str, Any], epochs: int, copies: int) -> Iterator[Figure]:
    """Yield how ASHA and the full grid of a space compare."""
    with bench_names(db) as prefix:
        load_points(db, prefix, *moved_digits(copies))
        options = {"shape": [1, 8, 8]}
        query = f"SELECT x, y FROM {prefix}"
        db.create_dataset(prefix, query, partitions=PARTITIONS, options=options)
        asha = {"method": "asha", "sampler": "grid", "eta": ETA, "space": space}
        halved = _train(db, f"{prefix}-asha", prefix, asha, epochs)
        run = db.connection.rows(load("runs").find_run, name=f"{prefix}-asha")[0]
        log = db.connection.rows(load("runs").find_decisions, run_id=run["run_id"], after=-1)
        whole = _train(db, f"{prefix}-grid", prefix, {"method": "grid", "space": space}, epochs)
    bound = conserving_bound(halved, log, WORKERS)
    yield from _compare(db.connection.engine, halved, whole, bound)


def moved_digits(copies: int) -> tuple[np.ndarray, np.ndarray]:
    """Return digits, moved by at most a pixel and with noise: float32 (n, 64), int32 (n,)."""
    images, digits = read_digits()
    rng = np.random.default_rng(0)
    pictures = np.tile((images / 16).reshape(-1, SIDE, SIDE), (copies, 1, 1))
    moves = rng.integers(-1, 2, (len(pictures), 2))
    moved = [np.roll(p, m, axis=(0, 1)) for p, m in zip(pictures, moves, strict=True)]
    x = np.stack(moved) + NOISE * rng.standard_normal(pictures.shape)
    return x.reshape(len(x), -1).astype(np.float32), np.tile(digits, copies).astype(np.int32)


def _compare(
    engine: str, halved: Sequence[Row], whole: Sequence[Row], bound: float
) -> Iterator[Figure]:
    for name, hops in (("ASHA", halved), ("full grid", whole)):
        yield Figure(name=f"{engine}: {name}, makespan", value=makespan(hops), unit="s")
        yield Figure(name=f"{engine}: {name}, hops", value=len(hops), unit="")
    ratio = makespan(halved) / bound
    yield _bar(f"{engine}: ASHA, makespan / work-conserving bound", ratio, "x", MAKESPAN_BAR)
    share = len(halved) / len(whole)
    yield _bar(f"{engine}: ASHA's hops / full grid's", share, "x", HOPS_BAR)
    found, best = _best(halved), _best(whole)
    yield Figure(name=f"{engine}: ASHA, best accuracy", value=found, unit="")
    yield Figure(name=f"{engine}: full grid, best accuracy", value=best, unit="")
    rows = next(hop["row_count"] for hop in whole if hop["role"] == "validation")
    noise = STANDARD_ERRORS * math.sqrt(best * (1 - best) / rows)
    yield _bar(f"{engine}: accuracy that ASHA gives away", max(best - found, 0.0), "", noise)


def _bar(name: str, value: float, unit: str, bar: float) -> Figure:
    return Figure(name=name, value=value, unit=unit, bar=f"<= {bar:.3g}", holds=value <= bar)


def _best(hops: Sequence[Row]) -> float:
    """Return the best accuracy of any candidate after any epoch."""
    best: float = max(hop["objective"] for hop in hops if hop["objective"] is not None)
    return best


def _train(db: Database, run: str, dataset: str, search: dict[str, Any], epochs: int) -> list[Row]:
    """Train a run and return its hops, validations included."""
    db.create_run(
        run,
        dataset=dataset,
        architecture="cnn",
        search=search,
        epochs=epochs,
        strategy="mop",
    ).train(workers=WORKERS)
    return db.connection.rows(load("bench_hops").timeline, prefix=run)
