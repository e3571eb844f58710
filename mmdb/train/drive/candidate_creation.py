"""Adds candidates to runs that exist: new ones, and clones of others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.db.totals import unseal
from mmdb.errors import (
    CandidateNotFound,
    DatasetDropped,
    InvalidHyperparameter,
    StateNotFound,
    WriteConflict,
)
from mmdb.messages import show
from mmdb.store import states
from mmdb.train.candidate.config import architecture_hash
from mmdb.train.drive.run_creation import check_config
from mmdb.train.drive.run_requests import refuse_dropped
from mmdb.train.values.seeds import candidate_seed
from mmdb.train.warm.warm_options import OFF

_Q = load("runs")


def add_candidate(
    connection: Connection,
    run_id: int,
    config: Mapping[str, Any],
    *,
    parent: int | None = None,
    epoch: int | None = None,
) -> tuple[int, int]:
    """Add a candidate to a run, in the caller's transaction; return its ordinal and id.

    Args:
        parent: ordinal of the candidate from whose state it starts; None for fresh weights.
        epoch: epochs that the parent has done in that state; its last one if it is gone.
    Raises:
        WriteConflict: another session takes the same ordinal, or drops the parent's checkpoint.
        StateNotFound: the parent has no checkpoint.
    """
    (run,) = connection.rows(_Q.find_new_candidate, run_id=run_id)
    first = json.loads(run["options"]).get("first_candidate", 0)
    (row,) = connection.rows(_Q.next_ordinal, run_id=run_id)
    ordinal = int(row["ordinal"])
    origin: dict[str, Any] = {"parent_id": None, "parent_state": None}
    if parent is not None:
        found = connection.rows(_Q.find_new_candidates, run_id=run_id, ordinal=parent)
        parent_id = found[0]["candidate_id"]
        origin = {"parent_id": parent_id, "parent_state": _state(connection, parent_id, epoch)}
    (made,) = connection.rows(
        _Q.add_candidate,
        run_id=run_id,
        ordinal=ordinal,
        config=json.dumps(config),
        seed=candidate_seed(run["seed"], first + ordinal),
        architecture_hash=architecture_hash(json.loads(run["architecture"]), config),
        **origin,
    )
    if parent is not None:
        key = {"candidate_id": made["candidate_id"], "parent_id": origin["parent_id"]}
        # The parent may train on and drop that checkpoint: if its row is there after its chunks
        # were read, then they were whole.
        for query in (_Q.copy_checkpoint_chunks, _Q.copy_checkpoint):
            connection.run(query, **key, state_hash=origin["parent_state"])
        if not states.checkpoints(connection, made["candidate_id"]):
            raise WriteConflict(
                "The parent has just dropped the checkpoint that was to be copied.",
                hint="Clone it again: it has a newer one.",
            )
        if run["warm_start"] != OFF:
            connection.run(_Q.inherit_warm_start, **key)
    return ordinal, int(made["candidate_id"])


def _state(connection: Connection, parent_id: int, epoch: int | None) -> bytes:
    """Return the hash of the parent's checkpoint of an epoch, or of its last."""
    found = [c for c in states.checkpoints(connection, parent_id) if c["epoch"] >= 0]
    if not found:
        raise StateNotFound(
            f"Candidate {parent_id} has no checkpoint yet.",
            hint="A checkpoint is made at the end of each epoch.",
        )
    wanted = [c for c in found if epoch is not None and c["epoch"] == epoch - 1]
    return bytes((wanted or found)[-1]["state_hash"])


def clone_candidate(
    connection: Connection, candidate_id: int, changes: Mapping[str, Any]
) -> tuple[int, int]:
    """Add a clone of a candidate to its run: its last checkpoint, its configuration but `changes`.

    A driver that trains the run takes it up; else the next one does.

    Returns:
        The clone's candidate_id and ordinal.
    Raises:
        CandidateNotFound, RunNotFound, StateNotFound, DatasetDropped, InvalidHyperparameter
    """
    from mmdb.train.features.feature_planning import check_same_frozen

    rows = connection.rows(load("hops").find_candidate, candidate_id=candidate_id)
    if not rows:
        raise CandidateNotFound(f"Candidate {show(candidate_id)} does not exist.")
    parent = rows[0]
    refuse_dropped(parent)
    config = json.loads(parent["config"])
    fixed = sorted(key for key in changes if key.startswith("architecture."))
    if fixed:
        raise InvalidHyperparameter(
            f"A clone cannot change {fixed[0]!r}.",
            hint="It goes on from its parent's weights, which fit the parent's architecture.",
        )
    if dropped(connection, parent):
        raise DatasetDropped(f"Dataset {parent['dataset']!r} has been dropped.")
    check_same_frozen(config, changes)
    config |= changes
    check_config(connection, parent, config)
    with connection.transaction():
        ordinal, made = add_candidate(
            connection, parent["run_id"], config, parent=parent["ordinal"]
        )
        unseal(connection, parent["run_id"])
    return made, ordinal


def dropped(connection: Connection, candidate: Row) -> bool:
    """Return whether the dataset of a candidate is gone."""
    key = {"candidate_id": candidate["candidate_id"], "dataset_id": candidate["dataset_id"]}
    return bool(connection.rows(load("hops").find_end, **key)[0]["dropped"])
