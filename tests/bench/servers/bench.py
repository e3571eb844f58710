"""Experiment `servers`: sessions that last, poolers, standbys that take over."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mmdb.api import Database
from mmdb.bench.figures import Figure
from mmdb.bench.load import Load, measure
from mmdb.bench.workload import BenchShare, bench_names
from tests.bench.servers.failover import bench_failover
from tests.bench.servers.soak import bench_soak
from tests.network.pooler import PROGRAM, pooled

PARTS = ("soak", "pooler", "failover")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersShare(BenchShare):
    """How much is measured; see `PARTS`."""

    only: Sequence[str] = ()


def bench_servers(databases: list[Database], share: ServersShare) -> Iterator[Figure]:
    """Measure each part on each database."""
    if "failover" in (share.only or PARTS):
        yield from bench_failover(share)  # which has servers of its own
    for db in databases:
        if "soak" in (share.only or PARTS):
            with bench_names(db) as prefix:
                yield from bench_soak(db, share, prefix, db.connection.engine)
        if "pooler" in (share.only or PARTS) and db.connection.engine == "postgres":
            yield from _pooler(db, share)


def _pooler(db: Database, share: ServersShare) -> Iterator[Figure]:
    """Let clients predict through a PgBouncer in transaction mode while a run is trained."""
    if not PROGRAM:
        yield Figure("pooler: not measured, there is no program `pgbouncer`", math.nan, "")
        return
    with pooled(db.connection.url, size=4) as url:
        for one in measure(db, Load(share=share.share, connects=0, through=url)):
            yield replace(one, name=f"through a pooler: {one.name}")
