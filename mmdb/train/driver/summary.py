"""What a run came to: its best candidate, saved as a model."""

from __future__ import annotations

from dataclasses import dataclass

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import RunFailed
from mmdb.train.recipe.either_side import save_on_either_side


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
