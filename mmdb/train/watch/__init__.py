"""Watching a training: the driver tells a `Watch`, which makes snapshots for whoever shows them."""

from mmdb.train.watch.snapshot import (
    CandidateView,
    Notices,
    RunView,
    Snapshot,
    WorkerView,
    WorkSegment,
    duration_text,
    notice,
    number_text,
)
from mmdb.train.watch.watch import Watch

__all__ = [
    "CandidateView",
    "Notices",
    "RunView",
    "Snapshot",
    "Watch",
    "WorkSegment",
    "WorkerView",
    "duration_text",
    "notice",
    "number_text",
]
