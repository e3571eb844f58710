"""The space of deleted rows: how much the store takes, and giving back what it does not need."""

from __future__ import annotations

import re
from contextlib import suppress

from mmdb.db.citus import find_cluster
from mmdb.db.duck import DuckConnection
from mmdb.db.queries import load, sql_directory
from mmdb.db.url import AnyConnection
from mmdb.errors import DatabaseFailed, InTransaction

_CHUNK_TABLE = re.compile(
    r"^(?:CREATE TABLE|COMMENT ON \w+|CREATE INDEX \w+ ON) mmdb\.tensor_chunk\b.*?;$",
    re.DOTALL | re.MULTILINE,
)
_CHUNK_TABLE_PLACE = "-- Here stands what duckdb.sql says of the table.\n"


def used_bytes(connection: AnyConnection) -> int:
    """Return the bytes of the store's tables, or those in use of a DuckDB file."""
    (row,) = connection.select(_text(connection, "_space"))
    return int(row["bytes"]) + _bytes_on_nodes(connection)


def _bytes_on_nodes(connection: AnyConnection) -> int:
    """Return the bytes of the store's shards; 0 where the tables lie on one server."""
    if find_cluster(connection) is None:
        return 0
    return int(connection.rows(load("citus").add_up_shards)[0]["bytes"])


def reclaim(connection: AnyConnection) -> None:
    """Make the space of deleted chunks free, for later saves and, where it can be, for others.

    PostgreSQL vacuums the tables, which only their owner may; DuckDB writes the chunks anew, which
    takes as long as writing them took and, for that time, as much space again. Its file is cut
    when it is closed; see `mmdb.db.shrink`.

    Raises:
        InTransaction
    """
    if connection.in_transaction:
        raise InTransaction(
            "Space is given back in a transaction of its own.", hint="COMMIT or ROLLBACK first."
        )
    script = _text(connection, "_reclaim")
    if not isinstance(connection, DuckConnection):
        connection.script(script)
        return
    table = "\n".join(_CHUNK_TABLE.findall(_text(connection, "")))
    with connection.transaction():
        connection.script(script.replace(_CHUNK_TABLE_PLACE, table + "\n"))
    connection.merge()
    connection.shrinks = True


def merge(connection: AnyConnection) -> None:
    """Merge the tables of a DuckDB file, unless somebody writes to it at the moment."""
    if isinstance(connection, DuckConnection):
        with suppress(DatabaseFailed):
            connection.merge()


def _text(connection: AnyConnection, what: str) -> str:
    return (sql_directory("sql/engines") / f"{connection.engine}{what}.sql").read_text()
