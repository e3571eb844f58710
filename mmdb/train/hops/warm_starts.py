"""When candidates of runs with a warm start begin: once, and before any hop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

from mmdb.db.connection import Connection
from mmdb.db.owners import acting_for
from mmdb.train.ledger.ledger import CandidateRecord, Ledger
from mmdb.train.values.jobs import Executor

#: Seconds between two tries to get the lock of a candidate that another session begins.
_WAIT_S = 0.05
#: DuckDB has no such locks: one thread at a time decides.
_deciding = threading.Lock()


class CandidateInitialiser:
    """Settles what the candidates of one session begin with."""

    def __init__(self, connection: Connection, executor: Executor, ledger: Ledger) -> None:
        self._connection, self._executor, self._ledger = connection, executor, ledger

    def initialise(self, candidate_id: int) -> dict[str, Any]:
        """Settle it in a transaction of its own, unless it is; see `HopRunner.begin`."""
        with self._one_at_a_time(), self._connection.transaction():
            candidate = self._ledger.candidate(candidate_id)
            if not candidate.has_begun and not self._ledger.recent_hops(candidate_id, None):
                self._ledger.check_alive(candidate)
                first = min(candidate.parts, key=lambda p: (p["role"] != "train", p["ordinal"]))
                self.initialised(candidate, first["part_id"])
            row = self._ledger.warm_start(candidate_id)
        if row is not None:
            return dict(row)
        is_clone = candidate.row["parent_id"] is not None
        nothing = dict.fromkeys(("parent", "similarity", "coverage", "state_hash"))
        reason = "it is a clone" if is_clone else "its run has no warm start"
        return nothing | {"candidate_id": candidate_id, "reason": reason}

    def initialised(self, candidate: CandidateRecord, part_id: int) -> CandidateRecord:
        """Settle it in this transaction, and return the candidate as it is then.

        Args:
            part_id: the partition whose node is to keep the state.
        """
        from mmdb.train.warm.begin import Beginner  # imports torch

        candidate_id = candidate.candidate_id
        while not self._connection.try_lock("hop", candidate_id):
            # Whoever settled it may be in its first hop by now, and wait there for this session.
            if (candidate := self._ledger.read(candidate_id)).has_begun:
                return candidate
            sleep(_WAIT_S)
        candidate = self._ledger.read(candidate_id)
        if candidate.has_begun:
            return candidate
        with acting_for(self._connection, candidate_id):  # it begins with what its owner may read
            Beginner(self._connection, self._executor).begin(candidate.row, part_id)
        return self._ledger.read(candidate_id)

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if self._connection.engine != "duckdb":
            yield
            return
        with _deciding:
            yield
