"""Names that users give to datasets, runs, models and factories, and the model that one names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from mmdb.db.queries import load
from mmdb.errors import InvalidName, ModelNotFound, RunNotFound
from mmdb.messages import show

if TYPE_CHECKING:  # names are checked where no database is read
    from mmdb.db.connection import Connection, Row

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


def find_model_id(connection: Connection, reference: str) -> int:
    """Return the number of the model that a reference names now.

    Raises:
        ModelNotFound
    """
    asked, queries = reference_of(reference), load("models")
    found: Sequence[Row] = []
    if asked and asked.version is not None:
        found = connection.rows(queries.find_version, name=asked.name, version=asked.version)
    elif asked and asked.alias:
        found = connection.rows(queries.find_aliased, name=asked.name, alias=asked.alias)
    elif asked:
        found = connection.rows(queries.find_newest, name=asked.name)
    if not found:
        raise ModelNotFound(f"There is no model {show(reference)}.")
    return int(found[0]["model_id"])
