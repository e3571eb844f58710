"""`train`: the driver, run from SQL."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mmdb.server.backend import Backend, exposed
from mmdb.train import training
from mmdb.train.watch import Notices, Snapshot, Watch


@exposed
def train(backend: Backend, run: str, workers: int | None) -> dict[str, Any]:
    """Train a run to its end and return its summary; see `mmdb.train.training.train`."""
    notices = Notices()

    def show(snapshot: Snapshot) -> None:
        for line in notices.lines(snapshot):
            backend.notice(line)

    with backend.driving() as (connection, on_wait):
        watch = Watch(show)
        summary = training.train(connection, run, workers=workers, watch=watch, on_wait=on_wait)
    row = asdict(summary)
    version = row.pop("version")
    return row | {"model": f"{summary.model}@{version}"}
