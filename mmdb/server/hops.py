"""`train_hop` and `warm_up`."""

from __future__ import annotations

from typing import Any

from mmdb.server.backend import Backend, exposed


@exposed
def train_hop(
    backend: Backend, part_id: int, candidate_id: int, epoch: int | None, publish: bool
) -> list[dict[str, Any]]:
    """Do one hop and return its row; see `Dispatcher.run_hop`."""
    row = backend.dispatcher.run_hop(part_id, candidate_id, epoch, publish=publish)
    row["rows"] = row["row_count"]
    return [row | {name: row[name].hex() for name in ("state_in", "state_out")}]


@exposed
def warm_up(backend: Backend) -> str:
    """Load torch and step once; return the environment that hops will record."""
    return backend.warm_up()
