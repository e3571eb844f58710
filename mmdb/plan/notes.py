"""The notes of a plan: what a reader should know beside its estimates, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING

from mmdb.messages import bytes_text, seconds_text
from mmdb.plan.cost import FEATURES

if TYPE_CHECKING:
    from mmdb.db.connection import Row
    from mmdb.plan.planned_run import Shared


def progress_notes(progress: Row) -> list[str]:
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


def outcome_notes(outcome: Row, progress: Row) -> list[str]:
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


_HOW = {
    "stored": "stored",
    "memory": "kept on each node",
    "recomputed": "computed for each hop",
    "streamed": "computed with each batch",
    "whole": "computed with each batch, with what trains",
}


def feature_notes(shared: Iterable[Shared], ordinals: Sequence[int]) -> list[str]:
    """Return a note for each of a run's features, the shallowest first, and what they come to.

    Args:
        ordinals: of the candidates for which it is not settled.
    """
    ordered = sorted(shared, key=lambda one: (one.use.network_hash, one.use.depth))
    found = [_note(one) for one in ordered]
    uses = [one.use for one in ordered]
    if len(uses) > 1 and sum(use.saved_s for use in uses) > 0:
        stored = sum(use.byte_count for use in uses if use.choice == "stored")
        told = f", and store {bytes_text(stored)}" if stored else ""
        saved = seconds_text(sum(use.saved_s for use in uses))
        found.append(f"{FEATURES}{len(uses)} layers save {saved} of the workers' time{told}.")
    if ordinals:
        found.append(_unsettled(ordinals))
    return found


def _note(one: Shared) -> str:
    from mmdb.train.values.feature_spec import STORAGES  # loads torch

    feature, use = one.feature, one.use
    pool = "" if feature.pool == "none" else f"{feature.pool}, "
    what = f"{use.layer} ({pool}{prod(feature.shape):,} numbers a row)"
    count = "1 candidate" if use.candidates == 1 else f"{use.candidates:,} candidates"
    is_shared = use.candidates > 1 and use.choice not in ("streamed", "whole")
    whom = f"are {'shared by' if is_shared else 'for'} {count}"
    told = [_HOW[use.choice]]
    if use.byte_count:
        told.append(bytes_text(use.byte_count))
    if feature.storage != STORAGES[0] and use.choice != "whole":
        told.append(_storage(feature.storage, feature.max_error))
    if use.saved_s:
        does = "saves" if use.saved_s > 0 else "costs"
        told.append(f"{does} {seconds_text(abs(use.saved_s))}")
    return f"{FEATURES}{what} {whom}: {', '.join(told)}. {use.reason}"


def _storage(storage: str, max_error: float | None) -> str:
    if max_error is None:
        return f"as {storage}"
    return f"as {storage} with errors up to {max_error:.2g} of the largest number"


def _unsettled(ordinals: Sequence[int]) -> str:
    they = f"candidate {ordinals[0]}" if len(ordinals) == 1 else f"{len(ordinals)} candidates"
    return (
        f"How features come to {they} is not settled: planned as if each computed its frozen "
        "layers with every batch."
    )
