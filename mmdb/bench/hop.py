"""`mmdb bench hop`: what training inside the database costs beside a plain PyTorch loop.

The two take turns, hop by hop, so that a machine whose speed drifts slows both.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most, is_so, one_thread
from mmdb.bench.workload import BenchShare, bench_names, make_points
from mmdb.data.reader import read_partition
from mmdb.db.queries import load
from mmdb.store import states
from mmdb.train.compute.live import weights
from mmdb.train.drive.worker import PoolWorker, workers_of
from mmdb.train.hops.orders import HopOrder
from mmdb.train.hops.turn import ordinal_of
from mmdb.train.values.seeds import candidate_seed, hop_seed, visit_order

WIDTH, HIDDEN, CLASSES, BATCH = 64, 1024, 10, 128  # a state of 0.9 MB with Adam
PARTITIONS, EPOCHS, ROUNDS = 2, 2, 3
TARGET_S = 2.3  # of one hop; the bar asks for 2 s or more
OVERHEAD_BAR = 1.05
STARTUP_BAR_MS = 5.0


class PlainLoop:
    """The same training on data in memory, with PyTorch alone."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
        self._optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self._loss = nn.CrossEntropyLoss()

    def visit(self, x: torch.Tensor, y: torch.Tensor, seed: int) -> float:
        """Train for one pass over x (n, WIDTH) and y (n,); return the seconds."""
        started = perf_counter()
        torch.manual_seed(seed)
        total = 0.0
        for index in torch.randperm(len(x)).split(BATCH):
            self._optimizer.zero_grad()
            loss = self._loss(self.model(x[index]), y[index])
            loss.backward()
            self._optimizer.step()
            total += loss.item() * len(index)
        return perf_counter() - started


def rows_per_hop(target_s: float) -> int:
    """Return how many rows make a hop of so many seconds on this machine."""
    loop, rows = PlainLoop(0), 100 * BATCH
    x, y = torch.rand(rows, WIDTH), torch.randint(CLASSES, (rows,))
    loop.visit(x, y, 0)
    seconds = min(loop.visit(x, y, k) for k in range(3))
    return int(target_s / seconds * rows)


def bench_hop(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
    """Measure every database in one run."""
    with one_thread():
        rows = rows_per_hop(share.time(TARGET_S))
        for db in databases:
            yield from _measure(db, rows, share.of(ROUNDS))


def _measure(db: Database, rows: int, rounds: int) -> Iterator[Figure]:
    engine = db.connection.engine
    with bench_names(db) as prefix:
        make_points(db, prefix, rows * PARTITIONS, WIDTH, CLASSES)
        db.create_dataset(prefix, f"SELECT * FROM {prefix}", partitions=PARTITIONS, validation=0.0)
        (worker,) = workers_of(db.connection, 1)
        worker.open()
        try:
            found = [_round(db, worker, f"{prefix}-{k}", prefix) for k in range(rounds)]
        finally:
            worker.close()
        timeline = db.connection.rows(load("bench_hops").timeline, prefix=f"{prefix}%")
    ratios = [hops / plain for hops, plain, _ in found]
    peer = "plain PyTorch loop on data in memory"
    yield at_most(f"{engine}: hops / plain loop", ratios, "x", OVERHEAD_BAR, peer)
    yield Figure(f"{engine}: a hop", found[0][0] / (PARTITIONS * EPOCHS), "s", bar=">= 2")
    same = all(equal for _, _, equal in found)
    yield is_so(f"{engine}: same weights as the plain loop", same)
    visits = [row for row in timeline if row["seen"]]
    reads = [max(row["read_s"] for row in visits)]
    yield at_most(f"{engine}: read seconds after the first visit", reads, "s", 0.0)
    startups = [row["startup_s"] * 1e3 for row in visits]
    yield at_most(f"{engine}: median hop start-up", [median(startups)], "ms", STARTUP_BAR_MS)


def _round(db: Database, worker: PoolWorker, name: str, dataset: str) -> tuple[float, float, bool]:
    """Return the hops' seconds, the plain loop's seconds, and whether the weights are equal."""
    db.create_run(
        name,
        dataset=dataset,
        architecture=f"mlp(hidden=[{HIDDEN}])",
        search={"space": {"batch_size": BATCH, "optimizer": "adam", "lr": 1e-3}},
        epochs=EPOCHS,
    )
    run = db.connection.rows(load("runs").find_run, name=name)[0]
    parts = db.connection.rows(load("hops").find_partitions, dataset_id=run["dataset_id"])
    data = {ordinal_of(part): (part, *_in_memory(db, part)) for part in parts}
    candidates = db.connection.rows(load("runs").find_candidates, run_id=run["run_id"])
    candidate_id = candidates[0]["candidate_id"]
    loop = PlainLoop(candidate_seed(0, 0))
    hops_s = plain_s = 0.0
    for epoch in range(EPOCHS):
        for ordinal in visit_order(0, 0, epoch, PARTITIONS):
            part, x, y = data[ordinal]
            plain_s += loop.visit(x, y, hop_seed(0, 0, epoch, ordinal))
            started = perf_counter()
            worker.do(HopOrder(part_id=part["part_id"], candidate_id=candidate_id, epoch=epoch))
            hops_s += perf_counter() - started
    return hops_s, plain_s, _equal(db, candidate_id, loop)


def _in_memory(db: Database, part: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = read_partition(db.connection, part["part_id"], part["content_hash"]).plain
    return torch.from_numpy(x).clone(), torch.from_numpy(y).clone()


def _equal(db: Database, candidate_id: int, loop: PlainLoop) -> bool:
    last = states.checkpoints(db.connection, candidate_id)[-1]
    state = states.read_checkpoint(
        db.connection, last["part_id"], candidate_id, last["state_hash"].hex()
    )
    assert state is not None
    found, expected = list(weights(state).values()), list(loop.model.state_dict().values())
    return all(any(torch.equal(a, b) for a in found) for b in expected)
