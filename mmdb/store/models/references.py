"""Finds the model that a reference names, without loading torch."""

from __future__ import annotations

from collections.abc import Sequence

from mmdb.data.names import reference_of
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import ModelNotFound
from mmdb.messages import show

_Q = load("models")


def find_model_id(connection: Connection, reference: str) -> int:
    """Return the number of the model that a reference names now; see `model_rows.find_model`.

    Raises:
        ModelNotFound
    """
    asked = reference_of(reference)
    found: Sequence[Row] = []
    if asked and asked.version is not None:
        found = connection.rows(_Q.find_version, name=asked.name, version=asked.version)
    elif asked and asked.alias:
        found = connection.rows(_Q.find_aliased, name=asked.name, alias=asked.alias)
    elif asked:
        found = connection.rows(_Q.find_newest, name=asked.name)
    if not found:
        raise ModelNotFound(f"There is no model {show(reference)}.")
    return int(found[0]["model_id"])
