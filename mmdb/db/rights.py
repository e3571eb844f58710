"""What PostgreSQL's refusals mean to somebody who calls mmdb: a right, a range, a lock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mmdb.db.prediction_table import quote_name
from mmdb.errors import (
    DatabaseFailed,
    FactoryNotAllowed,
    InvalidOption,
    LockHeld,
    MmdbError,
    RightsMissing,
)

#: PostgreSQL's SQLSTATEs for a right that is missing, a row that a CHECK refuses, a lock that
#: others hold for too long.
DENIED, OUT_OF_RANGE, LOCKED = "42501", "23514", "55P03"

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


def rights_error(text: str) -> MmdbError:
    """Return the error that a message of SQLSTATE 42501 stands for."""
    if "register_factory" in text:
        return FactoryNotAllowed()
    if "function register_" in text:
        hint = "Ask the owner of schema mmdb to call it, or an admin: docs/roles.md."
        return RightsMissing(text, hint=hint)
    if "row-level security" in text:
        hint = (
            "The row is another team's or would be everybody's, its name is taken by another team, "
            "or the owner has not allowed it: docs/roles.md."
        )
        return RightsMissing(text, hint=hint)
    if "for table" in text:
        hint = (
            "A table of mmdb's is its owner's alone: views show what is in it and functions change "
            "it, docs/roles.md; a right on another table is its owner's to GRANT."
        )
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
