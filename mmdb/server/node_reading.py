"""Where a session reads models: on a node of a cluster, over a connection of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from mmdb.db.queries import load
from mmdb.server.backend import Backend
from mmdb.server.plpy_connection import PlpyConnection


@contextmanager
def reading(backend: Backend) -> Iterator[Backend]:
    """Yield what reads models: on a node, a session with the coordinator, as Citus opens them.

    A node's transaction that writes is prepared, and Citus forgets then which connections it has
    read over but not that it has: the next COMMIT PREPARED may end the server.
    """
    connection = backend.connection
    found = []
    if isinstance(connection, PlpyConnection) and connection.is_spread:
        found = connection.rows(load("nodes").find_coordinator)
    if not found:
        yield backend
        return
    from psycopg.conninfo import make_conninfo  # a driver, which no other session loads

    from mmdb.db.postgres import PostgresConnection

    where = dict(found[0])
    url = make_conninfo(where.pop("conninfo") or "", user=where.pop("login"), **where)
    with closing(PostgresConnection(url, application_name="mmdb node")) as session:
        session.threads = 0  # they would take the server's signals
        other: Any = copy.copy(backend)
        other.connection = session
        yield other
