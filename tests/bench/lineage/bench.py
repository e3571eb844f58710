"""Experiment `lineage`: how long a walk takes over a graph of 100,000 edges.

A time is that of `lineage` as SQL, without the way of its rows to the client. It grows with the
rows of the answer, which are said: a function in Python gives back 200 to 400 of them in a
millisecond. So there is no bar for the one column that everything came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most, seconds_of
from mmdb.bench.workload import BenchShare, bench_names
from mmdb.db.queries import Queries

_Q = Queries(Path(__file__).with_name("bench_lineage.sql"))

DATASETS, TABLES, COLUMNS = 2_500, 100, 20
RUNS, EPOCHS, LONG_EPOCHS = 600, 3, 200
PARTITIONS = 5  # the last one for validation
FAMILIES, VERSIONS, CHAIN = 500, 18, 1_000
CALLS = 20
BAR_MS = 50.0

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """How large a graph is; the defaults are those of the bars."""

    datasets: int = DATASETS
    runs: int = RUNS  # each of another dataset
    long_epochs: int = LONG_EPOCHS  # of the last run
    families: int = FAMILIES  # each of another run
    chain: int = CHAIN

    def scaled(self, share: BenchShare) -> Graph:
        """Return the same in small; what is asked for is there."""
        sizes = {name: share.of(full, 10) for name, full in asdict(self).items()}
        return Graph(**sizes)


def bench_lineage(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
    """Fill each database with a graph, walk over it and take it away again."""
    for db in databases:
        yield from _measure(db, Graph().scaled(share), share.of(CALLS))


def _measure(db: Database, graph: Graph, calls: int) -> Iterator[Figure]:
    engine = db.connection.engine
    with bench_names(db) as prefix:
        _fill(db, prefix, graph)
        edges = sum(int(row["edges"]) for row in db.connection.rows(_Q.count_edges))
        yield Figure(name=f"{engine}: edges of the graph", value=edges, unit="edges")
        for name, entity, direction, has_bar in _questions(prefix, graph):
            call = f"SELECT count(*) AS rows FROM mmdb.lineage('{entity}', '{direction}')"
            rows = db.sql(call)[0]["rows"]
            runs = [1e3 * seconds_of(partial(db.sql, call)) for _ in range(calls)]
            name = f"{engine}: {name}, {rows:,} rows, median of {calls}"
            if has_bar:
                yield at_most(name, [median(runs)], "ms", BAR_MS)
            else:
                yield Figure(name=name, value=median(runs), unit="ms", runs=runs)


def _questions(prefix: str, graph: Graph) -> Iterator[tuple[str, str, str, bool]]:
    """Yield what is asked, the entity, the direction, and whether there is a bar."""
    users = max(1, graph.datasets // TABLES)
    yield f"down from a column of {users} datasets", f"column:public.{prefix}_t7.c3", "down", True
    yield "down from a table of 20 columns", f"table:public.{prefix}_t7", "down", True
    yield "down from the column of all datasets", f"column:public.{prefix}_all.c", "down", False
    yield f"down a chain of {graph.chain:,} updates", f"model:{prefix}_chain@1", "down", True
    yield (
        f"up a chain of {graph.chain:,} updates",
        f"model:{prefix}_chain@{graph.chain}",
        "up",
        True,
    )
    yield "up from a model of 18 updates", f"model:{prefix}_f7@{VERSIONS}", "up", True
    yield f"up from {graph.long_epochs} epochs", f"model:{prefix}_long@1", "up", True


def _fill(db: Database, prefix: str, graph: Graph) -> None:
    """Write datasets, runs with hops, and families of models: about 100,000 edges."""
    connection, mine = db.connection, f"{prefix}%"
    with connection.transaction():
        connection.append(
            _Q.add_dataset, (_dataset(f"{prefix}_d{k}") for k in range(graph.datasets))
        )
        datasets = [int(row["id"]) for row in connection.rows(_Q.find_datasets, prefix=mine)]
        connection.append(_Q.add_source, _sources(prefix, datasets))
        connection.append(_Q.add_partition, _partitions(datasets))
        connection.append(_Q.add_run, _runs(prefix, datasets[: graph.runs]))
        runs = connection.rows(_Q.find_runs, prefix=mine)
        connection.append(_Q.add_candidate, ((int(row["id"]), 0, "{}", 0) for row in runs))
        parts: dict[int, list[Any]] = {}
        for row in connection.rows(_Q.find_partitions, prefix=mine):
            parts.setdefault(int(row["dataset_id"]), []).append(row)
        found = connection.rows(_Q.find_candidates, prefix=mine)
        candidates = [(int(row["id"]), int(row["dataset_id"])) for row in found]
        connection.append(_Q.add_hop, _hops(candidates, parts, graph.long_epochs))
        connection.append(_Q.add_model, _models(prefix, candidates, graph))
        connection.run(_Q.chain_models, prefix=mine)
    if connection.engine == "postgres":
        for table in ("dataset", "dataset_source", "partition", "run", "candidate", "hop", "model"):
            db.sql(f"VACUUM ANALYZE mmdb.{table}")


def _dataset(name: str) -> tuple[Any, ...]:
    return (name, "SELECT 1", "y", "regression", 0, 4, 0.2, 1, 1, b"c", [COLUMNS], "{}")


def _sources(prefix: str, datasets: list[int]) -> Iterator[tuple[Any, ...]]:
    """Yield the columns of a table for each dataset, one of them that of all."""
    for number, dataset in enumerate(datasets):
        table = f"{prefix}_t{number % TABLES}"
        for k in range(COLUMNS - 1):
            yield dataset, k, table, f"c{k}", f"c{k}", "public", "column"
        yield dataset, COLUMNS - 1, f"{prefix}_all", "c", "y", "public", "column"


def _partitions(datasets: list[int]) -> Iterator[tuple[Any, ...]]:
    for dataset in datasets:
        for k in range(PARTITIONS):
            yield dataset, k, "train" if k < PARTITIONS - 1 else "validation", 1, 1, b"p"


def _runs(prefix: str, datasets: list[int]) -> Iterator[tuple[Any, ...]]:
    for k, dataset in enumerate(datasets):
        yield f"{prefix}_r{k}", dataset, "{}", "{}", EPOCHS, "mop", "off", 0, "{}"


def _hops(
    candidates: list[tuple[int, int]], parts: dict[int, list[Any]], long_epochs: int
) -> Iterator[tuple[Any, ...]]:
    """Yield the hops of each candidate, of the last one for many epochs."""
    for candidate, dataset in candidates:
        ordinals = count()
        for epoch in range(long_epochs if candidate == candidates[-1][0] else EPOCHS):
            for part in parts[dataset]:
                place = int(part["part_id"]), candidate, epoch, next(ordinals)
                objective = 0.5 if part["role"] == "validation" else None
                measured = 0, 1, 1, 0.5, "{}", 0.0, 0.0, 1.0, 0.0, 1.0, b"i", b"o", 1
                yield *place, *measured, "w", "n", "cpu", "e", _NOW, _NOW, objective


def _models(
    prefix: str, candidates: list[tuple[int, int]], graph: Graph
) -> Iterator[tuple[Any, ...]]:
    """Yield families that each begin with a candidate, a longer one, and the best of the last."""

    def model(name: str, version: int, *origin: int | None) -> tuple[Any, ...]:
        approach = "update" if version > 1 else "snapshot"
        return (name, version, approach, b"w", 1, 1, *origin, "{}", "{}", 1, 0.0)

    for family in range(graph.families):
        candidate, dataset = candidates[family]
        yield model(f"{prefix}_f{family}", 1, dataset, candidate, EPOCHS - 1)
        for version in range(2, VERSIONS + 1):
            yield model(f"{prefix}_f{family}", version, None, None, None)
    for version in range(1, graph.chain + 1):
        yield model(f"{prefix}_chain", version, None, None, None)
    candidate, dataset = candidates[-1]
    yield model(f"{prefix}_long", 1, dataset, candidate, graph.long_epochs - 1)
