"""Where a candidate's state is: on its way, durable, or to be made again by repeating stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import StateCorrupt, StateNotFound
from mmdb.store import states
from mmdb.store.states import InFlight
from mmdb.train.dispatch.history import stages
from mmdb.train.spec import Stage

_Q = load("hops")


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A stored state, and the stages that lead from it to the one that was asked for."""

    base: str | None  # hash in hex; None for the initial state
    state: bytes | None
    replays: tuple[Stage, ...] = ()
    adopts: bool = False  # the stored state is that of the candidate that this one is a clone of


def locate(
    connection: Connection,
    in_flight: InFlight | None,
    candidate: Row,
    parts: Sequence[Row],
    state_hash: str | None,
    left_at: int | None = None,
) -> Located:
    """Return where to start so as to have the state that a committed stage left.

    Args:
        in_flight: where states lie between two hops; None where only durable ones count.
        candidate: a row of `find_candidate`.
        state_hash: in hex; None for the state that the candidate begins with.
        left_at: the partition whose hop left it, where that is known.
    Raises:
        StateNotFound: no stage of the candidate left a state of that hash.
    """
    candidate_id = candidate["candidate_id"]
    if state_hash is None:
        return _beginning(connection, candidate, ())
    if in_flight is not None and left_at is not None:
        state = in_flight.read(left_at, candidate_id, state_hash)
        if state is None:
            state = states.read_checkpoint(connection, left_at, candidate_id, state_hash)
        if state is not None:
            return Located(base=state_hash, state=state)
    done = history(connection, candidate, parts)
    hashes = [stage.state_out for stage in done]
    if state_hash not in hashes:
        raise StateNotFound(f"Candidate {candidate_id} has no hop that left {state_hash[:12]}.")
    position = len(hashes) - 1 - hashes[::-1].index(state_hash)
    left_by = done[position].steps[0].part_id
    if in_flight is not None and left_by != left_at:
        state = in_flight.read(left_by, candidate_id, state_hash)
        if state is not None:
            return Located(base=state_hash, state=state)
    durable = _durable(connection, candidate_id)
    for k in range(position, -1, -1):
        if hashes[k] in durable:
            state = states.read_checkpoint(connection, durable[hashes[k]], candidate_id, hashes[k])
            if state is not None:  # else its chunks are gone: an older one will do
                replays = tuple(done[k + 1 : position + 1])
                return Located(base=hashes[k], state=state, replays=replays)
    return _beginning(connection, candidate, tuple(done[: position + 1]))


def history(connection: Connection, candidate: Row, parts: Sequence[Row]) -> list[Stage]:
    """Return the stages that a candidate has completed, in order."""
    candidate_id = candidate["candidate_id"]
    averages = candidate["strategy"] == "model_average"
    return stages(
        connection.rows(_Q.find_train_hops, candidate_id=candidate_id),
        connection.rows(_Q.find_merges, candidate_id=candidate_id) if averages else [],
        {p["part_id"]: p["content_hash"].hex() for p in parts if p["role"] == "train"},
        candidate["strategy"],
    )


def _durable(connection: Connection, candidate_id: int) -> Mapping[str, int]:
    found = states.checkpoints(connection, candidate_id)
    return {row["state_hash"].hex(): row["part_id"] for row in found}


def _beginning(connection: Connection, candidate: Row, replays: tuple[Stage, ...]) -> Located:
    """Return the state that a candidate begins with: its seed's, a warm start's or its parent's."""
    if candidate["first_state"] is None:
        return Located(base=None, state=None, replays=replays)
    candidate_id, base = candidate["candidate_id"], bytes(candidate["first_state"]).hex()
    part_id = _durable(connection, candidate_id).get(base)
    state = None
    if part_id is not None:
        state = states.read_checkpoint(connection, part_id, candidate_id, base)
    is_clone = candidate["parent_id"] is not None
    if state is None:
        origin = "that it was cloned from" if is_clone else "of its warm start"
        raise StateCorrupt(
            f"The state {base[:12]} that candidate {candidate_id} begins with, {origin}, is gone.",
            hint="Restore the database's backup, or begin anew with a new run.",
        )
    return Located(base=base, state=state, replays=replays, adopts=is_clone)
