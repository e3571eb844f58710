"""The work-conserving bound of a search. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mmdb.db.connection import Row


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
