"""SQL's functions for runs: what they are made with, training, stopping and dropping them."""

from __future__ import annotations

import platform
from dataclasses import asdict
from time import perf_counter
from typing import TYPE_CHECKING, Any

from mmdb.arguments import check_whole
from mmdb.data import functions
from mmdb.data.functions import find_factories
from mmdb.data.names import check_name, found_run
from mmdb.db.owners import require_own
from mmdb.db.queries import load
from mmdb.errors import AlreadyExists, NoWorkerLogin
from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend, exposed, passed_on
from mmdb.train.drive import run_requests
from mmdb.train.ledger.shards import shards_of
from mmdb.train.values.runtime import uncollected
from mmdb.train.watch import Notices, Snapshot, Watch

if TYPE_CHECKING:
    from mmdb.train.replay.summary import Summary


@exposed
def register_factory(backend: Backend, name: str, target: str) -> str:
    """Put a callable on the allow-list; the engine's rights say who may."""
    from mmdb.graph.spec.build import resolve  # imports torch

    check_name(name)
    if name in find_factories(backend.connection):
        raise AlreadyExists(f"A factory named {name!r} is registered.", hint="Choose another name.")
    with backend.connection.transaction():  # what the caller may not register is not imported
        backend.connection.run(load("catalog").add_factory, name=name, target=target)
        resolve(target)
    return name


@exposed
def create_run(
    backend: Backend,
    name: str,
    dataset: str,
    architecture: str | None,
    search: str,
    epochs: int | None,
    strategy: str,
    warm_start: str,
    seed: int,
    options: str,
    budget: str | None = None,
    per: str | None = None,
) -> list[dict[str, Any]]:
    """Create a run; see `mmdb.train.drive.run_creation.create_run`."""
    from mmdb.train.drive import run_creation  # imports torch

    run_id, candidates = run_creation.create_run(
        backend.connection,
        name,
        dataset,
        architecture,
        search=json_object(search, "search"),
        epochs=None if epochs is None else check_whole(epochs, "epochs", 1, 2**31 - 1),
        strategy=strategy,
        warm_start=warm_start,
        seed=check_whole(seed, "seed", -(2**63), 2**63 - 1),
        options=json_object(options, "options"),
        budget=budget,
        per=per,
        say=backend.notice,
    )
    return [{"run_id": run_id, "candidates": candidates}]


drop_run = passed_on("mmdb.train.drive.run_requests.drop_run")
submit = passed_on("mmdb.train.drive.run_requests.submit")
cancel_run = passed_on("mmdb.train.drive.run_requests.cancel_run")
resume_run = passed_on("mmdb.train.drive.run_requests.resume_run")
schedule = passed_on("mmdb.train.drive.schedules.schedule")
unschedule = passed_on("mmdb.train.drive.schedules.unschedule")


@exposed
def stop_candidate(backend: Backend, candidate_id: int) -> int:
    """Ask for a candidate's end; return the request's id."""
    return run_requests.ask(backend.connection, candidate_id, "stop")


@exposed
def resume_candidate(backend: Backend, candidate_id: int) -> int:
    """Ask for a candidate's going on; return the request's id."""
    return run_requests.ask(backend.connection, candidate_id, "resume")


@exposed
def clone_candidate(backend: Backend, candidate_id: int, config: str) -> int:
    """Clone a candidate and return the clone's id; see `candidate_creation.clone_candidate`."""
    from mmdb.train.drive import candidate_creation  # imports torch

    changes = json_object(config, "config")
    return candidate_creation.clone_candidate(backend.connection, candidate_id, changes)[0]


@exposed
def node(backend: Backend) -> str:
    """Return the machine that this session computes on."""
    return platform.node()


@exposed
def register_function(backend: Backend, name: str, target: str, kind: str) -> str:
    """Put a function on the allow-list; see `mmdb.data.functions.register_function`."""
    functions.register_function(backend.connection, name, target, kind)
    return name


@exposed
def register_trainer(backend: Backend, name: str, target: str) -> str:
    """Put a training function on the allow-list; the engine's rights say who may."""
    from mmdb.train.replay.trainer import resolve_trainer  # imports torch

    check_name(name)
    queries = load("recipes")
    if backend.connection.rows(queries.find_trainer, name=name):
        raise AlreadyExists(f"A trainer named {name!r} is registered.", hint="Choose another name.")
    with backend.connection.transaction():  # what the caller may not register is not imported
        backend.connection.run(queries.add_trainer, name=name, target=target)
        resolve_trainer(target)
    return name


@exposed
def train(backend: Backend, run: str, workers: int | None) -> dict[str, Any]:
    """Train a run to its end and return its summary; see `mmdb.train.drive.train_run.train`.

    Where the owner has set no login for sessions of the procedure's own, worker processes that
    serve the database train it.
    """
    summary = train_to_its_end(backend, run, workers)
    row = asdict(summary)
    version = row.pop("version")
    del row["members"]
    return row | {"model": f"{summary.model}@{version}"}


def train_to_its_end(backend: Backend, run: str, workers: int | None) -> Summary:
    """Train a run, by sessions of its own or by worker processes; return what it came to."""
    # Said to the caller: the login of the workers sees the runs of all teams.
    found_run(backend.connection.rows(load("runs").find_run, name=run), run)
    require_own(backend.connection, run)
    try:
        return _drive(backend, run, workers)
    except NoWorkerLogin:
        from mmdb.train.drive.slot_registry import live_workers  # loads torch

        if not live_workers(backend.connection):
            raise
        return _submit(backend, run)


def _drive(backend: Backend, run: str, workers: int | None) -> Summary:
    with uncollected():
        from mmdb.plan.auto_strategy import decider  # loads torch
        from mmdb.train.drive import train_run
        from mmdb.train.drive.verdict import verdict
    notices = Notices()

    def show(snapshot: Snapshot) -> None:
        for line in notices.lines(snapshot):
            backend.notice(line)

    with backend.driving() as (connection, on_wait):
        summary = train_run.train(
            connection,
            run,
            workers=workers,
            watch=Watch(show),
            on_wait=on_wait,
            decide=decider(say=backend.notice, on_wait=on_wait),
        )
        said = verdict(connection, run)
    for text in (said, summary.mean_text):
        if text is not None:
            backend.notice(text)
    return summary


def _submit(backend: Backend, run: str) -> Summary:
    with uncollected():
        from mmdb.train.drive.run_requests import submit, wait_for
        from mmdb.train.replay.summary import summarise  # loads torch
    started, connection = perf_counter(), backend.connection
    backend.pause()  # inside a transaction block nobody would see the request
    before = submit(connection, run)["hops_done"]
    backend.notice(f"Run {run!r} is handed to the worker processes.")
    wait_for(connection, run, backend.pause)
    find = load("service").find_requested_run
    rows = [connection.rows(find, run=one)[0] for one in shards_of(connection, run) or [run]]
    done = sum(row["hops_done"] for row in rows) - before
    return summarise(connection, run, done, perf_counter() - started)
