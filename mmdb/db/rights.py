"""What PostgreSQL's "insufficient privilege" means to somebody who calls mmdb."""

from __future__ import annotations

from mmdb.errors import FactoryNotAllowed, MmdbError, RightsMissing

#: PostgreSQL's SQLSTATE for a right that is missing.
DENIED = "42501"


def rights_error(text: str) -> MmdbError:
    """Return the error that a message of SQLSTATE 42501 stands for."""
    if "register_factory" in text:
        return FactoryNotAllowed()
    if "row-level security" in text:
        hint = (
            "The row is another team's or would be everybody's, its name is taken by another team, "
            "or the owner has not allowed it: docs/roles.md."
        )
        return RightsMissing(text, hint=hint)
    if "for schema" in text and "schema mmdb" not in text:
        hint = "The role needs a right on that schema: GRANT CREATE, USAGE ON SCHEMA … TO the role."
        return RightsMissing(text, hint=hint)
    return RightsMissing(text)
