"""The database's side of a hop: whose turn it is, where its state is, and its row.

A `Dispatcher` prepares a hop, lets a `Performer` compute it, and records it. Inside PostgreSQL all
three happen in one session; on DuckDB the process that owns the file prepares and records, and a
child process performs.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, time
from typing import Any, Protocol

from mmdb.data.reader import ensure_partition
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import (
    CandidateBusy,
    CandidateNotFound,
    CandidateStopped,
    DatasetDropped,
    PartitionNotFound,
)
from mmdb.store import states
from mmdb.train.objective import best_epoch
from mmdb.train.recovery import Located, locate
from mmdb.train.spec import CandidateSpec, HopResult, HopSpec
from mmdb.train.turn import check_turn, next_step, progress, workload

_Q = load("hops")


class Performer(Protocol):
    """Who computes hops: this process's `Session`, or a child process."""

    def held(self, candidate_id: int) -> str | None:
        """Return the hash in hex of the candidate's state that it holds live."""

    def has_partition(self, key: str) -> bool:
        """Return whether it has the partition mapped."""

    def map_partition(self, key: str) -> None:
        """Map a partition that is in the node's cache."""

    def perform(self, spec: HopSpec, state: bytes | None) -> tuple[HopResult, bytes | None]:
        """Compute the hop; see `Session.perform`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """What never changes of a candidate."""

    row: Row
    parts: tuple[Row, ...]

    @property
    def validates(self) -> bool:
        return any(p["role"] == "validation" for p in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A hop that may start now."""

    candidate: _Candidate
    spec: HopSpec
    state: bytes | None  # named by spec.base
    find_s: float  # seconds that fetched the state


