"""What people ask of single candidates while their run is trained, or before it is again."""

from __future__ import annotations

from typing import Literal

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import CandidateNotFound, CandidateStopped
from mmdb.messages import show
from mmdb.train.driver.drop import refuse_dropped


def ask(connection: Connection, candidate_id: int, request: Literal["stop", "resume"]) -> int:
    """Ask a candidate's driver to stop it or let it go on; return the request's id.

    The driver heeds it within a second; where none trains the run, the next one does.

    Raises:
        CandidateNotFound, RunNotFound: the run was dropped.
        CandidateStopped: it has failed, which neither mends.
    """
    rows = connection.rows(load("hops").find_candidate, candidate_id=candidate_id)
    if not rows:
        raise CandidateNotFound(f"Candidate {show(candidate_id)} does not exist.")
    refuse_dropped(rows[0])
    key = {"candidate_id": candidate_id, "dataset_id": rows[0]["dataset_id"]}
    error = connection.rows(load("hops").find_end, **key)[0]["error"]
    if error is not None:
        raise CandidateStopped(f"Candidate {candidate_id} has failed: {error}")
    query = load("runs").add_candidate_request
    return int(connection.rows(query, candidate_id=candidate_id, request=request)[0]["request_id"])
