"""`register_trainer`."""

from __future__ import annotations

from mmdb.data.names import check_name
from mmdb.db.queries import load
from mmdb.errors import AlreadyExists
from mmdb.server.backend import Backend, exposed


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
