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


def conserving_bound(hops: Sequence[Row], decisions: Sequence[Row], workers: int) -> float:
    """Return the longest of: total hop time / workers, longest chain of epochs.

    A chain goes through a candidate's epochs, and from a report to the epochs of the candidate
    whose goal was raised upon it: those could not have begun sooner.

    Args:
        decisions: rows of `find_decisions`, in order.
    """
    total: float = sum(hop["total_s"] for hop in hops)
    return max(total / workers, *_ends(hops, decisions).values())


def _ends(hops: Sequence[Row], decisions: Sequence[Row]) -> dict[tuple[int, int], float]:
    """Return when each (candidate, epochs done) is reached with workers without number."""
    seconds: dict[tuple[int, int], float] = defaultdict(float)
    for hop in hops:
        seconds[hop["candidate"], hop["epoch"] + 1] += hop["total_s"]
    waits_for = _promotions(decisions)
    ends: dict[tuple[int, int], float] = {}

    def end(candidate: int, epoch: int) -> float:
        if epoch == 0:
            return 0.0
        key = (candidate, epoch)
        if key not in ends:
            begin = end(candidate, epoch - 1)
            if key in waits_for:
                begin = max(begin, end(*waits_for[key]))
            ends[key] = begin + seconds[key]
        return ends[key]

    for candidate, epoch in sorted(seconds, key=lambda key: key[1]):  # no deep recursion
        end(candidate, epoch)
    return ends


def _promotions(decisions: Sequence[Row]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the report that each raised goal followed upon: both as (candidate, epochs done).

    The goal's key is the first epoch beyond the goal before.
    """
    found: dict[tuple[int, int], tuple[int, int]] = {}
    goals: dict[int, int] = {}
    report: tuple[int, int] | None = None
    started = 0
    for row in decisions:
        if row["kind"] == "report":
            report = (row["candidate"], row["epoch"])
        elif row["kind"] == "want":
            report = None
        elif row["kind"] == "start":
            goals[started] = row["epoch"]
            started += 1
        elif row["kind"] == "goal":
            if report is not None:
                found[row["candidate"], goals[row["candidate"]] + 1] = report
            goals[row["candidate"]] = row["epoch"]
    return found


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
