"""`read_state` and `drop_state`: states between two hops, in the files of one node of a cluster.

On one server nobody needs them, and with teams they would ask nobody's rights: there is nothing.
"""

from __future__ import annotations

from typing import Any

from mmdb.data import node_states
from mmdb.server.backend import Backend, exposed
from mmdb.store.states import chunks, owner_of


@exposed
def read_state(backend: Backend, candidate_id: int, state_hash: bytes) -> list[dict[str, Any]]:
    """Return the chunks of a state, in order; none where it does not lie here."""
    if not _is_node(backend) or candidate_id is None or state_hash is None:
        return []
    owner = owner_of(backend.connection)
    state = node_states.read(owner, int(candidate_id), bytes(state_hash).hex())
    if state is None:
        return []
    return [{"ordinal": ordinal, "data": bytes(data)} for ordinal, data in chunks(state)]


@exposed
def drop_state(backend: Backend, candidate_id: int, state_hash: bytes) -> bool:
    """Delete a state; return whether it was there."""
    if not _is_node(backend) or candidate_id is None or state_hash is None:
        return False
    owner = owner_of(backend.connection)
    return node_states.drop(owner, int(candidate_id), bytes(state_hash).hex())


def _is_node(backend: Backend) -> bool:
    """Return whether the session is one of a cluster."""
    return bool(getattr(backend.connection, "is_spread", False))
