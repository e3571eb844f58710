"""Watching a training: the driver tells a `Watch`, which makes snapshots for whoever shows them."""

from mmdb.train.watch.notice import Notices, duration_text, notice, number_text
from mmdb.train.watch.snapshot import CandidateView, RunView, Segment, Snapshot, WorkerView
from mmdb.train.watch.watch import Watch

__all__ = [
    "CandidateView",
    "Notices",
    "RunView",
    "Segment",
    "Snapshot",
    "Watch",
    "WorkerView",
    "duration_text",
    "notice",
    "number_text",
]
