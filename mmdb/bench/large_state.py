"""Hops of a network whose state is 90 MB, at home in one session and from one to the other.

ResNet-18 with momentum is trained by two workers that are told each hop, without a driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from time import perf_counter

import torch
from torch import nn

from mmdb.api import Database
from mmdb.bench.figures import Figure, one_thread
from mmdb.bench.networks import SMALL, resnet18
from mmdb.bench.workload import Share, bench_names, make_points
from mmdb.db.connection import Row
from mmdb.db.queries import load
from mmdb.train.drive.worker import Worker, workers_of
from mmdb.train.hops.orders import HopOrder
from mmdb.train.hops.turn import ordinal_of
from mmdb.train.values.seeds import VALIDATION, visit_order

SHAPE, WIDTH, CLASSES, BATCH = (1, 8, 8), 64, 10, 32
PARTITIONS, EPOCHS = 4, 2
TARGET_S = 2.0  # of a hop's compute
STAY_BAR, CHANGE_BAR = 0.10, 0.30
KNOWN = {"resnet18": "ResNet-18, a state of 90 MB"}


def measure_large_states(db: Database, share: Share) -> Iterator[Figure]:
    """Yield the share of a hop that is not compute: at home, and when it changes session."""
    rows = rows_per_hop(share.time(TARGET_S)) * PARTITIONS * 5 // 4
    network = "resnet18" if share.is_full else SMALL
    with bench_names(db) as prefix:
        make_points(db, prefix, rows, WIDTH, CLASSES)
        options = {"shape": list(SHAPE)}
        query = f"SELECT * FROM {prefix}"
        db.create_dataset(prefix, query, partitions=PARTITIONS, options=options)
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
    yield Figure(name=f"{where}: compute of a hop", value=median(computes), unit="s")
    yield _overhead(f"{where}: overhead in one session", stays, STAY_BAR)
    yield _overhead(f"{where}: overhead from session to session", changes, CHANGE_BAR)


def rows_per_hop(target_s: float) -> int:
    """Return how many rows make a hop of ResNet-18 of so many seconds with one thread."""
    with one_thread():
        torch.manual_seed(0)
        module = resnet18(SHAPE, CLASSES)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
        x, y = torch.rand(BATCH, *SHAPE), torch.randint(CLASSES, (BATCH,))
        seconds = []
        for _ in range(6):
            started = perf_counter()
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()
            seconds.append(perf_counter() - started)
        return max(1, round(target_s / min(seconds))) * BATCH


Visit = tuple[float, Row]  # seconds as its caller sees them, and the hop's row


def _hop_along(db: Database, name: str, prefix: str, workers: Sequence[Worker]) -> list[Visit]:
    """Train one candidate, its hops dealt out to the workers in turn; return the train hops.

    The first epoch is left out: in it partitions are read and the first state is made.
    """
    search = {"space": {"batch_size": BATCH, "optimizer": [{"name": "sgd", "momentum": 0.9}]}}
    db.create_run(name, dataset=prefix, architecture=prefix, search=search, epochs=EPOCHS)
    run = db.connection.rows(load("runs").find_run, name=name)[0]
    found = db.connection.rows(load("hops").find_partitions, dataset_id=run["dataset_id"])
    parts = {ordinal_of(part): part["part_id"] for part in found}
    (candidate,) = db.connection.rows(load("runs").find_candidates, run_id=run["run_id"])
    turns, visits = 0, []
    for epoch in range(EPOCHS):
        for ordinal in (*visit_order(0, 0, epoch, PARTITIONS), VALIDATION):
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
    return Figure(
        name=name, value=value, unit="", bar=f"<= {bar:g}", holds=value <= bar, runs=shares
    )
