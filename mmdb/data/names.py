"""Names that users give to datasets, runs, models and factories."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from mmdb.errors import InvalidName, RunNotFound
from mmdb.messages import show

if TYPE_CHECKING:  # names are checked where no database is read
    from mmdb.db.connection import Row

_NAME = re.compile(r"[\w\-./]{1,200}", re.ASCII)
_REFERENCE = re.compile(r"(?P<name>[^@]+)(?:@(?:(?P<version>[0-9]{1,9})|(?P<alias>[^@]+)))?")


class Reference(NamedTuple):
    """A model as people name it: `name`, `name@version` or `name@alias`."""

    name: str
    version: int | None = None
    alias: str | None = None


def is_name(text: object) -> TypeGuard[str]:
    """Return whether a text may name something; a query may not."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def is_dataset(text: object) -> TypeGuard[str]:
    """Return whether a text names a dataset or a version of one, as a query does not."""
    asked = reference_of(text)
    return asked is not None and is_name(asked.name) and asked.alias is None


def check_name(name: object) -> str:
    """Return `name` if it may name something.

    Raises:
        InvalidName
    """
    if not is_name(name):
        raise InvalidName(f"{show(name)} cannot be a name.")
    return name


def reference_of(text: object) -> Reference | None:
    """Return the parts of a model's reference, or None where it is none.

    >>> reference_of("resnet@3"), reference_of("resnet@best").alias, reference_of("a@b@c")
    (Reference(name='resnet', version=3, alias=None), 'best', None)
    """
    match = _REFERENCE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    version = match["version"]
    return Reference(match["name"], None if version is None else int(version), match["alias"])


def found_run(rows: Sequence[Row], name: object) -> Row:
    """Return the first row of a run that somebody named.

    Raises:
        RunNotFound: there is none.
    """
    if not rows:
        raise RunNotFound(f"There is no run named {show(name)}.")
    return rows[0]
