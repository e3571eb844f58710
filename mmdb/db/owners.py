"""Whose datasets, runs and models are, what an owner may use, and what refusals mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

from mmdb.db.connection import Connection
from mmdb.db.queries import load, quote_name
from mmdb.errors import (
    DatabaseFailed,
    FactoryNotAllowed,
    InvalidOption,
    LimitReached,
    LockHeld,
    MmdbError,
    ReadOnly,
    RightsMissing,
)

#: PostgreSQL's SQLSTATEs for a right that is missing, a row that a CHECK refuses, a lock that
#: others hold for too long, and a write where nothing is written.
DENIED, OUT_OF_RANGE, LOCKED, ONLY_READS = "42501", "23514", "55P03", "25006"
_READ_ONLY = (
    "The server is a standby, or this session only reads. Of several hosts in a URL, "
    "target_session_attrs=read-write leads to the one that takes writes."
)

#: How long a session waits for a lock, unless it says otherwise itself.
LOCK_TIMEOUT = "60s"
_PASSWORD = (
    "The server's process opens the login: keep its password in .pgpass of the server's user, or "
    "in a file that passfile= or a service names there; docs/running.md."
)
#: A constraint of sql/engines/postgres_checks.sql.
_RANGE = re.compile(r'relation "(\w+?)(?:_\d)?" violates check constraint "\1_(\w+)_range"')
_OBJECT = re.compile(
    r"permission denied for (?:(?:foreign |materialized )?(?:table|view)"
    r"|(?P<kind>schema|function|procedure|sequence|type)) (?P<name>.+)",
    re.DOTALL,
)
#: The right that a query needs on what is no table.
_RIGHTS = {"schema": "USAGE", "sequence": "USAGE", "type": "USAGE"}


def refusal(state: str, text: str) -> MmdbError | None:
    """Return the error that PostgreSQL's SQLSTATE and message stand for, if it is a refusal."""
    if state == DENIED:
        return rights_error(text)
    if state == OUT_OF_RANGE:
        return range_error(text)
    if state == ONLY_READS:
        return ReadOnly(text, hint=_READ_ONLY)
    return LockHeld(text) if state == LOCKED else None


def range_error(text: str) -> MmdbError:
    """Return the error that a message of SQLSTATE 23514 stands for.

    >>> range_error('new row for relation "hop" violates check constraint "hop_loss_range"').message
    'mmdb.hop holds no such loss.'
    """
    found = _RANGE.search(text)
    if "setting_password_check" in text:
        return InvalidOption("mmdb.setting holds no password.", hint=_PASSWORD)
    if not found:
        return DatabaseFailed(text)
    hint = "It is beyond the range, the size or the shape of what mmdb keeps: docs/operations.md."
    return InvalidOption(f"mmdb.{found[1]} holds no such {found[2]}.", hint=hint)


#: What ends a refusal of SQLSTATE 42501, by what its message says; the first that fits.
_DENIED = {
    "function register_": "Ask the owner of schema mmdb to call it, or an admin: docs/roles.md.",
    "would be affected by row-level security": "SET row_security = on: mmdb chooses rows by it.",
    "row-level security": "The row is another team's or would be everybody's, its name is taken by "
    "another team, or the owner has not allowed it: docs/roles.md.",
    "for table": "A table of mmdb's is its owner's alone: views show what is in it and functions "
    "change it, docs/roles.md; a right on another table is its owner's to GRANT.",
    "may not act for": "A member of that role may; or RESET mmdb.team, if you have set it.",
    "foreign key": "Call mmdb from a statement of its own, not from a trigger of that table.",
}


def rights_error(text: str) -> MmdbError:
    """Return the error that a message of SQLSTATE 42501 stands for."""
    if "register_factory" in text:
        return FactoryNotAllowed()
    for said, hint in _DENIED.items():
        if said in text:
            return RightsMissing(text, hint=hint)
    if "for schema" in text and "schema mmdb" not in text:
        hint = "The role needs a right on that schema: GRANT CREATE, USAGE ON SCHEMA … TO the role."
        return RightsMissing(text, hint=hint)
    return RightsMissing(text)


