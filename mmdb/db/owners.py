"""Whose datasets, runs and models are, and how much an owner may use; docs/roles.md.

Row security keeps teams apart inside PostgreSQL (sql/engines/postgres_teams.sql). Here stands what
it cannot see: who may drop what without teams, work that one role does for another, and sums.
DuckDB has no roles and no limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import LimitReached, RightsMissing

_Q = load("owners")


@contextmanager
def acting_for(connection: Connection, candidate_id: int) -> Iterator[None]:
    """Let what is saved within belong to the owner of a candidate's run, whoever trains it.

    The caller has begun the transaction.
    """
    if connection.engine != "postgres":
        yield
        return
    (before,) = connection.rows(_Q.find_team)
    (run,) = connection.rows(_Q.find_owner, candidate_id=candidate_id)
    connection.run(_Q.act_for, team=run["owner"] or before["team"])
    yield  # an error ends the transaction, and with it the setting
    connection.run(_Q.act_for, team=before["team"])


def readable(connection: Connection, model_ids: Iterable[int]) -> set[int]:
    """Return those of some models that the team may read for which this session acts."""
    wanted = list(model_ids)
    if connection.engine != "postgres" or not wanted:
        return set(wanted)
    return {row["model_id"] for row in connection.rows(_Q.find_readable, model_ids=wanted)}


def usable(connection: Connection, tensor_ids: Iterable[int]) -> list[int]:
    """Return those of some tensors that new rows of the team may name, the best first."""
    rows = connection.rows(_Q.find_usable, tensor_ids=list(tensor_ids))
    return [row["tensor_id"] for row in rows]


def may_replace(connection: Connection) -> bool:
    """Return whether this role may delete a tensor's chunks, so that they can be stored anew."""
    return connection.engine != "postgres" or bool(connection.rows(_Q.may_replace)[0]["may"])


def require_own(connection: Connection, run: str) -> None:
    """Check that a run which this role can see is also its own to train.

    Raises:
        RightsMissing: it is another team's, and shared.
    """
    if connection.engine == "postgres" and connection.rows(_Q.find_foreign, run=run):
        raise RightsMissing(
            f"Run {run!r} is another team's: it may be read, not trained.",
            hint="Create a run of your own on a dataset that you may read.",
        )


Kind = Literal["dataset", "run", "model"]


def owners_of_others(
    connection: Connection, kind: Kind, object_ids: Iterable[int]
) -> dict[int, str]:
    """Return the owners of those that this role may not drop, or overwrite what hangs on them."""
    wanted = list(object_ids)
    if connection.engine != "postgres" or not wanted:
        return {}
    found = connection.rows(_Q.find_others, kind=kind, object_ids=wanted)
    return {row["object_id"]: row["owner"] for row in found}


def require_owner(connection: Connection, kind: Kind, name: str, object_id: int) -> None:
    """Check that this role may drop a thing, or overwrite what hangs on it.

    Raises:
        RightsMissing: it is another role's.
    """
    owner = owners_of_others(connection, kind, [object_id]).get(object_id)
    if owner is not None:
        raise RightsMissing(
            f"{kind.capitalize()} {name!r} is {owner}'s.",
            hint=f"Ask {owner}, a member of that role, an admin or the owner of schema mmdb.",
        )


def check_bytes(connection: Connection) -> None:
    """Check what the owner of new rows keeps, those of this transaction included.

    Raises:
        LimitReached: it is more than its limit.
    """
    if connection.engine != "postgres":
        return
    for limit in connection.rows(_Q.find_limits):
        _check_bytes(connection, limit["owner"], limit["bytes"])


def check_start(connection: Connection, run_id: int, workers: int) -> None:
    """Check that a run may begin, or go on, with so many workers.

    Raises:
        LimitReached: its owner has no workers, seconds or bytes left for it.
    """
    if connection.engine != "postgres":
        return
    for limit in connection.rows(_Q.find_run_limits, run_id=run_id):
        owner, most = limit["owner"], limit["workers"]
        _check_bytes(connection, owner, limit["bytes"])
        if most is not None:
            (busy,) = connection.rows(_Q.measure_workers, owner=owner, run_id=run_id)
            if busy["workers"] + workers > most:
                raise LimitReached(
                    f"{owner} may have {most} workers at a time: {busy['workers']} are at work "
                    f"on other runs, and this one asks for {workers}."
                )
        if limit["seconds"] is not None:
            (spent,) = connection.rows(_Q.measure_seconds, owner=owner)
            if spent["seconds"] >= limit["seconds"]:
                raise LimitReached(
                    f"{owner} may train for {limit['seconds']:g} seconds in 24 hours: "
                    f"{spent['seconds']:.0f} are spent."
                )


def _check_bytes(connection: Connection, owner: str, most: int | None) -> None:
    if most is None:
        return
    (kept,) = connection.rows(_Q.measure_bytes, owner=owner)
    if kept["bytes"] > most:
        raise LimitReached(f"{owner} may keep {most:,} bytes: it would be {kept['bytes']:,}.")
