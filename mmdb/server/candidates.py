"""`stop_candidate`, `resume_candidate` and `clone_candidate`."""

from __future__ import annotations

from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend, exposed


@exposed
def stop_candidate(backend: Backend, candidate_id: int) -> int:
    """Ask for a candidate's end; return the request's id."""
    from mmdb.train.drive.run_requests import ask  # imports torch

    return ask(backend.connection, candidate_id, "stop")


@exposed
def resume_candidate(backend: Backend, candidate_id: int) -> int:
    """Ask for a candidate's going on; return the request's id."""
    from mmdb.train.drive.run_requests import ask  # imports torch

    return ask(backend.connection, candidate_id, "resume")


@exposed
def clone_candidate(backend: Backend, candidate_id: int, config: str) -> int:
    """Clone a candidate; see `mmdb.train.drive.clone.clone_candidate`. Return the clone's id."""
    from mmdb.train.drive import clone  # imports torch

    changes = json_object(config, "config")
    return clone.clone_candidate(backend.connection, candidate_id, changes)[0]
