"""Whose turn it is by the rows of a database; the rules are in `mmdb.train.hops.turn`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from mmdb.db import citus
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import CandidateBusy, OutOfTurn
from mmdb.train.hops.turn import lock_key, next_steps, ordinal_of, progress
from mmdb.train.hops.warm_starts import CandidateInitialiser
from mmdb.train.ledger.ledger import CandidateRecord, Ledger
from mmdb.train.ledger.state_history import wants_checkpoint
from mmdb.train.values.seeds import VALIDATION
from mmdb.train.values.spec import HopStep, Past


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Hops that may start now: one, or a group's in the order of its ranks."""

    candidate: CandidateRecord
    steps: tuple[HopStep, ...]
    state_in: str | None  # hash in hex; None: the initial state
    environment: str | None  # that the hops before ran in; None: any will do
    started: float
    durable: bool = False  # whether the new state is to be durable though no epoch ends
    left_at: int | None = None  # on a cluster: the partition whose node has the state
    holder: int | None = None  # on a cluster: a driver's session, which holds the candidate

    @property
    def is_driven(self) -> bool:
        """Whether a driver does what concerns the other nodes of a cluster."""
        return self.holder is not None


class TurnFinder:
    """Finds what may start, and locks its candidate, over one connection."""

    def __init__(
        self,
        connection: Connection,
        ledger: Ledger,
        initialiser: CandidateInitialiser,
        *,
        is_spread: bool,
    ) -> None:
        """Args: is_spread: whether the tables lie on several nodes, of which this is one."""
        self._connection, self._ledger = connection, ledger
        self._initialiser, self._is_spread = initialiser, is_spread

    def find(
        self,
        candidate_id: int,
        part_ids: Sequence[int],
        epoch: int | None,
        publish: bool,
        *,
        leads: bool = True,
        past: Past | None = None,
        holder: int | None = None,
        at: int | None = None,
    ) -> Turn | list[dict[str, Any]]:
        """Return what may start now, or the rows of what is done already."""
        started = time()
        candidate = self._ledger.candidate(candidate_id)
        chosen = [candidate.part(part_id) for part_id in part_ids]
        if self._is_spread:
            # The held-out slice is looked at on any node, which records it where its rows lie.
            anywhere = at is not None and ordinal_of(chosen[0]) == VALIDATION
            citus.check_here(self._connection, at if anywhere and at is not None else part_ids[0])
        is_driven = self._is_spread and holder is not None
        # A group's other members compute for the transaction of its first.
        locked = not leads or is_driven
        locked = locked or self._connection.try_lock("hop", _lock_key(candidate, part_ids[0]))
        hops = self._hops(candidate, part_ids, epoch, past)
        now = progress(hops, candidate.parts)
        wanted = min(now.epoch, candidate.row["epochs"] - 1) if epoch is None else epoch
        done = {(h["part_id"], h["epoch"]) for h in hops}
        if all((part_id, wanted) in done for part_id in part_ids):
            return [self._ledger.hop(part_id, candidate_id, wanted) for part_id in part_ids]
        if not locked:
            raise CandidateBusy(f"Candidate {candidate_id} is being trained by another session.")
        self._ledger.check_alive(candidate, is_driven=is_driven)
        ordinal = hops[-1]["ordinal"] + 1 if hops else 0
        durable = self._wants_checkpoint(candidate, hops)
        steps = next_steps(
            candidate.row, candidate.parts, chosen, wanted, now, ordinal, publish or durable
        )
        if not hops and not candidate.has_begun:
            if len(part_ids) > 1:
                raise OutOfTurn(
                    f"It is not settled what candidate {candidate_id} begins with.",
                    hint=f"SELECT * FROM mmdb.begin_candidate({candidate_id});",
                )
            candidate = self._initialiser.initialised(candidate, part_ids[0])
        before = self._before(candidate, hops, steps[0])
        return Turn(
            candidate=candidate,
            steps=steps,
            state_in=None if before is None else bytes(before["state_out"]).hex(),
            environment=_environment(candidate, hops),
            started=started,
            durable=durable,
            left_at=_left_at(candidate, hops, before) if self._is_spread else None,
            holder=holder if is_driven else None,
        )

    def _hops(
        self,
        candidate: CandidateRecord,
        part_ids: Sequence[int],
        epoch: int | None,
        past: Past | None,
    ) -> list[Row]:
        """Return the candidate's last hops, and this one if it is done already."""
        if not self._is_spread:
            return self._ledger.recent_hops(candidate.candidate_id, epoch)
        if past is not None and epoch is not None:
            done = self._ledger.find_hop(part_ids[0], candidate.candidate_id, epoch)
            if done is not None:
                return [done]
            if candidate.checkpoint == "auto":  # asks how long all hops computed
                past = None
        return self._ledger.hops_at(candidate, epoch, past)

    def _before(self, candidate: CandidateRecord, hops: Sequence[Row], step: HopStep) -> Row | None:
        """Return the hop or merge that left what a hop starts from; None: nothing has."""
        if not candidate.averages:
            return hops[-1] if hops else None
        merged = step.epoch if step.validates else step.epoch - 1
        if merged < 0:
            return None
        merges = self._ledger.merges(candidate.candidate_id)
        if merged not in merges:
            raise OutOfTurn(
                f"Epoch {merged} of candidate {candidate.candidate_id} is not merged yet.",
                hint=f"SELECT * FROM mmdb.merge_epoch({candidate.candidate_id}, {merged});",
            )
        return merges[merged]

    def _wants_checkpoint(self, candidate: CandidateRecord, hops: Sequence[Row]) -> bool:
        mode = candidate.checkpoint
        if mode != "auto" or not hops:
            return wants_checkpoint(mode, 0.0, 0)
        durable = self._ledger.durable(candidate.candidate_id)
        at_risk_s = hops[-1]["compute_s"]  # of the hop to come, as far as one can tell
        for hop in reversed(hops):
            if bytes(hop["state_out"]).hex() in durable:
                break
            at_risk_s += hop["compute_s"]
        return wants_checkpoint(mode, at_risk_s, hops[-1]["state_bytes"])

    def check_lock(self, turn: Turn) -> None:
        """Check that the lock outlived the hop: it goes with the coordinator if that crashes.

        Raises:
            CandidateBusy
        """
        key = _lock_key(turn.candidate, turn.steps[0].part_id)
        if turn.holder is None:
            held = self._connection.try_lock("hop", key)
        else:
            rows = self._connection.rows(load("nodes").is_held, holder=turn.holder)
            held = bool(rows[0]["held"])
        if not held:
            name = turn.candidate.candidate_id
            raise CandidateBusy(f"Candidate {name} was taken over by another session.")


def _lock_key(candidate: CandidateRecord, part_id: int) -> int:
    return lock_key(candidate.candidate_id, part_id, is_alone=not candidate.averages)


def _left_at(candidate: CandidateRecord, hops: Sequence[Row], before: Row | None) -> int | None:
    """Return the partition whose node has the state that a hop or merge left, which comes next."""
    if before is None:
        return None
    part_id = int(before["part_id"])
    is_checked = ordinal_of(candidate.part(part_id)) == VALIDATION and len(hops) > 1
    return int(hops[-2]["part_id"]) if is_checked else part_id  # a validation leaves none


def _environment(candidate: CandidateRecord, hops: Sequence[Row]) -> str | None:
    any_will_do = json.loads(candidate.row["options"]).get("environment") == "any"
    return None if any_will_do or not hops else str(hops[-1]["environment"])
