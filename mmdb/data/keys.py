"""Key columns of a query: those that are named, and an `id` that `SELECT *` brings along."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from mmdb.data.options import Options
from mmdb.data.query import parse_select
from mmdb.db.connection import ColumnType, Connection
from mmdb.db.queries import quote_name
from mmdb.errors import DataError

#: The column that is taken for a key, where it is unique.
ID = "id"


def with_keys(
    connection: Connection,
    written: str,
    select: str,
    columns: Sequence[tuple[str, ColumnType]],
    label: str,
    options: Options,
    say: Callable[[str], None],
) -> Options:
    """Return options in which every key has its role.

    Args:
        written: the query as it was written.
        select: the query with parts of its columns, ready to be put in parentheses.
        say: is told of a key that nobody named.
    Raises:
        DataError: a key that was named is not unique, or NULL somewhere.
    """
    known = {name for name, kind in columns if kind in ("integer", "text")}
    named = [name for name, role in options.roles.items() if role == "key"]
    for name in named:
        if name in dict(columns) and not _is_unique(connection, select, name):
            raise DataError(
                f"Column {name!r} is no key: it is NULL somewhere, or two rows share a value.",
                hint="Give it the role excluded, or make the query return each row once.",
            )
    is_spoken_for = {*options.roles, *options.transforms, *options.tokenize, label, *options.labels}
    is_spoken_for.update(name for names in options.inputs.values() for name in names)
    if ID not in known - is_spoken_for or len(columns) < 3 or not _is_star(connection, written):
        return options
    if not _is_unique(connection, select, ID):
        return options
    say(
        f"Column {ID!r} is different in every row and is taken for a key: models do not read it. "
        f'To have them read it, pass options {{"roles": {{"{ID}": "feature"}}}}.'
    )
    return replace(options, roles={**options.roles, ID: "key"})


def _is_star(connection: Connection, select: str) -> bool:
    _, statement = parse_select(select, connection.engine)
    return isinstance(statement, exp.Select) and any(one.is_star for one in statement.expressions)


def _is_unique(connection: Connection, select: str, name: str) -> bool:
    counts = f"count(*)::bigint AS n, count(DISTINCT {quote_name(name)})::bigint AS distinct_n"
    with connection.snapshot():
        (batch,) = connection.scan(
            f"SELECT {counts} FROM ({select}\n) AS q", [("n", "bigint"), ("distinct_n", "bigint")]
        )
    return bool(batch["n"][0] == batch["distinct_n"][0])
