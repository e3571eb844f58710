"""Saving a candidate where its code can be imported: here, or in the server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mmdb.db.connection import Connection, Row
from mmdb.db.install import installed_mode
from mmdb.db.queries import load
from mmdb.errors import FactoryFailed
from mmdb.train.recipe.save import save_candidate


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
