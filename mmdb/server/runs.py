"""`register_factory`, `create_run` and `drop_run`."""

from __future__ import annotations

from typing import Any

from mmdb.arguments import check_whole
from mmdb.data.functions import find_factories
from mmdb.data.names import check_name
from mmdb.db.queries import load
from mmdb.errors import AlreadyExists
from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend, exposed


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
    architecture: str,
    search: str,
    epochs: int,
    strategy: str,
    warm_start: str,
    seed: int,
    options: str,
) -> list[dict[str, Any]]:
    """Create a run; see `mmdb.train.drive.run_creation.create_run`."""
    from mmdb.train.drive import run_creation  # imports torch

    run_id, candidates = run_creation.create_run(
        backend.connection,
        name,
        dataset,
        architecture,
        search=json_object(search, "search"),
        epochs=check_whole(epochs, "epochs", 1, 2**31 - 1),
        strategy=strategy,
        warm_start=warm_start,
        seed=check_whole(seed, "seed", -(2**63), 2**63 - 1),
        options=json_object(options, "options"),
    )
    return [{"run_id": run_id, "candidates": candidates}]


@exposed
def drop_run(backend: Backend, run: str) -> int:
    """See `mmdb.train.drive.run_requests.drop_run`."""
    from mmdb.train.drive import run_requests  # imports torch

    return run_requests.drop_run(backend.connection, run)
