"""Which rows of a dataset's query a refresh reads: all, or those that a growing column tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mmdb.data.query.names import fold
from mmdb.db.connection import Connection
from mmdb.db.queries import quote_name, quote_text
from mmdb.errors import UnknownColumn


@dataclass(frozen=True, slots=True)
class RowsToRead:
    """A SELECT of rows, and what is known of them.

    Attributes:
        column: whose values only grow; None: there is none.
        until: the greatest value of all rows that were read so far.
        are_new: whether none of them can be one that was read before.
    """

    select: str
    column: str | None = None
    until: str | None = None
    sees_all: bool = True
    are_new: bool = False


def rows_to_read(
    connection: Connection,
    select: str,
    grows: str | None,
    before: Mapping[str, Any],
    keys: Sequence[str],
) -> RowsToRead:
    """Return the rows of a query that are read: all of them, or those not seen yet.

    All rows up to the greatest value are read, and none beyond, even where one is added meanwhile.
    Where the column is the rows' key, all beyond the last such value are new.

    Args:
        grows: the column that is asked for; None: read all, and say how far it has grown.
        before: what the last version says of its refresh.
        keys: columns that are the rows' key.
    Raises:
        UnknownColumn
    """
    column, last = grows or before.get("grows"), before.get("grows") or ""
    if column is None:
        return RowsToRead(select)
    name, folded = quote_name(column), partial(fold, engine=connection.engine, is_quoted=True)
    if folded(column) not in {folded(one) for one, _ in connection.columns(select)}:
        if grows is None:
            return RowsToRead(select)
        raise UnknownColumn(f"The query returns no column {column!r} that could grow.")
    since = before.get("until") if grows and folded(last) == folded(grows) else None
    is_key, bounds = [folded(key) for key in keys] == [folded(column)], []
    if since is not None:
        bounds.append(f"{name} {'>' if is_key else '>='} {quote_text(since)}")
    until = _greatest(connection, _where(select, name, bounds), name)
    if until is not None:
        bounds.append(f"{name} <= {quote_text(until)}")
    return RowsToRead(
        _where(select, name, bounds),
        column,
        until or since,
        sees_all=since is None,
        are_new=since is not None and is_key,
    )


def _greatest(connection: Connection, select: str, name: str) -> str | None:
    greatest = f"max({name})::text"
    if connection.engine == "postgres":  # a text that no setting of a session changes
        greatest = f"to_json(max({name})) #>> '{{}}'"
    statement = f"SELECT {greatest} AS found FROM ({select}\n) AS q"
    with connection.snapshot():
        (batch,) = connection.scan(statement, [("found", "nullable_text")])
    texts: Any = batch["found"]
    found: str | None = texts.distinct[texts.places[0]]
    return found


def _where(select: str, name: str, bounds: Sequence[str]) -> str:
    """Return the SELECT less rows out of bounds; one without a value is kept, to be refused."""
    if not bounds:
        return select
    return f"SELECT * FROM ({select}\n) AS q WHERE {' AND '.join(bounds)} OR {name} IS NULL"
