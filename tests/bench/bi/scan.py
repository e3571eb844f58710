"""Experiment `scan`: what a BI tool that reads the views costs a run that is trained meanwhile.

Rounds alternate: a run of two workers by itself, and the same run beside a process that reads every
view once, 10,000 rows of each as a tool does when it syncs, and then six questions of a dashboard
every ten seconds. The database is filled as by experiment `bi`. PostgreSQL alone: the file of
DuckDB belongs to the process that trains.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from statistics import median

import psycopg

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.train import makespan
from mmdb.bench.workload import BenchShare, bench_names, make_points, servers_of
from mmdb.db.queries import load
from tests.bench.bi.bench import SCAN, fill_empty, views

ROUNDS, WORKERS, SCAN_BAR = 3, 2, 1.05
#: Hops of about a second on one core; eight candidates, so that two workers take about a minute.
WIDTH, CLASSES, ROWS, PARTITIONS, EPOCHS = 64, 10, 400_000, 4, 4
RATES = [0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005]
REFRESH_S = 10.0
#: What a dashboard asks, of the run that is trained and over all.
DASHBOARD = (
    "SELECT * FROM mmdb.run_progress WHERE run = %(run)s",
    "SELECT * FROM mmdb.leaderboard WHERE run = %(run)s ORDER BY rank",
    "SELECT * FROM mmdb.metric_history WHERE run = %(run)s",
    "SELECT worker, hour, hops, busy_s FROM mmdb.hops_per_hour ORDER BY hour DESC LIMIT 100",
    "SELECT run, cost, worker_s FROM mmdb.run_cost ORDER BY created_at DESC LIMIT 100",
    "SELECT * FROM mmdb.model_overview ORDER BY model_id DESC LIMIT 100",
)


def bench_scan(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
    """Measure every PostgreSQL database in one run."""
    for db in servers_of(databases):
        yield from _measure(db, share)


def _measure(db: Database, share: BenchShare) -> Iterator[Figure]:
    fill_empty(db, share)
    epochs = share.of(EPOCHS)
    alone: list[float] = []
    beside: list[float] = []
    with bench_names(db) as prefix:
        make_points(db, prefix, share.of(ROWS, 2_000), WIDTH, CLASSES)
        db.create_dataset(prefix, f"SELECT * FROM {prefix}", partitions=PARTITIONS)
        _train(db, f"{prefix}-warm", prefix, 1)
        for k in range(share.of(ROUNDS)):
            alone.append(_train(db, f"{prefix}-alone-{k}", prefix, epochs))
            with _reader(db, f"{prefix}-beside-{k}"):
                beside.append(_train(db, f"{prefix}-beside-{k}", prefix, epochs))
    ratio = median(beside) / median(alone)
    peer = "the same run by itself"
    yield at_most("postgres: makespan beside a BI tool, medians", [ratio], "x", SCAN_BAR, peer)
    yield Figure(name="postgres: makespan alone, median", value=median(alone), unit="s", runs=alone)
    yield Figure(
        name="postgres: makespan beside, median", value=median(beside), unit="s", runs=beside
    )


def _train(db: Database, run: str, dataset: str, epochs: int) -> float:
    """Train a run and return its makespan in seconds."""
    db.create_run(
        run,
        dataset=dataset,
        architecture="mlp(hidden=[256])",
        search={"space": {"lr": RATES, "batch_size": 64}},
        epochs=epochs,
        strategy="mop",
    ).train(workers=WORKERS)
    return makespan(db.connection.rows(load("bench_hops").timeline, prefix=run))


@contextmanager
def _reader(db: Database, run: str) -> Iterator[None]:
    """Read the views in another process while the block lasts.

    Raises:
        RuntimeError: the reader failed, so that nothing was measured.
    """
    context = get_context("spawn")
    done = context.Event()
    statements = [f"SELECT * FROM mmdb.{view.name} LIMIT {SCAN}" for view in views(db)]
    process = context.Process(target=read, args=(db.connection.url, run, statements, done))
    process.start()
    try:
        yield
    finally:
        done.set()
        process.join()
    if process.exitcode != 0:
        raise RuntimeError("The reader of the views failed.")


def read(url: str, run: str, statements: list[str], done: Event) -> None:
    """Run the statements once, then those of DASHBOARD every REFRESH_S seconds until `done`."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode()).fetchall()
            if done.is_set():
                return
        while True:
            began = time.monotonic()
            for statement in DASHBOARD:
                connection.execute(statement.encode(), {"run": run}).fetchall()
            if done.wait(max(0.0, REFRESH_S - (time.monotonic() - began))):
                return
