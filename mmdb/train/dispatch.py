"""The database's side of a hop: whose turn it is, where its state is, and its row.

`prepare` reads, a `Session` performs, `record` writes. Inside PostgreSQL one session does all
three; on DuckDB the process that owns the file prepares and records, and a child performs.
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
    OutOfTurn,
    PartitionNotFound,
    StateNotFound,
)
from mmdb.store import states
from mmdb.train.objective import best_epoch
from mmdb.train.schedule import Progress, Workload, next_part
from mmdb.train.seeds import VALIDATION, hop_seed
from mmdb.train.spec import CandidateSpec, HopResult, HopSpec, HopStep

_Q = load("hops")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A hop that may start now."""

    spec: HopSpec
    state: bytes | None  # named by spec.base
    parts: dict[int, Row]  # partitions that it visits, replays included, by part_id
    validates: bool  # whether the dataset has a validation slice
    find_s: float = 0.0  # seconds that fetched the state


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a hop started (seconds since the epoch), its first phases (seconds), and where."""

    started: float
    read_s: float
    load_s: float
    worker: str


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


def run_hop(
    connection: Connection,
    performer: Performer,
    worker: str,
    part_id: int,
    candidate_id: int,
    epoch: int | None,
) -> dict[str, Any]:
    """Do one hop, whole or not at all, and return its row; a hop done before is returned as it is.

    Raises:
        HopError, NotFound
    """
    started = time()
    with connection.transaction():
        prepared = prepare(
            connection, part_id, candidate_id, epoch, performer.held(candidate_id)
        )
        if isinstance(prepared, dict):
            return prepared
        read_s = _read(connection, performer, prepared)
        load_s = prepared.find_s
        result, state = performer.perform(prepared.spec, prepared.state)
        timing = Timing(started=started, read_s=read_s, load_s=load_s, worker=worker)
        return record(connection, prepared, result, state, timing)


def _read(connection: Connection, performer: Performer, prepared: Prepared) -> float:
    """Bring the hop's partitions to the performer; return the seconds, 0 if it had them all."""
    begun = perf_counter()
    missing = [
        part
        for part in prepared.parts.values()
        if not performer.has_partition(part["content_hash"].hex())
    ]
    for part in missing:
        ensure_partition(connection, part["part_id"], part["content_hash"])
        performer.map_partition(part["content_hash"].hex())
    return perf_counter() - begun if missing else 0.0


def stored_hop(
    connection: Connection, part_id: int, candidate_id: int, epoch: int
) -> dict[str, Any] | None:
    """Return the row of a hop that was done before."""
    found = connection.rows(_Q.find_hop, part_id=part_id, candidate_id=candidate_id, epoch=epoch)
    return dict(found[0]) if found else None


def prepare(
    connection: Connection, part_id: int, candidate_id: int, epoch: int | None, held: str | None
) -> Prepared | dict[str, Any]:
    """Return what the hop needs, or its row where it was done before.

    Args:
        epoch: None for the candidate's current epoch.
        held: hash in hex of the candidate's state that the worker holds live.
    Raises:
        CandidateNotFound, CandidateStopped, CandidateBusy, DatasetDropped, PartitionNotFound,
        OutOfTurn
    """
    found = connection.rows(_Q.find_candidate, candidate_id=candidate_id)
    if not found:
        raise CandidateNotFound(f"Candidate {candidate_id} does not exist.")
    candidate = found[0]
    if not connection.try_lock("hop", candidate_id):
        raise CandidateBusy(f"Candidate {candidate_id} is being trained by another session.")
    parts = connection.rows(_Q.find_partitions, dataset_id=candidate["dataset_id"])
    part = next((p for p in parts if p["part_id"] == part_id), None)
    if part is None:
        raise PartitionNotFound(
            f"Partition {part_id} does not exist in dataset {candidate['dataset']!r}."
        )
    last = connection.rows(_Q.last_hop, candidate_id=candidate_id)
    progress = _progress(connection, candidate, parts, last)
    wanted = min(progress.epoch, candidate["epochs"] - 1) if epoch is None else epoch
    done = stored_hop(connection, part_id, candidate_id, wanted)
    if done is not None:
        return done
    _check_turn(candidate, parts, part, wanted, progress)
    step = _step(candidate, parts, part, progress, last)
    return _located(connection, _spec(connection, candidate), step, parts, last, held)


