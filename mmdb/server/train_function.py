"""`train`: the driver, run from SQL, or the worker processes that do it in its place."""

from __future__ import annotations

from dataclasses import asdict
from time import perf_counter
from typing import TYPE_CHECKING, Any

from mmdb.data.names import found_run
from mmdb.db.owners import require_own
from mmdb.db.queries import load
from mmdb.errors import NoWorkerLogin
from mmdb.server.backend import Backend, exposed
from mmdb.train.values.runtime import uncollected
from mmdb.train.watch import Notices, Snapshot, Watch

if TYPE_CHECKING:
    from mmdb.train.drive.summary import Summary


@exposed
def train(backend: Backend, run: str, workers: int | None) -> dict[str, Any]:
    """Train a run to its end and return its summary; see `mmdb.train.drive.train_run.train`.

    Where the owner has set no login for sessions of the procedure's own, worker processes that
    serve the database train it.
    """
    # Said to the caller: the login of the workers sees the runs of all teams.
    found_run(backend.connection.rows(load("runs").find_run, name=run), run)
    require_own(backend.connection, run)
    try:
        summary = _drive(backend, run, workers)
    except NoWorkerLogin:
        from mmdb.train.drive.slot_registry import live_workers  # loads torch

        if not live_workers(backend.connection):
            raise
        summary = _submit(backend, run)
    row = asdict(summary)
    version = row.pop("version")
    return row | {"model": f"{summary.model}@{version}"}


def _drive(backend: Backend, run: str, workers: int | None) -> Summary:
    with uncollected():
        from mmdb.plan.auto_strategy import decider  # loads torch
        from mmdb.train.drive import train_run
    notices = Notices()

    def show(snapshot: Snapshot) -> None:
        for line in notices.lines(snapshot):
            backend.notice(line)

    with backend.driving() as (connection, on_wait):
        return train_run.train(
            connection,
            run,
            workers=workers,
            watch=Watch(show),
            on_wait=on_wait,
            decide=decider(say=backend.notice, on_wait=on_wait),
        )


def _submit(backend: Backend, run: str) -> Summary:
    with uncollected():
        from mmdb.train.drive.run_requests import submit, wait_for
        from mmdb.train.drive.summary import summarise  # loads torch
    started, connection = perf_counter(), backend.connection
    backend.pause()  # inside a transaction block nobody would see the request
    before = submit(connection, run)["hops_done"]
    backend.notice(f"Run {run!r} is handed to the worker processes.")
    wait_for(connection, run, backend.pause)
    (progress,) = connection.rows(load("service").find_requested_run, run=run)
    return summarise(connection, run, progress["hops_done"] - before, perf_counter() - started)
