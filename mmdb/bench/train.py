"""`mmdb bench train`: two workers against one, makespans against bounds, hops of large states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_least, at_most, one_thread
from mmdb.bench.networks import SMALL, resnet18
from mmdb.bench.workload import BenchShare, bench_names, make_points
from mmdb.db.connection import Row
from mmdb.db.queries import load
from mmdb.train.drive.worker import PoolWorker, workers_of
from mmdb.train.hops.orders import HopOrder
from mmdb.train.hops.turn import ordinal_of
from mmdb.train.values.seeds import VALIDATION, visit_order

SHAPE, LARGE_WIDTH, LARGE_CLASSES, BATCH = (1, 8, 8), 64, 10, 32
LARGE_PARTITIONS, LARGE_EPOCHS = 4, 2
TARGET_S = 2.0  # of a hop's compute
STAY_BAR, CHANGE_BAR = 0.10, 0.30
KNOWN = {"resnet18": "ResNet-18, a state of 90 MB"}


def measure_large_states(db: Database, share: BenchShare) -> Iterator[Figure]:
    """Yield the share of a hop that is not compute: at home, and when it changes session."""
    rows = rows_per_hop(share.time(TARGET_S)) * LARGE_PARTITIONS * 5 // 4
    network = "resnet18" if share.is_full else SMALL
    with bench_names(db) as prefix:
        make_points(db, prefix, rows, LARGE_WIDTH, LARGE_CLASSES)
        options = {"shape": list(SHAPE)}
        query = f"SELECT * FROM {prefix}"
        db.create_dataset(prefix, query, partitions=LARGE_PARTITIONS, options=options)
        db.register_factory(prefix, f"mmdb.bench.networks:{network}")
        workers = workers_of(db.connection, 2)
        try:
            for worker in workers:
                worker.open()
            stays = _hop_along(db, f"{prefix}-stays", prefix, workers[:1])
            changes = _hop_along(db, f"{prefix}-changes", prefix, workers)
        finally:
            for worker in workers:
                worker.close()
    where = f"{db.connection.engine}, {KNOWN.get(network, network)}"
    computes = [row["compute_s"] for _, row in stays]
    yield Figure(f"{where}: compute of a hop", median(computes), "s")
    yield _overhead(f"{where}: overhead in one session", stays, STAY_BAR)
    yield _overhead(f"{where}: overhead from session to session", changes, CHANGE_BAR)


def rows_per_hop(target_s: float) -> int:
    """Return how many rows make a hop of ResNet-18 of so many seconds with one thread."""
    with one_thread():
        torch.manual_seed(0)
        module = resnet18(SHAPE, LARGE_CLASSES)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
        x, y = torch.rand(BATCH, *SHAPE), torch.randint(LARGE_CLASSES, (BATCH,))
        seconds = []
        for _ in range(6):
            started = perf_counter()
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()
            seconds.append(perf_counter() - started)
        return max(1, round(target_s / min(seconds))) * BATCH


Visit = tuple[float, Row]  # seconds as its caller sees them, and the hop's row


def _hop_along(db: Database, name: str, prefix: str, workers: Sequence[PoolWorker]) -> list[Visit]:
    """Train one candidate, its hops dealt out to the workers in turn; return the train hops.

    The first epoch is left out: in it partitions are read and the first state is made.
    """
    search = {"space": {"batch_size": BATCH, "optimizer": [{"name": "sgd", "momentum": 0.9}]}}
    db.create_run(name, dataset=prefix, architecture=prefix, search=search, epochs=LARGE_EPOCHS)
    run = db.connection.rows(load("runs").find_run, name=name)[0]
    found = db.connection.rows(load("hops").find_partitions, dataset_id=run["dataset_id"])
    parts = {ordinal_of(part): part["part_id"] for part in found}
    (candidate,) = db.connection.rows(load("runs").find_candidates, run_id=run["run_id"])
    turns, visits = 0, []
    for epoch in range(LARGE_EPOCHS):
        for ordinal in (*visit_order(0, 0, epoch, LARGE_PARTITIONS), VALIDATION):
            order = HopOrder(
                part_id=parts[ordinal],
                candidate_id=candidate["candidate_id"],
                epoch=epoch,
                publish=len(workers) > 1,
            )
            started = perf_counter()
            workers[turns % len(workers)].do(order)
            visits.append((epoch, ordinal, perf_counter() - started))
            turns += 1
    rows = {
        (row["epoch"], row["part_id"]): row
        for row in db.connection.rows(load("bench_hops").timeline, prefix=name)
    }
    return [
        (seconds, rows[epoch, parts[ordinal]])
        for epoch, ordinal, seconds in visits
        if epoch and ordinal != VALIDATION
    ]


def _overhead(name: str, visits: Sequence[Visit], bar: float) -> Figure:
    """Return the share by which hops take longer than their compute, all hops together."""
    seconds = sum(taken for taken, _ in visits)
    compute = sum(row["compute_s"] for _, row in visits)
    shares = [taken / row["compute_s"] - 1 for taken, row in visits]
    value = seconds / compute - 1
    return Figure(name, value, "", bar=f"<= {bar:g}", holds=value <= bar, runs=shares)


def makespan(hops: Sequence[Row]) -> float:
    """Return the seconds from the first hop's start to the last one's end."""
    first, last = min(h["started_at"] for h in hops), max(h["finished_at"] for h in hops)
    seconds: float = (last - first).total_seconds()
    return seconds


def lower_bound(hops: Sequence[Row], workers: int) -> float:
    """Return the longest of: total hop time / workers, longest candidate, longest partition."""
    total: float = sum(hop["total_s"] for hop in hops)
    return max(total / workers, *seconds_by(hops, "candidate_id"), *seconds_by(hops, "part_id"))


def seconds_by(hops: Sequence[Row], column: str) -> list[float]:
    """Return the hop seconds of each value of a column."""
    sums: dict[Hashable, float] = defaultdict(float)
    for hop in hops:
        sums[hop[column]] += hop["total_s"]
    return list(sums.values())


def gaps(hops: Sequence[Row]) -> list[float]:
    """Return the seconds between each worker's hops, from one's end to the next one's start."""
    by_worker: dict[str, list[Row]] = defaultdict(list)
    for hop in sorted(hops, key=lambda hop: hop["started_at"]):
        by_worker[hop["worker"]].append(hop)
    return [
        (after["started_at"] - before["finished_at"]).total_seconds()
        for mine in by_worker.values()
        for before, after in pairwise(mine)
    ]