def _progress(
    connection: Connection, candidate: Row, parts: Sequence[Row], last: Sequence[Row]
) -> Progress:
    if not last:
        return Progress()
    epoch = last[0]["epoch"]
    ordinals = {p["part_id"]: ordinal_of(p) for p in parts}
    visits = connection.rows(
        _Q.find_visits, candidate_id=candidate["candidate_id"], epoch=epoch
    )
    if len(visits) == len(parts):
        return Progress(epoch=epoch + 1)
    return Progress(epoch=epoch, visited=tuple(ordinals[v["part_id"]] for v in visits))


def ordinal_of(part: Row) -> int:
    """Return a partition's ordinal in its candidate's order; VALIDATION for the held-out slice."""
    return VALIDATION if part["role"] == "validation" else int(part["ordinal"])


def workload(candidate: Row, parts: Sequence[Row], candidates: int = 1) -> Workload:
    """Return the workload of a run, from a row with its seed, epochs and options."""
    return Workload(
        candidates=candidates,
        partitions=sum(p["role"] == "train" for p in parts),
        epochs=candidate["epochs"],
        seed=candidate["run_seed"],
        validates=any(p["role"] == "validation" for p in parts),
        free=json.loads(candidate["options"]).get("order") == "free",
    )


def _check_turn(
    candidate: Row, parts: Sequence[Row], part: Row, epoch: int, progress: Progress
) -> None:
    name = f"candidate {candidate['candidate_id']}"
    if candidate["dropped"]:
        raise DatasetDropped(f"Dataset {candidate['dataset']!r} of {name} has been dropped.")
    if candidate["error"] is not None:
        raise CandidateStopped(f"{name.capitalize()} has failed: {candidate['error']}")
    if progress.epoch >= candidate["epochs"]:
        raise OutOfTurn(
            f"{name.capitalize()} has done all its {candidate['epochs']} epochs.",
            hint="Create a run with more epochs.",
        )
    load_ = workload(candidate, parts)
    expected = next_part(load_, candidate["ordinal"], progress)
    given = ordinal_of(part)
    free = load_.free and expected != VALIDATION
    allowed = free and given != VALIDATION and given not in progress.visited
    if epoch != progress.epoch or (given != expected and not allowed):
        turn = next(p["part_id"] for p in parts if ordinal_of(p) == expected)
        raise OutOfTurn(
            f"It is not the turn of partition {part['part_id']}, epoch {epoch}, for {name}.",
            hint=f"Its next hop is epoch {progress.epoch} on partition {turn}.",
        )


def _step(
    candidate: Row, parts: Sequence[Row], part: Row, progress: Progress, last: Sequence[Row]
) -> HopStep:
    ordinal, trains = ordinal_of(part), sum(p["role"] == "train" for p in parts)
    return HopStep(
        part_id=part["part_id"],
        partition=part["content_hash"].hex(),
        epoch=progress.epoch,
        ordinal=last[0]["ordinal"] + 1 if last else 0,
        seed=hop_seed(candidate["run_seed"], candidate["ordinal"], progress.epoch, ordinal),
        validates=ordinal == VALIDATION,
        ends_epoch=ordinal != VALIDATION and len(progress.visited) == trains - 1,
    )


def _spec(connection: Connection, candidate: Row) -> CandidateSpec:
    classes = candidate["classes"]
    factories = connection.rows(load("catalog").find_factories)
    return CandidateSpec(
        candidate_id=candidate["candidate_id"],
        architecture=json.loads(candidate["architecture"]),
        config=json.loads(candidate["config"]),
        factories={f["name"]: f["target"] for f in factories},
        input_shape=tuple(candidate["input_shape"]),
        outputs=len(json.loads(classes)) if classes else 1,
        task=candidate["task"],
        seed=candidate["seed"],
    )


def _located(
    connection: Connection,
    candidate: CandidateSpec,
    step: HopStep,
    parts: Sequence[Row],
    last: Sequence[Row],
    held: str | None,
) -> Prepared:
    """Find the state before the hop: held, in flight, durable, or made again by replays."""
    by_id = {p["part_id"]: p for p in parts}
    needed = {step.part_id: by_id[step.part_id]}
    validates = any(p["role"] == "validation" for p in parts)
    if not last:
        spec = HopSpec(candidate=candidate, step=step, state_in=None, base=None)
        return Prepared(spec=spec, state=None, parts=needed, validates=validates)
    state_in = last[0]["state_out"].hex()
    if held == state_in:
        spec = HopSpec(candidate=candidate, step=step, state_in=state_in, base=None)
        return Prepared(spec=spec, state=None, parts=needed, validates=validates)
    begun = perf_counter()
    base, state, replays = find_state(connection, candidate.candidate_id, parts, state_in)
    find_s = perf_counter() - begun
    needed |= {r.part_id: by_id[r.part_id] for r in replays}
    spec = HopSpec(
        candidate=candidate, step=step, state_in=state_in, base=base, replays=tuple(replays)
    )
    return Prepared(
        spec=spec, state=state, parts=needed, validates=validates, find_s=find_s
    )


