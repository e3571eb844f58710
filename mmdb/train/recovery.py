"""Where a candidate's state is: on its way, durable, or to be made again by replaying hops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import StateNotFound
from mmdb.store import states
from mmdb.train.spec import HopStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A stored state, and the hops that lead from it to the one that was asked for."""

    base: str | None  # hash in hex; None for the initial state
    state: bytes | None
    replays: tuple[HopStep, ...] = ()


def locate(
    connection: Connection, candidate_id: int, parts: Sequence[Row], state_hash: str
) -> Located:
    """Return where to start so as to have the state that a committed train hop left.

    Raises:
        StateNotFound: no hop of the candidate left a state of that hash.
    """
    hops = connection.rows(load("hops").find_train_hops, candidate_id=candidate_id)
    hashes = [h["state_out"].hex() for h in hops]
    if state_hash not in hashes:
        raise StateNotFound(f"Candidate {candidate_id} has no hop that left {state_hash[:12]}.")
    position = len(hashes) - 1 - hashes[::-1].index(state_hash)
    left_at = hops[position]["part_id"]
    state = states.read_in_flight(connection, left_at, candidate_id, state_hash)
    if state is not None:
        return Located(base=state_hash, state=state)
    durable = {
        row["state_hash"].hex(): row["part_id"]
        for row in states.checkpoints(connection, candidate_id)
    }
    for k in range(position, -1, -1):
        if hashes[k] in durable:
            state = states.read_checkpoint(connection, durable[hashes[k]], candidate_id, hashes[k])
            if state is not None:  # else its chunks are gone: an older one will do
                replays = _replays(hops, parts, k + 1, position)
                return Located(base=hashes[k], state=state, replays=replays)
    return Located(base=None, state=None, replays=_replays(hops, parts, 0, position))


def _replays(
    hops: Sequence[Row], parts: Sequence[Row], first: int, last: int
) -> tuple[HopStep, ...]:
    keys = {p["part_id"]: p["content_hash"].hex() for p in parts}
    trains = sum(p["role"] == "train" for p in parts)
    return tuple(
        HopStep(
            part_id=hop["part_id"],
            partition=keys[hop["part_id"]],
            epoch=hop["epoch"],
            ordinal=hop["ordinal"],
            seed=hop["seed"],
            validates=False,
            ends_epoch=k % trains == trains - 1,
            state_out=hop["state_out"].hex(),
        )
        for k, hop in enumerate(hops)
        if first <= k <= last
    )
