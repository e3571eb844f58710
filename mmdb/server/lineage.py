"""`lineage`."""

from __future__ import annotations

from typing import Any

from mmdb.lineage import reading
from mmdb.server.backend import Backend, exposed


@exposed
def lineage(
    backend: Backend, entity: str, direction: str, hops: bool | None, max_depth: int | None
) -> list[dict[str, Any]]:
    """Return the edges up or down from an entity; see `mmdb.lineage.reading.lineage`."""
    steps = reading.lineage(backend.connection, entity, direction, hops=hops, max_depth=max_depth)
    return [step._asdict() for step in steps]
