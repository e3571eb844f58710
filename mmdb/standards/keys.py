"""The keys of the views, which the database itself cannot declare."""

from __future__ import annotations

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load


def declared_keys(connection: Connection) -> list[Row]:
    """Return the columns of each: view_name, key, column_name, kind, refers_to, refers_column."""
    return connection.rows(load("standards").find_view_keys)
