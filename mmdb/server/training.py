"""`train`: the driver, run from SQL."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mmdb.server.backend import Backend, exposed
from mmdb.train import driver


@exposed
def train(backend: Backend, run: str, workers: int | None) -> dict[str, Any]:
    """Train a run to its end and return its summary; see `mmdb.train.driver.train`."""
    with backend.driving() as (connection, on_wait):
        summary = driver.train(connection, run, workers=workers, on_wait=on_wait)
    row = asdict(summary)
    version = row.pop("version")
    return row | {"model": f"{summary.model}@{version}"}
