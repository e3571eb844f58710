"""`predict_into` on a Citus cluster: how evenly its nodes share the work, and what the rest costs.

    python -m tests.bench.citus.predict --nodes 4 --rows 1000000

All servers are on this machine. One PostgreSQL predicts the same rows, for its predictions and its
time. A first call in a session loads torch on each node; the calls after it are measured as well.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import psycopg
import torch
from torch import nn

import mmdb
from mmdb.api import Database
from mmdb.bench.command import show
from mmdb.bench.figures import Figure, report, write_json
from mmdb.db.connection import Row
from mmdb.db.install import install
from tests.bench.citus.meter import cpu_s
from tests.citus_cluster import CitusCluster, has_citus
from tests.cluster import Cluster

COLUMNS = [f"c{n}" for n in range(10)]
QUERY = f"SELECT id, {', '.join(COLUMNS)} FROM points"
SPREAD_BAR, COORDINATOR_BAR = 3.0, 0.05
#: What a target holds: rows, each class's, and the sum of their probabilities.
SUMS = "SELECT prediction, count(*) AS n, sum(probability) AS p FROM {} GROUP BY 1 ORDER BY 1"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call took: seconds by the clock, and of each server's processors."""

    seconds: float
    servers_s: list[float]

    @classmethod
    def of(cls, call: Callable[[], object], servers: list[Cluster]) -> Cost:
        before, started = [cpu_s(server) for server in servers], time.monotonic()
        call()
        seconds = time.monotonic() - started
        return cls(seconds, [cpu_s(s) - b for s, b in zip(servers, before, strict=True)])


def fill(db: Database, rows: int) -> None:
    """Make the table and the model, the same on every server."""
    numbers = ", ".join(
        f"(i * {7919 + 2 * n} % 1000) / 1000.0::float8 AS {name}" for n, name in enumerate(COLUMNS)
    )
    db.sql(
        f"CREATE TABLE points AS SELECT i AS id, {numbers}, i % 3 AS y"
        f" FROM generate_series(1, {rows}::bigint) AS g (i)"
    )
    learned = f"SELECT {', '.join(COLUMNS)}, y FROM points WHERE id <= 1000"
    db.create_dataset("points", learned, partitions=1)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(len(COLUMNS), 32), nn.ReLU(), nn.Linear(32, 3))
    db.save("mlp", module, dataset="points")


def measure(nodes: int, rows: int) -> Iterator[Figure]:
    """Yield the figures of a cluster with so many nodes."""
    with Cluster() as server, CitusCluster(nodes) as cluster:
        single, spread = server.create_database("bench"), cluster.create_database("bench")
        with psycopg.connect(single) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
        for url in (single, spread):
            install(url)
            with mmdb.connect(url) as db:
                fill(db, rows)
        with mmdb.connect(spread) as db, mmdb.connect(single) as one:
            db.sql("SELECT create_distributed_table('points', 'id')")
            for number, name in enumerate(("first call", "second call")):
                target = f"out_{number}"
                alone = Cost.of(partial(one.predict_into, "mlp", QUERY, target), [server])
                cost = Cost.of(partial(db.predict_into, "mlp", QUERY, target), cluster.servers)
                _say(name, cost, alone)
                yield from figures(f"{nodes} nodes, {rows:,} rows, {name}", cost, alone)
                yield same(name, db.sql(SUMS.format(target)), one.sql(SUMS.format(target)))


def figures(where: str, cost: Cost, alone: Cost) -> Iterator[Figure]:
    """Yield how the processors shared a call."""
    coordinator, *nodes = cost.servers_s
    value = sum(nodes) / max(nodes)
    bar = f">= {SPREAD_BAR:g}"
    yield Figure(
        name=f"{where}: nodes' processor time / the busiest one's",
        value=value,
        unit="x",
        bar=bar,
        holds=value >= SPREAD_BAR,
    )
    value, bar = coordinator / sum(cost.servers_s), f"<= {COORDINATOR_BAR:g}"
    yield Figure(
        name=f"{where}: coordinator's share of processor time",
        value=value,
        unit="x",
        bar=bar,
        holds=value <= COORDINATOR_BAR,
    )
    value = sum(cost.servers_s) / sum(alone.servers_s)
    yield Figure(name=f"{where}: processor time / one PostgreSQL's", value=value, unit="x")


def same(name: str, ours: list[Row], theirs: list[Row]) -> Figure:
    """Return how far the predictions are from one PostgreSQL's; their last bits may differ."""
    pairs = list(zip(ours, theirs, strict=True))
    moved = sum(abs(a["n"] - b["n"]) for a, b in pairs)
    return Figure(
        name=f"{name}: predictions that one PostgreSQL has not",
        value=moved,
        unit="rows",
        bar="0",
        holds=moved == 0 and all(abs(a["p"] - b["p"]) < 1e-3 for a, b in pairs),
    )


def _say(name: str, cost: Cost, alone: Cost) -> None:
    each = ", ".join(f"{seconds:.2f}" for seconds in cost.servers_s)
    print(
        f"{name}: {cost.seconds:.2f} s; processors: coordinator, then nodes: {each} s; "
        f"one PostgreSQL: {alone.seconds:.2f} s, processors {sum(alone.servers_s):.2f} s",
        file=sys.stderr,
        flush=True,
    )


def main() -> int:
    """Measure; return 1 if a bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    if not has_citus():
        parser.error("this machine has no Citus")
    found = list(measure(given.nodes, given.rows))
    show("predict_into on Citus beside one PostgreSQL", found)
    if given.json:
        write_json(given.json, report("citus-predict", found))
    return 0 if all(figure.holds is not False for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
