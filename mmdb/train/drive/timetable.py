"""When a schedule is due: due times, those that were missed, and tries again. Pure; in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

#: Seconds until what failed for the first time is tried again; each further pause is twice as long.
FIRST_PAUSE_S = 10.0
#: Two moments that are no further apart are one: numbers of seconds since 1970 are no finer.
_SAME_S = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """How the last run of a schedule stands."""

    due_s: float
    outcome: Literal["done", "failed"] | None  # None: it is under way, or its worker died
    failures: int  # tries that failed in a row, up to this one
    retry_s: float  # from when on it is tried again, unless it is done


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    """A run that may begin now."""

    due_s: float
    failures: int  # as in LastRun, before this one
    retry_s: float  # from when on another worker takes it over, should this one die


def next_run(starts_s: float, every_s: float, last: LastRun | None, now_s: float) -> NextRun | None:
    """Return what is to run now: the latest due time, once, however many were missed.

    What failed is tried again after a pause. A run whose worker died is taken over at once for the
    first time; then it pauses as if it had failed, for it may be what the worker died of.
    """
    if now_s < starts_s:
        return None
    due_s = starts_s + math.floor((now_s - starts_s) / every_s) * every_s
    if last is None:
        return NextRun(due_s=due_s, failures=0, retry_s=now_s)
    if last.outcome == "done":
        is_new = due_s > last.due_s + _SAME_S
        return NextRun(due_s=due_s, failures=0, retry_s=now_s) if is_new else None
    if now_s < last.retry_s:
        return None
    is_lost = last.outcome is None
    failures = last.failures + is_lost
    pause = pause_s(failures, every_s) if is_lost else 0.0
    return NextRun(due_s=max(due_s, last.due_s), failures=failures, retry_s=now_s + pause)


def pause_s(failures: int, every_s: float) -> float:
    """Return the seconds until a try after so many failures in a row, at most `every_s`.

    >>> [pause_s(failures, 60.0) for failures in (1, 2, 3, 4, 100_000)]
    [10.0, 20.0, 40.0, 60.0, 60.0]
    """
    return min(every_s, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 60))
