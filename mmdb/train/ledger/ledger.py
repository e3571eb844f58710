"""The rows of candidates, hops and merges, as a hop runner reads and adds them."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.db.totals import unseal
from mmdb.errors import (
    CandidateBusy,
    CandidateNotFound,
    CandidateStopped,
    DatasetDropped,
    PartitionNotFound,
    RunNotFound,
)
from mmdb.messages import show
from mmdb.store import states
from mmdb.train.ledger.run_options import BY_HAND, record_choice
from mmdb.train.ledger.state_history import NewState
from mmdb.train.values.spec import HopResult, HopStep, Past, stack_of

_Q = load("hops")


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRecord:
    """What never changes of a candidate, once it is settled what it begins with."""

    row: Row  # of `find_candidate`
    parts: tuple[Row, ...]

    @property
    def candidate_id(self) -> int:
        """Its id."""
        return int(self.row["candidate_id"])

    @property
    def freezes(self) -> bool:
        """Whether some of its layers do not train."""
        return json.loads(self.row["config"]).get("freeze_up_to") is not None

    @property
    def stacks(self) -> bool:
        """Whether it trains as in a stack."""
        return stack_of(json.loads(self.row["options"])) > 1

    @property
    def has_begun(self) -> bool:
        """Whether it is settled what it begins with.

        What freezes layers begins with its seed's weights and those of its backbone.
        """
        if self.freezes:
            return self.row["feature_id"] is not None
        return bool(self.row["has_begun"])

    @property
    def validates(self) -> bool:
        """Whether every epoch ends with a validation."""
        return any(p["role"] == "validation" for p in self.parts)

    @property
    def averages(self) -> bool:
        """Whether the train hops of an epoch all start from the same state."""
        return bool(self.row["strategy"] == "model_average")

    @property
    def checkpoint(self) -> str:
        """When its states become durable between two epochs' ends."""
        return str(json.loads(self.row["options"]).get("checkpoint", "epoch"))

    @property
    def trains(self) -> int:
        """Train hops of an epoch."""
        return sum(p["role"] == "train" for p in self.parts)

    def part(self, part_id: int) -> Row:
        """Return one of the dataset's partitions.

        Raises:
            PartitionNotFound
        """
        for part in self.parts:
            if part["part_id"] == part_id:
                return part
        raise PartitionNotFound(
            f"Partition {part_id} does not exist in dataset {self.row['dataset']!r}."
        )