def find_state(
    connection: Connection, candidate_id: int, parts: Sequence[Row], state_hash: str
) -> tuple[str | None, bytes | None, list[HopStep]]:
    """Return a stored state (hash and bytes, None for the initial one) and the replays from it.

    Raises:
        StateNotFound: no hop of the candidate left a state of that hash.
    """
    hops = connection.rows(_Q.find_train_hops, candidate_id=candidate_id)
    hashes = [h["state_out"].hex() for h in hops]
    if state_hash not in hashes:
        raise StateNotFound(f"Candidate {candidate_id} has no hop that left {state_hash[:12]}.")
    position = hashes.index(state_hash)
    part_id = hops[position]["part_id"]
    state = states.read_in_flight(connection, part_id, candidate_id, state_hash)
    if state is not None:
        return state_hash, state, []
    durable = {
        c["state_hash"].hex(): c["part_id"] for c in states.checkpoints(connection, candidate_id)
    }
    for k in range(position, -1, -1):
        if hashes[k] in durable:
            part_id = durable[hashes[k]]
            state = states.read_checkpoint(connection, part_id, candidate_id, hashes[k])
            return hashes[k], state, _replays(hops, parts, k + 1, position)
    return None, None, _replays(hops, parts, 0, position)


def _replays(
    hops: Sequence[Row], parts: Sequence[Row], first: int, last: int
) -> list[HopStep]:
    keys = {p["part_id"]: p["content_hash"].hex() for p in parts}
    trains = sum(p["role"] == "train" for p in parts)
    return [
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
    ]


def record(
    connection: Connection,
    prepared: Prepared,
    result: HopResult,
    state: bytes | None,
    timing: Timing,
) -> dict[str, Any]:
    """Write the hop's row and its state, and return the row. The caller commits.

    Args:
        state: the encoded new state; None after a validation.
    """
    begun = perf_counter()
    _store(connection, prepared, result, state)
    step, finished = prepared.spec.step, time()
    connection.run(
        _Q.add_hop,
        part_id=step.part_id,
        candidate_id=prepared.spec.candidate.candidate_id,
        epoch=step.epoch,
        ordinal=step.ordinal,
        seed=step.seed,
        row_count=result.rows,
        steps=result.steps,
        loss=result.loss,
        metrics=json.dumps(result.metrics),
        read_s=timing.read_s,
        load_s=result.load_s + timing.load_s,
        compute_s=result.compute_s,
        store_s=result.encode_s + perf_counter() - begun,
        total_s=finished - timing.started,
        state_in=bytes.fromhex(result.state_in),
        state_out=bytes.fromhex(result.state_out),
        state_bytes=len(state or b""),
        worker=timing.worker,
        node=platform.node(),
        device=result.device,
        environment=result.environment,
        started=timing.started,
        finished=finished,
    )
    row = stored_hop(connection, step.part_id, prepared.spec.candidate.candidate_id, step.epoch)
    assert row is not None
    return row


def _store(
    connection: Connection, prepared: Prepared, result: HopResult, state: bytes | None
) -> None:
    """Leave the new state where the next hop finds it: durable at an epoch's end, else not."""
    step, candidate_id = prepared.spec.step, prepared.spec.candidate.candidate_id
    if state is None:
        _prune(connection, prepared.spec, result)
    elif step.ends_epoch:
        states.write_checkpoint(
            connection, step.part_id, candidate_id, step.epoch, result.state_out, state
        )
        states.drop_in_flight(connection, candidate_id)
        if not prepared.validates:
            states.prune_checkpoints(connection, candidate_id, {result.state_out})
    else:
        states.write_in_flight(connection, step.part_id, candidate_id, result.state_out, state)


def _prune(connection: Connection, spec: HopSpec, result: HopResult) -> None:
    """Keep the last and the best checkpoint, now that the last one is validated."""
    candidate = spec.candidate
    rows = connection.rows(_Q.find_validations, candidate_id=candidate.candidate_id)
    now = {
        "metrics": json.dumps(result.metrics),
        "state_out": bytes.fromhex(result.state_out),
    }
    best = best_epoch([*rows, now], candidate.task)
    assert best is not None
    keep = {result.state_out, best["state_out"].hex()}
    states.prune_checkpoints(connection, candidate.candidate_id, keep)
