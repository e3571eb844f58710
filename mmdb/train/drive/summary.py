"""What a run came to: its best candidate, saved as a model here or in the server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmdb.db.connection import Connection, Row
from mmdb.db.install import installed_mode
from mmdb.db.queries import load
from mmdb.errors import FactoryFailed, RunFailed
from mmdb.train.replay.saving import save_candidate


def save_on_either_side(
    connection: Connection,
    candidate_id: int,
    name: str,
    *,
    approach: str = "auto",
    options: Mapping[str, Any] | None = None,
) -> Row:
    """Save a candidate as `save_candidate` does, in the server where it cannot be built here.

    Here comes first: the session that saves may not have torch loaded in the server.
    """
    try:
        return save_candidate(connection, candidate_id, name, approach=approach, options=options)
    except FactoryFailed:
        if connection.engine != "postgres" or installed_mode(connection) == "client":
            raise
    (row,) = connection.rows(
        load("api").save_candidate,
        candidate_id=candidate_id,
        name=name,
        approach=approach,
        options=json.dumps(options or {}),
    )
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run came to."""

    run: str
    candidates: int
    failed: int
    hops: int  # done by this call, validations included
    seconds: float
    best_candidate_id: int
    model: str
    version: int


def summarise(connection: Connection, name: str, hops: int, seconds: float) -> Summary:
    """Save the head of the leaderboard under the run's name, once, and sum the run up.

    Args:
        hops, seconds: of the driver's call.
    Raises:
        RunFailed: every candidate has failed.
        FactoryFailed: the best one's code can be imported neither here nor in the server.
    """
    best = connection.rows(load("runs").best_candidate, name=name)
    if not best:
        raise RunFailed(f"Every candidate of run {name!r} has failed.")
    model = save_on_either_side(connection, best[0]["candidate_id"], name)
    (counted,) = connection.rows(load("runs").count_candidates, name=name)
    return Summary(
        run=name,
        candidates=counted["candidates"],
        failed=counted["failed"],
        hops=hops,
        seconds=seconds,
        best_candidate_id=best[0]["candidate_id"],
        model=model["name"],
        version=model["version"],
    )