class Dispatcher:
    """Runs hops over one connection; keeps what never changes of the candidates it has seen."""

    #: Candidates whose fixed part is kept.
    KEPT = 1024

    def __init__(self, connection: Connection, performer: Performer, worker: str) -> None:
        self._connection = connection
        self._performer = performer
        self._worker = worker
        self._candidates: dict[int, _Candidate] = {}

    def run_hop(
        self, part_id: int, candidate_id: int, epoch: int | None, *, publish: bool = True
    ) -> dict[str, Any]:
        """Do one hop, whole or not at all, and return its row.

        A hop that was done before is not done again: its row is returned.

        Args:
            epoch: None for the candidate's current epoch.
            publish: leave the new state where other sessions find it; else only this one holds
                it, and another one would have to replay the hop. An epoch's end always does.
        Raises:
            HopError, NotFound
        """
        started = time()
        with self._connection.transaction():
            prepared = self._prepare(part_id, candidate_id, epoch, publish)
            if isinstance(prepared, dict):
                return prepared
            read_s = self._read(prepared)
            result, state = self._performer.perform(prepared.spec, prepared.state)
            return self._record(prepared, result, state, started, read_s)

    def _prepare(
        self, part_id: int, candidate_id: int, epoch: int | None, publish: bool
    ) -> _Prepared | dict[str, Any]:
        candidate = self._candidate(candidate_id)
        row, parts = candidate.row, candidate.parts
        locked = self._connection.try_lock("hop", candidate_id)
        part = next((p for p in parts if p["part_id"] == part_id), None)
        if part is None:
            raise PartitionNotFound(
                f"Partition {part_id} does not exist in dataset {row['dataset']!r}."
            )
        hops = self._recent_hops(candidate_id, epoch)
        now = progress(hops, parts)
        wanted = min(now.epoch, row["epochs"] - 1) if epoch is None else epoch
        if any((h["part_id"], h["epoch"]) == (part_id, wanted) for h in hops):
            return self._stored(part_id, candidate_id, wanted)
        if not locked:
            raise CandidateBusy(f"Candidate {candidate_id} is being trained by another session.")
        self._check_alive(row)
        rules = workload(row, parts)
        check_turn(row, rules, parts, part, wanted, now)
        done = hops[-1]["ordinal"] + 1 if hops else 0
        step = next_step(row, rules, part, now, done, publish)
        begun = perf_counter()
        state_in = hops[-1]["state_out"].hex() if hops else None
        found = self._locate(candidate_id, parts, state_in)
        spec = HopSpec(
            candidate=self._spec(row),
            step=step,
            state_in=state_in,
            environment=self._environment(row, hops),
            base=found.base,
            replays=found.replays,
        )
        find_s = perf_counter() - begun if found.state is not None else 0.0
        return _Prepared(candidate=candidate, spec=spec, state=found.state, find_s=find_s)

    def _candidate(self, candidate_id: int) -> _Candidate:
        if candidate_id not in self._candidates:
            rows = self._connection.rows(_Q.find_candidate, candidate_id=candidate_id)
            if not rows:
                raise CandidateNotFound(f"Candidate {candidate_id} does not exist.")
            parts = self._connection.rows(_Q.find_partitions, dataset_id=rows[0]["dataset_id"])
            if len(self._candidates) >= self.KEPT:
                self._candidates.clear()
            self._candidates[candidate_id] = _Candidate(row=rows[0], parts=tuple(parts))
        return self._candidates[candidate_id]

    def _recent_hops(self, candidate_id: int, epoch: int | None) -> list[Row]:
        """Return the candidate's hops in order, from the epoch before `epoch` on."""
        if epoch is None:
            last = self._connection.rows(_Q.last_epoch, candidate_id=candidate_id)[0]["epoch"]
            epoch = 0 if last is None else last
        found = self._connection.rows(
            _Q.find_hops_since, candidate_id=candidate_id, epoch=max(epoch, 0) - 1
        )
        if not found and epoch > 1:  # far ahead of its turn: look at all it has done
            return self._recent_hops(candidate_id, 1)
        return found

    def _check_alive(self, candidate: Row) -> None:
        (row,) = self._connection.rows(
            _Q.find_end, candidate_id=candidate["candidate_id"], dataset_id=candidate["dataset_id"]
        )
        name = f"candidate {candidate['candidate_id']}"
        if row["dropped"]:
            raise DatasetDropped(f"Dataset {candidate['dataset']!r} of {name} has been dropped.")
        if row["error"] is not None:
            raise CandidateStopped(f"{name.capitalize()} has failed: {row['error']}")

    def _locate(self, candidate_id: int, parts: Sequence[Row], state_in: str | None) -> Located:
        if state_in is None or self._performer.held(candidate_id) == state_in:
            return Located(base=None, state=None)
        return locate(self._connection, candidate_id, parts, state_in)

    def _environment(self, row: Row, hops: Sequence[Row]) -> str | None:
        any_will_do = json.loads(row["options"]).get("environment") == "any"
        return None if any_will_do or not hops else str(hops[-1]["environment"])

    def _spec(self, row: Row) -> CandidateSpec:
        factories = self._connection.rows(load("catalog").find_factories)
        return CandidateSpec.from_row(row, {f["name"]: f["target"] for f in factories})

    def _read(self, prepared: _Prepared) -> float:
        """Bring the hop's partitions to the performer; return the seconds, 0 if it had them."""
        begun = perf_counter()
        steps = (prepared.spec.step, *prepared.spec.replays)
        missing = {
            step.partition: step.part_id
            for step in steps
            if not self._performer.has_partition(step.partition)
        }
        for key, part_id in missing.items():
            ensure_partition(self._connection, part_id, bytes.fromhex(key))
            self._performer.map_partition(key)
        return perf_counter() - begun if missing else 0.0

    def _record(
        self,
        prepared: _Prepared,
        result: HopResult,
        state: bytes | None,
        started: float,
        read_s: float,
    ) -> dict[str, Any]:
        begun = perf_counter()
        self._store(prepared, result, state)
        store_s = result.encode_s + perf_counter() - begun
        step, finished = prepared.spec.step, time()
        candidate_id = prepared.spec.candidate.candidate_id
        row: dict[str, Any] = {
            "part_id": step.part_id,
            "candidate_id": candidate_id,
            "epoch": step.epoch,
            "ordinal": step.ordinal,
            "seed": step.seed,
            "row_count": result.rows,
            "steps": result.steps,
            "loss": result.loss,
            "metrics": json.dumps(result.metrics),
            "read_s": read_s,
            "load_s": result.load_s + prepared.find_s,
            "compute_s": result.compute_s,
            "store_s": store_s,
            "total_s": finished - started,
            "state_in": bytes.fromhex(result.state_in),
            "state_out": bytes.fromhex(result.state_out),
            "state_bytes": result.state_bytes,
            "worker": self._worker,
            "node": platform.node(),
            "device": result.device,
            "environment": result.environment,
        }
        self._connection.run(_Q.add_hop, **row, started=started, finished=finished)
        return row

    def _store(self, prepared: _Prepared, result: HopResult, state: bytes | None) -> None:
        """Leave the new state where the next hop finds it: durable at an epoch's end, else not."""
        step, candidate_id = prepared.spec.step, prepared.spec.candidate.candidate_id
        place = (self._connection, step.part_id, candidate_id)
        if step.validates:
            self._prune(prepared.spec, result)
        elif state is None:
            states.drop_in_flight(self._connection, candidate_id)
        elif step.ends_epoch:
            states.write_checkpoint(*place, step.epoch, result.state_out, state)
            states.drop_in_flight(self._connection, candidate_id)
            if not prepared.candidate.validates:
                states.prune_checkpoints(self._connection, candidate_id, {result.state_out})
        else:
            states.write_in_flight(*place, result.state_out, state)

    def _prune(self, spec: HopSpec, result: HopResult) -> None:
        """Keep the last and the best checkpoint, now that the last one is validated."""
        candidate = spec.candidate
        rows = self._connection.rows(_Q.find_validations, candidate_id=candidate.candidate_id)
        state_out = bytes.fromhex(result.state_out)
        now = {"metrics": json.dumps(result.metrics), "state_out": state_out}
        best = best_epoch([*rows, now], candidate.task)
        assert best is not None
        keep = {result.state_out, best["state_out"].hex()}
        states.prune_checkpoints(self._connection, candidate.candidate_id, keep)

    def _stored(self, part_id: int, candidate_id: int, epoch: int) -> dict[str, Any]:
        (row,) = self._connection.rows(
            _Q.find_hop, part_id=part_id, candidate_id=candidate_id, epoch=epoch
        )
        return dict(row)
