"""A session that only reads views, so that whoever may do no more can make a report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from mmdb.db.duck import DuckConnection
from mmdb.db.install import ensure_duckdb, is_installed
from mmdb.db.url import AnyConnection, connect
from mmdb.errors import NotInstalled, WrongUrl


@contextmanager
def connected_to_read(url: str) -> Iterator[AnyConnection]:
    """Open a database for reports.

    Raises:
        WrongUrl, DatabaseLocked, NotInstalled, MigrationMismatch
    """
    connection = connect_to_read(url)
    try:
        if isinstance(connection, DuckConnection):
            ensure_duckdb(connection)
        elif not is_installed(connection):
            raise NotInstalled("mmdb is not installed in this database.")
        yield connection
    finally:
        connection.close()


def connect_to_read(url: str) -> AnyConnection:
    """Open a database that is there: a DuckDB file is not made.

    Raises:
        WrongUrl, DatabaseLocked
    """
    file = unquote(url.removeprefix("duckdb://")).removeprefix("/")
    if url.startswith("duckdb:///") and file not in ("", ":memory:") and not Path(file).exists():
        raise WrongUrl(f"There is no file {file}.", hint="`mmdb install URL` makes one.")
    return connect(url)
