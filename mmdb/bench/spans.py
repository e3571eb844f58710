"""What a run's hops say about its schedule: makespan, lower bounds, gaps. Pure.

Hops are rows of the named query `timeline` of bench_hops.sql.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import pairwise

from mmdb.db.connection import Row


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
