"""`mmdb bench train`: two workers against one, and the makespan against its lower bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_least, at_most
from mmdb.bench.workload import bench_names, make_points
from mmdb.db.connection import Row
from mmdb.db.queries import load

WIDTH, CLASSES, PARTITIONS, EPOCHS, ROUNDS = 64, 10, 4, 1, 3
SPEEDUP_BAR, MAKESPAN_BAR = 1.8, 1.05
#: Architecture, rows: hops of about a second.
WORKLOADS = {"mlp": ("mlp(hidden=[256])", 400_000), "cnn": ("cnn(width=8)", 48_000)}
SEARCH = {"space": {"lr": [0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005], "batch_size": 64}}


def bench_train(databases: list[Database]) -> list[Figure]:
    """Measure every database in one run."""
    return [
        figure
        for db in databases
        for name, (architecture, rows) in WORKLOADS.items()
        for figure in _measure(db, name, architecture, rows)
    ]


def _measure(db: Database, name: str, architecture: str, rows: int) -> Iterator[Figure]:
    with bench_names(db) as prefix:
        make_points(db, prefix, rows, WIDTH, CLASSES)
        features = ", ".join(f"c{k}" for k in range(WIDTH))
        array = f"ARRAY[{features}]" if db.connection.engine == "postgres" else f"[{features}]"
        query = f"SELECT {array} AS x, y FROM {prefix}"
        options = {"shape": [1, 8, 8]} if name == "cnn" else {}
        db.create_dataset(prefix, query, partitions=PARTITIONS, options=options)
        pairs = [_pair(db, f"{prefix}-{k}", prefix, architecture) for k in range(ROUNDS)]
    where = f"{db.connection.engine}, {name}"
    speedups = [makespan(one) / makespan(two) for one, two in pairs]
    yield at_least(f"{where}: 2 workers against 1", speedups, "x", SPEEDUP_BAR)
    ratios = [makespan(two) / lower_bound(two, 2) for _, two in pairs]
    yield at_most(f"{where}: makespan / lower bound", ratios, "x", MAKESPAN_BAR)


def _pair(db: Database, name: str, dataset: str, architecture: str) -> tuple[list[Row], list[Row]]:
    """Return the hops of one run with one worker and of the same run with two."""
    spans = {}
    for workers in (1, 2):
        run = f"{name}-{workers}"
        db.create_run(
            run, dataset=dataset, architecture=architecture, search=SEARCH, epochs=EPOCHS
        ).train(workers=workers)
        spans[workers] = db.connection.rows(load("bench_hops").timeline, prefix=run)
    return spans[1], spans[2]


def makespan(hops: Sequence[Row]) -> float:
    """Return the seconds from the first hop's start to the last one's end."""
    first, last = min(h["started_at"] for h in hops), max(h["finished_at"] for h in hops)
    seconds: float = (last - first).total_seconds()
    return seconds


def lower_bound(hops: Sequence[Row], workers: int) -> float:
    """Return the longest of: total hop time / workers, longest candidate, longest partition."""
    by_candidate: dict[int, float] = defaultdict(float)
    by_partition: dict[int, float] = defaultdict(float)
    for hop in hops:
        by_candidate[hop["candidate_id"]] += hop["total_s"]
        by_partition[hop["part_id"]] += hop["total_s"]
    total: float = sum(hop["total_s"] for hop in hops)
    return max(total / workers, *by_candidate.values(), *by_partition.values())
