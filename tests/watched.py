"""Runs for watches to follow."""

from __future__ import annotations

from mmdb.train.watch.progress import WatchedRun


def watched(
    run: str,
    *,
    strategy: str = "mop",
    metric: str | None = None,
    maximize: bool = True,
    epochs: int = 1,
    visits: int = 1,
) -> WatchedRun:
    """Return a run that began at 0."""
    return WatchedRun(run, strategy, metric, maximize, epochs, visits, began_at=0.0)
