"""Saving a candidate's best checkpoint as a model."""

from __future__ import annotations

import json

from mmdb.data.names import check_name
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import CandidateNotFound, StateNotFound
from mmdb.store import states
from mmdb.store.models import save_model
from mmdb.train.config import ARCHITECTURE_PREFIX
from mmdb.train.live import weights
from mmdb.train.objective import best_epoch

_Q = load("hops")


def save_candidate(connection: Connection, candidate_id: int, name: str) -> Row:
    """Save a candidate's best validated epoch, or its last where none is validated.

    Returns:
        model_id, name and version.
    Raises:
        CandidateNotFound, StateNotFound, InvalidName
    """
    check_name(name)
    found = connection.rows(_Q.find_candidate, candidate_id=candidate_id)
    if not found:
        raise CandidateNotFound(f"Candidate {candidate_id} does not exist.")
    candidate = found[0]
    checkpoints = states.checkpoints(connection, candidate_id)
    validations = connection.rows(_Q.find_validations, candidate_id=candidate_id)
    best = best_epoch(validations, candidate["task"])
    wanted = best["state_out"] if best else None
    chosen = [c for c in checkpoints if wanted in (None, c["state_hash"])]
    if not chosen:
        raise StateNotFound(
            f"Candidate {candidate_id} has no checkpoint yet.",
            hint="A checkpoint is made at the end of each epoch.",
        )
    state = states.read_checkpoint(
        connection, chosen[-1]["part_id"], candidate_id, chosen[-1]["state_hash"].hex()
    )
    assert state is not None
    config = json.loads(candidate["config"])
    prefix = ARCHITECTURE_PREFIX
    return save_model(
        connection,
        name,
        weights(state),
        architecture=json.loads(candidate["architecture"]),
        arguments={k.removeprefix(prefix): v for k, v in config.items() if k.startswith(prefix)},
        dataset_id=candidate["dataset_id"],
        candidate_id=candidate_id,
        epoch=chosen[-1]["epoch"],
        metrics=json.loads(best["metrics"]) if best else {},
    )
