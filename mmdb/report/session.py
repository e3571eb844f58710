"""A session that only reads views, so that whoever may do no more can make a report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mmdb.db.duck import DuckConnection
from mmdb.db.install import ensure_duckdb, is_installed
from mmdb.db.url import AnyConnection, connect
from mmdb.errors import NotInstalled


@contextmanager
def reading(url: str) -> Iterator[AnyConnection]:
    """Open a database for reports.

    Raises:
        WrongUrl, DatabaseLocked, NotInstalled, MigrationMismatch
    """
    connection = connect(url)
    try:
        if isinstance(connection, DuckConnection):
            ensure_duckdb(connection)
        elif not is_installed(connection):
            raise NotInstalled("mmdb is not installed in this database.")
        yield connection
    finally:
        connection.close()