@contextmanager
def on_own_tables(right: str, role: Callable[[], str]) -> Iterator[None]:
    """Say which right on the user's own tables a statement lacks: no role of mmdb's gives it.

    Args:
        right: that the statement needs on tables: SELECT or INSERT.
        role: returns the role that the statement ran as.

    Raises:
        RightsMissing
    """
    try:
        yield
    except Exception as error:
        if getattr(error, "sqlstate", None) != DENIED:
            raise
        diag = getattr(error, "diag", None)
        text = (diag.message_primary if diag else None) or str(error)
        raise RightsMissing(text, hint=grant(text, right, role())) from error


def grant(text: str, right: str, role: str) -> str:
    """Return how to mend a missing right on an object of the user's.

    >>> grant("permission denied for table orders", "SELECT", "ann")
    'GRANT SELECT ON "orders" TO "ann"; where a view reads it, TO the owner of the view.'
    >>> grant("permission denied for schema shop", "SELECT", "ann")
    'GRANT USAGE ON SCHEMA "shop" TO "ann"; where a view reads it, TO the owner of the view.'
    """
    found = _OBJECT.fullmatch(text)
    if not found:
        return f'"{role}" lacks a right on what the statement names: its owner may GRANT it.'
    kind, what = found["kind"], quote_name(found["name"])
    if kind:
        right, what = _RIGHTS.get(kind, "EXECUTE"), f"{kind.upper()} {what}"
    view = "; where a view reads it, TO the owner of the view" if right != "INSERT" else ""
    return f"GRANT {right} ON {what} TO {quote_name(role)}{view}."


_Q = load("owners")


@contextmanager
def acting_for(connection: Connection, candidate_id: int) -> Iterator[None]:
    """Let what is saved within belong to the owner of a candidate's run, whoever trains it.

    The caller has begun the transaction.
    """
    has_owners = connection.engine == "postgres"
    found = connection.rows(_Q.find_owner, candidate_id=candidate_id) if has_owners else []
    with acting_as(connection, found[0]["owner"] if found else None):
        yield


@contextmanager
def acting_as(
    connection: Connection, owner: str | None, *, or_refuse: bool = False
) -> Iterator[None]:
    """Let what is added within belong to a role; None: to whom it would belong anyway.

    It is the caller's own where that one may not act for the role: an admin or a worker for a
    superuser, or a trainer, where there are no teams, for another one. A transaction has begun.

    Args:
        or_refuse: the server refuses such a row instead.
    """
    if not owner or connection.engine != "postgres":
        yield
        return
    (me,) = connection.rows(_Q.find_actor)
    role = {"owner": owner, "caller": me["caller"], "serves": me["serves"]}
    if or_refuse or owner == "public" or connection.rows(_Q.find_principal, **role):
        connection.run(_Q.act_for, team=owner)
    yield  # an error ends the transaction, and with it the setting
    connection.run(_Q.act_for, team=me["team"])


def readable(connection: Connection, model_ids: Iterable[int]) -> set[int]:
    """Return the models, of those given, that the session's team may read."""
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


def require_author(connection: Connection, name: str, dataset_id: int) -> None:
    """Check that a dataset's query may run with this role's rights: that it is no stranger's text.

    Raises:
        RightsMissing: it is another role's.
    """
    if connection.engine != "postgres":
        return
    for row in connection.rows(_Q.find_author, dataset_id=dataset_id):
        author = row["author"]
        if connection.rows(_Q.find_stranger, author=author, caller=row["caller"]):
            raise RightsMissing(
                f"The query of dataset {name!r} is {author}'s, and would run with your rights.",
                hint=f"Ask {author}, or a member of that role who is no superuser.",
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