class Ledger:
    """Reads over one connection, and keeps what never changes of the candidates it has seen."""

    #: Candidates whose fixed part is kept.
    KEPT = 1024

    def __init__(self, connection: Connection, worker: str, node: str | None = None) -> None:
        """Read and add over a session.

        Args:
            node: of a cluster, where the session computes; None for the machine.
        """
        self._connection, self._worker = connection, worker
        self._node = node or platform.node()
        self._candidates: dict[int, CandidateRecord] = {}

    def candidate(self, candidate_id: int) -> CandidateRecord:
        """Return a candidate, from memory if nothing of it can change any more.

        What it begins with, where its run has a warm start, may be undone with a transaction. How
        a run with the strategy `auto` is trained may not be decided yet.

        Raises:
            CandidateNotFound
        """
        if candidate_id in self._candidates:
            return self._candidates[candidate_id]
        found = self.read(candidate_id)
        is_settled = found.has_begun if found.freezes else found.row["warm_start"] == "off"
        if is_settled and found.row["strategy"] != "auto":
            if len(self._candidates) >= self.KEPT:
                self._candidates.clear()
            self._candidates[candidate_id] = found
        return found

    def forget(self) -> None:
        """Read every candidate again."""
        self._candidates.clear()

    def read(self, candidate_id: int) -> CandidateRecord:
        """Return a candidate as its rows are now.

        Raises:
            CandidateNotFound
        """
        rows = self._connection.rows(_Q.find_candidate, candidate_id=candidate_id)
        if not rows:
            raise CandidateNotFound(f"Candidate {show(candidate_id)} does not exist.")
        parts = self._connection.rows(_Q.find_partitions, dataset_id=rows[0]["dataset_id"])
        return CandidateRecord(row=rows[0], parts=tuple(parts))

    def warm_start(self, candidate_id: int) -> Row | None:
        """Return what a candidate of a run with a warm start begins with, if that is decided."""
        rows = self._connection.rows(load("warm").find_warm_start, candidate_id=candidate_id)
        return rows[0] if rows else None

    def recent_hops(self, candidate_id: int, epoch: int | None) -> list[Row]:
        """Return the candidate's hops in order, from the epoch before `epoch` on."""
        if epoch is None:
            last = self._connection.rows(_Q.last_epoch, candidate_id=candidate_id)[0]["epoch"]
            epoch = 0 if last is None else last
        found = self._connection.rows(
            _Q.find_hops_since, candidate_id=candidate_id, epoch=max(epoch, 0) - 1
        )
        if not found and epoch > 1:  # far ahead of its turn: look at all it has done
            return self.recent_hops(candidate_id, 1)
        return found

    def hops_at(
        self, candidate: CandidateRecord, epoch: int | None, past: Past | None = None
    ) -> list[Row]:
        """Return what `recent_hops` does, asking no more nodes of a cluster than needed.

        Args:
            past: what the driver knows; all but the last row then have part_id and epoch alone.
        """
        candidate_id = candidate.candidate_id
        if past is not None and not past.part_ids:
            return []
        if past is not None:
            *before, last = past.part_ids
            found = self._hops_at(candidate_id, [last], past.epoch)
            if len(found) == 1:  # else the driver is behind
                return [*({"part_id": p, "epoch": past.epoch} for p in before), found[0]]
        everywhere = [part["part_id"] for part in candidate.parts]
        if epoch is None:
            place = {"candidate_id": candidate_id, "part_ids": everywhere}
            epoch = self._connection.rows(load("nodes").last_epoch_at, **place)[0]["epoch"] or 0
        found = self._hops_at(candidate_id, everywhere, max(epoch, 0) - 1)
        return found if found or epoch <= 1 else self._hops_at(candidate_id, everywhere, 0)

    def _hops_at(self, candidate_id: int, part_ids: Sequence[int], epoch: int) -> list[Row]:
        place = {"candidate_id": candidate_id, "part_ids": list(part_ids), "epoch": epoch}
        return self._connection.rows(load("nodes").find_hops_at, **place)

    def find_hop(self, part_id: int, candidate_id: int, epoch: int) -> dict[str, Any] | None:
        """Return the row of a hop, or None where it is not done."""
        key = {"part_id": part_id, "candidate_id": candidate_id, "epoch": epoch}
        rows = self._connection.rows(_Q.find_hop, **key)
        return dict(rows[0]) if rows else None

    def train_hops(self, candidate_id: int) -> list[Row]:
        """Return all train hops of a candidate, in order."""
        return self._connection.rows(_Q.find_train_hops, candidate_id=candidate_id)

    def merges(self, candidate_id: int) -> dict[int, Row]:
        """Return the merged epochs of a candidate."""
        rows = self._connection.rows(_Q.find_merges, candidate_id=candidate_id)
        return {row["epoch"]: row for row in rows}

    def durable(self, candidate_id: int) -> set[str]:
        """Return the hashes in hex of a candidate's checkpoints."""
        rows = states.checkpoints(self._connection, candidate_id)
        return {bytes(row["state_hash"]).hex() for row in rows}

    def hop(self, part_id: int, candidate_id: int, epoch: int) -> dict[str, Any]:
        """Return the row of a hop that is done."""
        row = self.find_hop(part_id, candidate_id, epoch)
        assert row is not None
        return row

    def check_alive(self, candidate: CandidateRecord, *, is_driven: bool = False) -> None:
        """Check that a candidate may go on.

        Args:
            is_driven: on a cluster; a driver then knows what has ended the candidate.
        Raises:
            RunNotFound, DatasetDropped, CandidateStopped
        """
        key = {"dataset_id": candidate.row["dataset_id"], "candidate_id": candidate.candidate_id}
        query = load("nodes").find_end if is_driven else _Q.find_end
        (row,) = self._connection.rows(query, **key)
        name = f"candidate {candidate.candidate_id}"
        if row.get("run_dropped"):
            raise RunNotFound(f"The run of {name} has been dropped.")
        if row["dropped"]:
            dataset = candidate.row["dataset"]
            raise DatasetDropped(f"Dataset {dataset!r} of {name} has been dropped.")
        if row["error"] is not None:
            raise CandidateStopped(f"{name.capitalize()} has failed: {row['error']}")

    def keep_strategy(self, candidate: CandidateRecord) -> None:
        """Let a run of which nobody has decided how it is trained go on as it has begun: as `mop`.

        Raises:
            CandidateBusy: a driver has decided otherwise meanwhile.
        """
        if candidate.row["strategy"] != "auto":
            return
        taken = record_choice(self._connection, candidate.row["run_id"], BY_HAND)["strategy"]
        if taken not in ("mop", "task"):  # whose hops are the same
            raise CandidateBusy(f"Run {candidate.row['run']!r} is trained as {taken} from now on.")

    def add_hop(
        self,
        candidate: CandidateRecord,
        step: HopStep,
        result: HopResult,
        *,
        group: int,
        started: float,
        read_s: float,
        find_s: float,
        finished: float | None = None,
        unseals: bool = True,
    ) -> dict[str, Any]:
        """Record a hop and return its row.

        Args:
            group: workers that trained together.
            started, finished: seconds since 1970; None: now.
            read_s, find_s: seconds that fetched its partition and its state.
            unseals: whether the run may have totals, which must go: a hop by hand may come after.
        """
        finished = time() if finished is None else finished
        row: dict[str, Any] = {
            "part_id": step.part_id,
            "candidate_id": candidate.candidate_id,
            "epoch": step.epoch,
            "ordinal": step.ordinal,
            "seed": step.seed,
            "row_count": result.rows,
            "steps": result.steps,
            "loss": result.loss,
            "metrics": json.dumps(result.metrics),
            "read_s": read_s,
            "load_s": result.load_s + find_s,
            "compute_s": result.compute_s,
            "store_s": result.encode_s,
            "total_s": finished - started,
            "state_in": bytes.fromhex(result.state_in),
            "state_out": bytes.fromhex(result.state_out),
            "state_bytes": result.state_bytes,
            "worker": self._worker,
            "node": self._node,
            "device": result.device,
            "environment": result.environment,
            "objective": result.objective,
            "peak_bytes": result.peak_bytes or None,
            "group_size": group if group > 1 else None,
        }
        self._connection.run(_Q.add_hop, **row, started=started, finished=finished)
        if unseals:
            unseal(self._connection, candidate.row["run_id"])
        return row

    def merge_row(
        self, candidate: CandidateRecord, left: NewState, started: float
    ) -> dict[str, Any]:
        """Return the row of an epoch that was merged just now; see `add_hop`."""
        assert left.state is not None
        return {
            "candidate_id": candidate.candidate_id,
            "epoch": left.epoch,
            "part_id": left.part_id,
            "state_out": bytes.fromhex(left.state_out),
            "state_bytes": len(left.state),
            "total_s": time() - started,
            "node": self._node,
        }

    def add_merge(self, run_id: int, row: Row) -> None:
        """Record a merged epoch, by a row of `merge_row`."""
        names = ("candidate_id", "epoch", "part_id", "state_bytes", "total_s")
        finished = time()
        self._connection.run(
            _Q.add_merge,
            **{name: row[name] for name in names},
            state_out=row["state_out"],
            worker=self._worker,
            node=self._node,
            started=finished - row["total_s"],
            finished=finished,
        )
        unseal(self._connection, run_id)
