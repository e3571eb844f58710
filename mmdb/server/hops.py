"""`train_hop`, `train_group`, `merge_epoch`, `begin_candidate` and `warm_up`."""

from __future__ import annotations

from typing import Any

from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend, exposed
from mmdb.train.parallel.group import group_of
from mmdb.train.workers.orders import answer


@exposed
def train_hop(
    backend: Backend, part_id: int, candidate_id: int, epoch: int | None, publish: bool
) -> list[dict[str, Any]]:
    """Do one hop and return its row; see `Dispatcher.run_hop`."""
    row = backend.dispatcher.run_hop(part_id, candidate_id, epoch, publish=publish)
    return [{**answer(row), "rows": row["row_count"]}]


@exposed
def train_group(
    backend: Backend, part_ids: list[int], candidate_id: int, epoch: int, member: str
) -> list[dict[str, Any]]:
    """Do one member's part of a group's round; the first rank returns the rows of all."""
    group = group_of(json_object(member, "member"))
    rows = backend.dispatcher.run_group(part_ids, candidate_id, epoch, group)
    return [{**answer(row), "rows": row["row_count"]} for row in rows]


@exposed
def merge_epoch(backend: Backend, candidate_id: int, epoch: int) -> list[dict[str, Any]]:
    """Average an epoch's states; see `Dispatcher.merge`."""
    row = backend.dispatcher.merge(candidate_id, epoch)
    return [{**row, "state_out": bytes(row["state_out"]).hex()}]


@exposed
def begin_candidate(backend: Backend, candidate_id: int) -> list[dict[str, Any]]:
    """Settle what a candidate begins with; see `Dispatcher.begin`."""
    row = backend.dispatcher.begin(candidate_id)
    state = row.pop("state_hash")
    return [{**row, "state": None if state is None else bytes(state).hex()}]


@exposed
def warm_up(backend: Backend, device: str) -> str:
    """Fix the session's device, load torch; return the environment that hops will record."""
    return backend.warm_up(device)
