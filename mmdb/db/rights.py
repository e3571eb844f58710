"""What PostgreSQL's "insufficient privilege" means to somebody who calls mmdb."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mmdb.db.target import quote_name
from mmdb.errors import FactoryNotAllowed, MmdbError, RightsMissing

#: PostgreSQL's SQLSTATE for a right that is missing.
DENIED = "42501"

_OBJECT = re.compile(
    r"permission denied for (?:(?:foreign |materialized )?(?:table|view)"
    r"|(?P<kind>schema|function|procedure|sequence|type)) (?P<name>.+)",
    re.DOTALL,
)
#: The right that a query needs on what is no table.
_RIGHTS = {"schema": "USAGE", "sequence": "USAGE", "type": "USAGE"}


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
