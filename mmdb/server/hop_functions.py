"""SQL's functions for hops, which drivers call, and for files on a cluster's nodes.

States between two hops lie in the files of one node. On one server nobody needs `read_state`,
`drop_state` and `clear_cache`, and with teams they would ask nobody's rights: they do nothing.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import Any

from mmdb.data import node_cache
from mmdb.db.citus import own_node
from mmdb.errors import InvalidOption
from mmdb.messages import show
from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend, exposed
from mmdb.store.states import chunks, owner_of
from mmdb.train.hops.orders import driver_order, wire_row
from mmdb.train.values.spec import group_of

#: Their queries are many and short, and what computes goes apart by itself: handing over each query
#: would take longer than all of them. Loading torch, in a session's first call, goes apart, too.
_of_hops = functools.partial(exposed, is_quick=lambda backend, *_: "torch" in sys.modules)


@_of_hops
def train_hop(
    backend: Backend, part_id: int, candidate_id: int, epoch: int | None, publish: bool
) -> list[dict[str, Any]]:
    """Do one hop and return its row; see `HopRunner.run_hop`."""
    row = backend.runner.run_hop(part_id, candidate_id, epoch, publish=publish)
    return [{**wire_row(row), "rows": row["row_count"]}]


@_of_hops
def train_hops(
    backend: Backend,
    part_id: int,
    candidate_ids: list[int] | None,
    epoch: int | None,
    publish: bool,
) -> list[dict[str, Any]]:
    """Do one hop of each candidate and return their rows; see `HopRunner.run_hops`."""
    if not candidate_ids or any(isinstance(one, list) for one in candidate_ids):
        given = "NULL" if candidate_ids is None else show(candidate_ids) or "empty"
        raise InvalidOption(
            f"candidate_ids is {'empty' if candidate_ids == [] else given}.",
            hint="It is the candidates that hop, such as ARRAY[1, 2].",
        )
    rows = backend.runner.run_hops(part_id, candidate_ids, epoch, publish=publish)
    return [{**wire_row(row), "rows": row["row_count"]} for row in rows]


@_of_hops
def train_group(
    backend: Backend, part_ids: list[int], candidate_id: int, epoch: int, member: str
) -> list[dict[str, Any]]:
    """Do one member's part of a group's round; the first rank returns the rows of all."""
    group = group_of(json_object(member, "member"))
    rows = backend.runner.run_group(part_ids, candidate_id, epoch, group)
    return [{**wire_row(row), "rows": row["row_count"]} for row in rows]


@_of_hops
def merge_epoch(backend: Backend, candidate_id: int, epoch: int) -> list[dict[str, Any]]:
    """Average an epoch's states; see `HopRunner.merge`."""
    row = backend.runner.merge(candidate_id, epoch)
    return [{**row, "state_out": bytes(row["state_out"]).hex()}]


@exposed
def begin_candidate(backend: Backend, candidate_id: int) -> list[dict[str, Any]]:
    """Settle what a candidate begins with; see `HopRunner.begin`."""
    row = backend.runner.begin(candidate_id)
    state = row.pop("state_hash")
    return [{**row, "state": None if state is None else bytes(state).hex()}]


@exposed
def warm_up(backend: Backend, device: str) -> str:
    """Fix the session's device, load torch; return the environment that hops will record."""
    return backend.warm_up(device)


@_of_hops
def run_order(backend: Backend, part_id: int, detail: str) -> list[dict[str, Any]]:
    """Do what a driver orders on the node of a partition: hops, a member's part, or a merge.

    See `mmdb.train.hops.orders`.
    """
    order = driver_order(json_object(detail, "detail"))
    if order.place != part_id:
        raise InvalidOption(f"part_id is {part_id}, but the order is for partition {order.place}.")
    for candidate_id, state in getattr(order, "useless", ()) if _is_node(backend) else ():
        node_cache.drop(owner_of(backend.connection), candidate_id, state)
    found = [{**_NO_HOP, **row} for row in order.run(backend.runner)]
    return [{**row, "rows": row["row_count"]} for row in found]


#: What the row of a merge lacks of a hop's.
_NO_HOP = dict.fromkeys(
    "row_count steps loss metrics read_s load_s compute_s store_s state_in device objective "
    "group_size".split()
)


@exposed
def warm_node(backend: Backend, part_id: int, detail: str) -> str:
    """Let the session that serves a partition's node be a worker's; return what it is, as JSON.

    Without a worker's name nothing is warmed up.
    """
    given = json_object(detail, "detail")
    worker, device = given.get("worker"), given.get("device", "cpu")
    if not isinstance(worker, str | None) or not isinstance(device, str):
        raise InvalidOption("detail is not about a worker.", hint='Such as {"worker": "a"}.')
    spread = getattr(backend.connection, "is_spread", False)
    about: dict[str, Any] = {"processors": os.cpu_count() or 1}
    if worker:
        about["environment"] = backend.serve(worker, device)
    return json.dumps(about | {"node": own_node(backend.connection) if spread else None})


@exposed
def read_state(backend: Backend, candidate_id: int, state_hash: bytes) -> list[dict[str, Any]]:
    """Return the chunks of a state, in order; none where it does not lie here."""
    if not _is_node(backend) or candidate_id is None or state_hash is None:
        return []
    owner = owner_of(backend.connection)
    state = node_cache.read(owner, int(candidate_id), bytes(state_hash).hex())
    if state is None:
        return []
    return [{"ordinal": ordinal, "data": bytes(data)} for ordinal, data in chunks(state)]


@exposed
def drop_state(backend: Backend, candidate_id: int, state_hash: bytes) -> bool:
    """Delete a state; return whether it was there."""
    if not _is_node(backend) or candidate_id is None or state_hash is None:
        return False
    owner = owner_of(backend.connection)
    return node_cache.drop(owner, int(candidate_id), bytes(state_hash).hex())


@exposed
def clear_cache(backend: Backend) -> bool:
    """Delete decoded rows and models from this node's cache; return whether it is a node."""
    if not _is_node(backend):
        return False
    node_cache.clear()
    return True


def _is_node(backend: Backend) -> bool:
    """Return whether the session is one of a cluster."""
    return bool(getattr(backend.connection, "is_spread", False))
