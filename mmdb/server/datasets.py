"""`create_dataset`, `drop_dataset` and `drop_features`."""

from __future__ import annotations

from typing import Any

from mmdb.data import registration
from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend, exposed
from mmdb.store.stored_features import drop_features as drop


@exposed
def create_dataset(
    backend: Backend,
    name: str,
    query: str,
    label: str,
    partitions: int,
    validation: float,
    seed: int,
    options: str,
) -> list[dict[str, Any]]:
    """Create a dataset and return its row; see `mmdb.data.registration.create_dataset`."""
    made = registration.create_dataset(
        backend.connection,
        name,
        query,
        label=label,
        partitions=partitions,
        validation=validation,
        seed=seed,
        options=json_object(options, "options"),
    )
    return [
        {
            "dataset_id": made.dataset_id,
            "name": made.name,
            "rows": made.rows,
            "partitions": made.partitions,
            "bytes": made.bytes,
            "content_hash": made.content_hash.hex(),
        }
    ]


@exposed
def drop_dataset(backend: Backend, name: str, force: bool) -> int:
    """Drop a dataset's blocks; return the bytes freed."""
    return registration.drop_dataset(backend.connection, name, force=force)


@exposed
def drop_features(backend: Backend, dataset: str, layer: str | None) -> int:
    """Drop what is stored of a dataset's features; return the bytes freed."""
    return drop(backend.connection, dataset, layer)
