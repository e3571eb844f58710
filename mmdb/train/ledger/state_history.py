"""A candidate's states: the stages between them, where they are, and which are kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import StateCorrupt, StateNotFound
from mmdb.store import states
from mmdb.store.states import InFlight
from mmdb.train.values.spec import HopStep, Stage


def stages(
    hops: Sequence[Row], merges: Sequence[Row], keys: Mapping[int, str], strategy: str
) -> list[Stage]:
    """Return the stages that a candidate has completed, in order.

    Args:
        hops: its train hops in order: rows of `find_train_hops`.
        merges: epoch and state_out of its merged epochs.
        keys: content hash in hex of each partition, by part_id.
    """
    if strategy == "model_average":
        return _averaged(hops, merges, keys)
    return _chained(hops, keys)


def _averaged(hops: Sequence[Row], merges: Sequence[Row], keys: Mapping[int, str]) -> list[Stage]:
    by_epoch: dict[int, list[Row]] = defaultdict(list)
    for hop in hops:
        by_epoch[hop["epoch"]].append(hop)
    return [
        Stage(
            kind="average",
            steps=tuple(_step(hop, keys, True) for hop in by_epoch[merge["epoch"]]),
            state_out=_out(merge),
        )
        for merge in sorted(merges, key=lambda merge: int(merge["epoch"]))
    ]


def _chained(hops: Sequence[Row], keys: Mapping[int, str]) -> list[Stage]:
    """Return a stage for each hop alone and for each round of a group.

    All hops of a round leave the same state, which no other round does.
    """
    found = []
    visited = 0
    for _, members in groupby(hops, key=_stage_of):
        rows = list(members)
        visited += len(rows)
        ends = visited % len(keys) == 0
        steps = tuple(_step(hop, keys, ends) for hop in rows)
        kind: Literal["hop", "group"] = "group" if rows[0]["group_size"] else "hop"
        found.append(Stage(kind=kind, steps=steps, state_out=_out(rows[0])))
    return found


def _stage_of(hop: Row) -> tuple[int, bytes | int]:
    alone = hop["group_size"] is None
    return hop["epoch"], hop["ordinal"] if alone else bytes(hop["state_out"])


def repeated(hop: Row, part: Row) -> HopStep:
    """Return a hop of an averaged epoch, to be done again."""
    return _step(hop, {part["part_id"]: bytes(part["content_hash"]).hex()}, True)


def _step(hop: Row, keys: Mapping[int, str], ends_epoch: bool) -> HopStep:
    return HopStep(
        part_id=hop["part_id"],
        partition=keys[hop["part_id"]],
        epoch=hop["epoch"],
        ordinal=hop["ordinal"],
        seed=hop["seed"],
        validates=False,
        ends_epoch=ends_epoch,
        state_out=_out(hop),
        rows=hop["row_count"],
        ran_on=f"{hop['device']}, {hop['environment']}",
    )


def _out(row: Row) -> str:
    return bytes(row["state_out"]).hex()


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


#: Values of a run's option `checkpoint`.
CHECKPOINTS = ("epoch", "hop", "auto")
#: "auto" writes once the compute that a crash would cost is worth this many writes.
AUTO_WORTH = 100.0
#: Bytes per second at which a state is made durable, for "auto"; measured at 120 to 165 MB/s.
WRITE_RATE = 1.2e8


def wants_checkpoint(mode: str, at_risk_s: float, state_bytes: int) -> bool:
    """Return whether a state between two epochs' ends is to be made durable.

    Args:
        at_risk_s: compute since the candidate's last durable state, this hop's included.
    """
    if mode == "auto":
        return at_risk_s > AUTO_WORTH * state_bytes / WRITE_RATE
    return mode == "hop"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewState:
    """A state that a hop, a group's round or a merge has left."""

    part_id: int
    epoch: int
    state_in: str  # hash in hex, of the state before
    state_out: str
    state: bytes | None  # None: it stays in the session


class Retention:
    """Leaves the states of one candidate at a time."""

    def __init__(
        self, connection: Connection, in_flight: InFlight, *, spread: bool = False
    ) -> None:
        """Leave them over a session.

        Args:
            spread: whether the tables lie on several nodes, of which this session is on one.
        """
        self._connection, self._in_flight, self._spread = connection, in_flight, spread

    def pass_on(self, candidate: Row, left: NewState) -> None:
        """Leave a state for the next hop; the one before stays until this one is committed."""
        candidate_id = candidate["candidate_id"]
        self._in_flight.keep_only(candidate_id, {left.state_in})
        if left.state is not None:
            self._in_flight.write(left.part_id, candidate_id, left.state_out, left.state)

    def add_part(self, candidate: Row, left: NewState) -> None:
        """Leave the state of one of the hops whose mean an epoch ends with."""
        assert left.state is not None
        self._in_flight.write(left.part_id, candidate["candidate_id"], left.state_out, left.state)

    def make_durable(
        self, candidate: Row, left: NewState, *, ends: bool = False, prunes: bool = True
    ) -> None:
        """Write a checkpoint; the older ones go, but for that of the best epoch so far.

        Args:
            ends: whether the candidate has trained its last epoch: nobody goes on from its state.
            prunes: False leaves the older ones, which may lie on other nodes, to the driver.
        """
        candidate_id = candidate["candidate_id"]
        assert left.state is not None
        place = (self._connection, left.part_id, candidate_id)
        epoch, name = left.epoch, left.state_out
        states.write_checkpoint(*place, epoch, name, left.state, here=self._spread)
        if ends:
            self._in_flight.keep_only(candidate_id, ())
        else:
            self.pass_on(candidate, left)
        if prunes:
            self.prune(candidate, {left.state_out})

    def prune(self, candidate: Row, kept: set[str], validations: Sequence[Row] = ()) -> None:
        """Keep the checkpoints in `kept`, that of the best epoch, and one that it began with.

        Args:
            validations: those not yet in the database: objective and state_out.
        """
        candidate_id = candidate["candidate_id"]
        rows = self._connection.rows(_Q.find_validations, candidate_id=candidate_id)
        kept = kept | lasting(candidate, [*rows, *validations])
        states.prune_checkpoints(self._connection, candidate_id, kept)


def lasting(candidate: Row, validations: Sequence[Row]) -> set[str]:
    """Return the states that a candidate keeps besides its last: hashes in hex.

    Args:
        candidate: a row of `find_candidate`.
        validations: all of it: objective and state_out.
    """
    found = set()
    best = best_epoch(validations, maximize=candidate["maximize"])
    if best is not None:
        found.add(bytes(best["state_out"]).hex())
    if candidate["first_state"] is not None:
        found.add(bytes(candidate["first_state"]).hex())
    return found


def best_epoch(validations: Sequence[Row], *, maximize: bool | None) -> Row | None:
    """Return the validation (epoch, objective, ...) with the best objective, the first of equals.

    Those without an objective, of versions that had none, do not count.
    """
    measured = [row for row in validations if row["objective"] is not None]

    def value(row: Row) -> float:
        return float(row["objective"]) if maximize else -float(row["objective"])

    return max(measured, key=value, default=None)
