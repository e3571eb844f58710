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
    holders: tuple[int, ...] = ()  # on a cluster: sessions of the driver that does the hop

    @property
    def is_driven(self) -> bool:
        """Whether a driver does what concerns the other nodes of a cluster."""
        return bool(self.holders)


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
        holders: tuple[int, ...] = (),
        at: int | None = None,
    ) -> Turn | list[dict[str, Any]]:
        """Return what may start now, or the rows of what is done already."""
        started = time()
        candidate = self._ledger.candidate(candidate_id)
        chosen = [candidate.part(part_id) for part_id in part_ids]
        if self._is_spread:
            # The held-out slice is looked at on any node, which records it where its rows lie; and
            # a group's members are where the group finds them.
            is_bound = len(part_ids) == 1 and ordinal_of(chosen[0]) != VALIDATION
            here = part_ids[0] if is_bound or at is None else at
            citus.check_here(self._connection, here)
        is_driven = self._is_spread and bool(holders)
        # A group's other members compute for the transaction of its first.
        locked = not leads or is_driven or self.lock(candidate, part_ids[0])
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
            holders=holders if is_driven else (),
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
            if done is not None and len(part_ids) == 1:
                return [done]
            if done is not None:  # and with it its round
                past = None
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

    def lock(self, candidate: CandidateRecord, part_id: int | None = None) -> bool:
        """Lock a candidate for a hop or a merge by hand, and say whether it could be had.

        On a cluster drivers lock runs alone, so a hop by hand shares the lock of its run.

        Args:
            part_id: None for a merge, which is alone with its candidate.
        """
        if self._is_spread:
            key = candidate.row["run_id"] % 2**31
            if not self._connection.rows(load("nodes").share_run, key=key)[0]["shared"]:
                return False
        is_alone = part_id is None or not candidate.averages
        key = lock_key(candidate.candidate_id, part_id or 0, is_alone=is_alone)
        return self._connection.try_lock("hop", key)

    def check_lock(self, turn: Turn) -> None:
        """Check that the locks outlived the hop: they go with the coordinator if that crashes.

        Raises:
            CandidateBusy
        """
        if turn.is_driven:
            rows = self._connection.rows(load("nodes").are_held, holders=list(turn.holders))
            held = bool(rows[0]["held"])
        else:
            held = self.lock(turn.candidate, turn.steps[0].part_id)
        if not held:
            name = turn.candidate.candidate_id
            raise CandidateBusy(f"Candidate {name} was taken over by another session.")


def _left_at(candidate: CandidateRecord, hops: Sequence[Row], before: Row | None) -> int | None:
    """Return the partition whose node has the state that a hop or merge left, which comes next."""
    if before is None:
        return None
    part_id, last = int(before["part_id"]), before
    if ordinal_of(candidate.part(part_id)) == VALIDATION and len(hops) > 1:
        last = hops[-2]  # a validation leaves none
    if last is not hops[-1]:
        return int(last["part_id"])
    return int(hops[-(last.get("group_size") or 1)]["part_id"])  # a round's, its first rank


def _environment(candidate: CandidateRecord, hops: Sequence[Row]) -> str | None:
    any_will_do = json.loads(candidate.row["options"]).get("environment") == "any"
    return None if any_will_do or not hops else str(hops[-1]["environment"])