def cost_ratio(hops: Sequence[Row]) -> float:
    """Return how many times as long the most expensive candidate takes as the cheapest."""
    costs = seconds_by(hops, "candidate_id")
    return max(costs) / min(costs)


WIDTH, CLASSES, PARTITIONS, EPOCHS, ROUNDS = 64, 10, 4, 1, 3
SPEEDUP_BAR, MAKESPAN_BAR, GAP_BAR_MS = 1.8, 1.05, 10.0
#: Architecture, rows: hops of about a second.
WORKLOADS = {"mlp": ("mlp(hidden=[256])", 400_000), "cnn": ("cnn(width=8)", 48_000)}
RATES = [0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005]
SEARCH = {"space": {"lr": RATES, "batch_size": 64}}
#: Eight candidates whose costs are about 1 : 8.
MIXED_ROWS, MIXED_WIDTHS = 480_000, [[64], [128], [256], [400, 400]]
MIXED = {"space": {"architecture.hidden": MIXED_WIDTHS, "lr": [0.01, 0.001], "batch_size": 256}}
#: An MLP whose state is 0.9 MB with Adam, in hops of about 0.1 s.
GAP_ROWS, GAP_HIDDEN, GAP_EPOCHS = 8_000, 1024, 3


def bench_train(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
    """Measure every database in one run."""
    for db in databases:
        yield from _measure(db, share)


def _measure(db: Database, share: BenchShare) -> Iterator[Figure]:
    for name, (architecture, rows) in WORKLOADS.items():
        yield from _speedup(db, name, architecture, share.of(rows), share.of(ROUNDS))
    yield from _mixed(db, share)
    yield from _gaps(db, share)
    yield from measure_large_states(db, share)


def _speedup(
    db: Database, name: str, architecture: str, rows: int, rounds: int
) -> Iterator[Figure]:
    with bench_names(db) as prefix:
        make_points(db, prefix, rows, WIDTH, CLASSES)
        features = ", ".join(f"c{k}" for k in range(WIDTH))
        array = f"ARRAY[{features}]" if db.connection.engine == "postgres" else f"[{features}]"
        query = f"SELECT {array} AS x, y FROM {prefix}"
        options = {"shape": [1, 8, 8]} if name == "cnn" else {}
        db.create_dataset(prefix, query, partitions=PARTITIONS, options=options)
        pairs = [
            [
                _hops(db, f"{prefix}-{k}-{workers}", prefix, architecture, SEARCH, EPOCHS, workers)
                for workers in (1, 2)
            ]
            for k in range(rounds)
        ]
    where = f"{db.connection.engine}, {name}"
    speedups = [makespan(one) / makespan(two) for one, two in pairs]
    yield at_least(f"{where}: 2 workers against 1", speedups, "x", SPEEDUP_BAR)
    ratios = [makespan(two) / lower_bound(two, 2) for _, two in pairs]
    yield at_most(f"{where}: makespan / lower bound", ratios, "x", MAKESPAN_BAR)


def _mixed(db: Database, share: BenchShare) -> Iterator[Figure]:
    """Candidates of different costs, which a bad order would leave for the end."""
    with bench_names(db) as prefix:
        make_points(db, prefix, share.of(MIXED_ROWS), WIDTH, CLASSES)
        db.create_dataset(prefix, f"SELECT * FROM {prefix}", partitions=PARTITIONS)
        rounds = [
            _hops(db, f"{prefix}-{k}", prefix, "mlp", MIXED, 2, 2) for k in range(share.of(ROUNDS))
        ]
    where = f"{db.connection.engine}, mixed costs"
    costs = median(cost_ratio(hops) for hops in rounds)
    yield Figure(f"{where}: dearest / cheapest candidate", costs, "x")
    ratios = [makespan(hops) / lower_bound(hops, 2) for hops in rounds]
    yield at_most(f"{where}: makespan / lower bound", ratios, "x", MAKESPAN_BAR)


def _gaps(db: Database, share: BenchShare) -> Iterator[Figure]:
    """The time between two hops of a worker."""
    with bench_names(db) as prefix:
        make_points(db, prefix, share.of(GAP_ROWS, 1_000), WIDTH, CLASSES)
        db.create_dataset(prefix, f"SELECT * FROM {prefix}", partitions=PARTITIONS)
        architecture = f"mlp(hidden=[{GAP_HIDDEN}])"
        rounds = [
            _hops(db, f"{prefix}-{k}", prefix, architecture, SEARCH, GAP_EPOCHS, 2)
            for k in range(share.of(ROUNDS))
        ]
    where = f"{db.connection.engine}, a state of 0.9 MB"
    between = [1e3 * median(gaps(hops)) for hops in rounds]
    yield at_most(f"{where}: median time between hops", between, "ms", GAP_BAR_MS)
    overhead = [1e3 * median(hop["overhead_s"] for hop in hops) for hops in rounds]
    yield Figure(f"{where}: median overhead in a hop", min(overhead), "ms", runs=overhead)


def _hops(
    db: Database,
    run: str,
    dataset: str,
    architecture: str,
    search: Mapping[str, Any],
    epochs: int,
    workers: int,
) -> list[Row]:
    """Train a run by hopping and return its hops."""
    about: dict[str, Any] = {"dataset": dataset, "architecture": architecture, "search": search}
    db.create_run(run, **about, epochs=epochs, strategy="mop").train(workers=workers)
    return db.connection.rows(load("bench_hops").timeline, prefix=run)
