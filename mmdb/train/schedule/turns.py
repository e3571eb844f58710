"""Which part a candidate may visit next, said from its progress alone."""

from __future__ import annotations

from mmdb.train.schedule.workload import Progress, Workload
from mmdb.train.seeds import MERGE, VALIDATION, visit_order


def next_parts(load: Workload, candidate: int, progress: Progress) -> tuple[int, ...]:
    """Return the part ordinals of which any may be a candidate's next, the preferred one first."""
    order = visit_order(load.seed, candidate, progress.epoch, load.partitions)
    visited = set(progress.visited)
    left = tuple(p for p in order if p not in visited)
    if not left:
        return (MERGE,) if load.merges and MERGE not in visited else (VALIDATION,)
    if load.free or load.merges:
        return left
    return left[: load.group]


def next_part(
    load: Workload, candidate: int, progress: Progress, warm: frozenset[int] = frozenset()
) -> int:
    """Return the part ordinal that a candidate visits next; a free order prefers `warm` ones."""
    parts = next_parts(load, candidate, progress)
    return next((p for p in parts if p in warm), parts[0])
