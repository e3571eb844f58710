"""What of a run is no longer, or not yet, as its plan says: in words. Pure."""

from __future__ import annotations

from mmdb.db.connection import Row


def of_plan(progress: Row) -> list[str]:
    """Return what to say beside a plan of a run that is not untouched.

    Args:
        progress: how far the run is, as `find_progress` returns it.
    """
    notes = []
    total, left_out = progress["candidates"], progress["left_out"]
    if left_out:
        they = "has failed or was" if left_out == 1 else "have failed or were"
        notes.append(f"{left_out} of {total} candidates {they} stopped: not planned.")
    if progress["hops"]:
        notes.append(
            f"{progress['hops']} hops of the run are done already: the plan is of all of it, as if "
            "it began now."
        )
    return notes


def of_outcome(outcome: Row, progress: Row) -> list[str]:
    """Return what to say beside a plan and what its run took.

    Args:
        outcome: as `find_outcome` returns it.
    """
    if outcome["is_comparable"]:
        return []
    hops, done = outcome["hops"], outcome["actual_hops"]
    if hops == done:
        return ["The run was interrupted: what it took is from its first hop to its last."]
    left_out = progress["left_out"]
    why = f"{left_out} failed or were stopped" if left_out else "candidates or epochs differ"
    return [
        f"It was not trained as planned: {hops:,} hops were planned, {done:,} were done "
        f"({why}). The two do not compare."
    ]
