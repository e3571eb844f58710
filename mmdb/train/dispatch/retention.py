"""Which states are left where after a hop, and which are forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.store import states
from mmdb.store.states import InFlight

_Q = load("hops")

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
class Left:
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

    def pass_on(self, candidate: Row, left: Left) -> None:
        """Leave a state for the next hop; the one before stays until this one is committed."""
        candidate_id = candidate["candidate_id"]
        self._in_flight.keep_only(candidate_id, {left.state_in})
        if left.state is not None:
            self._in_flight.write(left.part_id, candidate_id, left.state_out, left.state)

    def add_part(self, candidate: Row, left: Left) -> None:
        """Leave the state of one of the hops whose mean an epoch ends with."""
        assert left.state is not None
        self._in_flight.write(left.part_id, candidate["candidate_id"], left.state_out, left.state)

    def make_durable(
        self, candidate: Row, left: Left, *, ends: bool = False, prunes: bool = True
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
