"""From a database URL to an open connection."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from mmdb.db.check import shown
from mmdb.db.duck import DuckConnection
from mmdb.db.postgres import PostgresConnection
from mmdb.errors import WrongUrl

AnyConnection = PostgresConnection | DuckConnection


def connect(url: str, *, application_name: str = "mmdb") -> AnyConnection:
    """Open `postgresql://user@host:port/database` or `duckdb:///path/file.duckdb`.

    `duckdb://` alone, or `duckdb:///:memory:`, is a database in memory.

    Raises:
        WrongUrl: the URL is of no known form, or nothing answers there.
        DatabaseLocked: another process has the DuckDB file open.
    """
    if not isinstance(url, str):
        raise WrongUrl(f"{url!r} is not a database URL.")
    try:
        scheme = urlsplit(url).scheme if "://" in url else ""
    except ValueError as error:
        raise WrongUrl(f"{shown(url)!r} is not a database URL: {error}.") from error
    if scheme in ("postgresql", "postgres"):
        return PostgresConnection(url, application_name=application_name)
    if scheme == "duckdb":
        if "?" in url:
            raise WrongUrl(
                f"{url!r} has options, and a DuckDB URL takes none.",
                hint="Write a ? that belongs to the file's name as %3F.",
            )
        rest = unquote(url.removeprefix("duckdb://"))
        return DuckConnection(rest.removeprefix("/") or ":memory:")
    raise WrongUrl(f"{shown(url)!r} is not a database URL.")
