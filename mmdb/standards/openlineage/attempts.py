"""A run that is interrupted and resumed is several runs of OpenLineage: each has one end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from mmdb.db.connection import Row
from mmdb.standards.openlineage.facets import Kind


@dataclass(slots=True)
class Attempt:
    """From one start of a run to its end, or to the next start where it was killed."""

    started_at: datetime
    workers: int | None
    ended_at: datetime | None = None
    end: Kind | None = None


def attempts(events: Iterable[Row], *, all_failed: bool) -> list[Attempt]:
    """Return the attempts of a run.

    Args:
        events: of `run_event`, in order of time.
        all_failed: whether none of its candidates is left.
    """
    found: list[Attempt] = []
    for row in events:
        if row["event"] == "started":
            if found and found[-1].end is None:
                found[-1].end, found[-1].ended_at = "ABORT", row["happened_at"]
            found.append(Attempt(row["happened_at"], row["workers"]))
        elif found and found[-1].end is None:
            found[-1].end = "COMPLETE" if row["event"] == "finished" else "ABORT"
            found[-1].ended_at = row["happened_at"]
    if all_failed and found and found[-1].end == "COMPLETE":
        found[-1].end = "FAIL"
    return found


def attempt_at(found: Sequence[Attempt], time: datetime) -> int:
    """Return which attempt something that began at `time` belongs to."""
    return max(0, bisect_right([a.started_at for a in found], time) - 1)
