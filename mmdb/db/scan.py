"""The columns and the rows of the user's SELECT in PostgreSQL: by COPY, or by a PL/Python cursor.

This module imports no driver, so that the server loads none: sessions come as arguments, and
their errors are told apart by SQLSTATE or class name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import itemgetter
from typing import Any, TypeVar

from mmdb import errors
from mmdb.db.connection import SCAN_ROWS, Batch, ColumnType
from mmdb.db.queries import quote_name
from mmdb.db.row_formats import NULL_BITS, Field, Framing, in_arrays, row_parser
from mmdb.memory import ROW_BYTES, call_bytes, lifted, ran_out

#: A step holds about as many bytes, so that it stays in the processor's cache.
STEP_BYTES = 2 * 2**20
STEP_ROWS = min(8192, SCAN_ROWS)
#: Rows of the first step, which tells how long a row is.
FIRST_ROWS = 1

_Bytes = TypeVar("_Bytes", bytes, bytes | memoryview)

_COPY_SIGNATURE = b"PGCOPY\n\xff\r\n\0"
_COPY_END = b"\xff\xff"

_POSTGRES_TYPES = {
    **dict.fromkeys((20, 21, 23), "integer"),
    **dict.fromkeys((700, 701), "float"),
    1700: "numeric",
    16: "boolean",
    **dict.fromkeys((18, 19, 25, 1042, 1043), "text"),  # "char", name, text, char(n), varchar
    17: "bytes",
    **dict.fromkeys((1082, 1114, 1184), "moment"),  # date, timestamp, timestamptz
    1083: "clock",
    1186: "span",
    **dict.fromkeys((650, 829, 774, 2950), "text"),  # cidr, macaddr, macaddr8, uuid
    **dict.fromkeys((26, 142, 1560, 1562), "text"),  # oid, xml, bit, varbit
    **dict.fromkeys((1005, 1007, 1016, 1021, 1022, 1231), "float_array"),
}


def columns_postgres(session: Any, select: str) -> list[tuple[str, ColumnType]]:
    """Return name and type of the columns of a SELECT, over a psycopg connection.

    Raises:
        UnknownTable, UnknownColumn, NotASelect, QueryFailed: as the server says.
    """
    with session.cursor() as cursor:
        with said_by(_from_postgres):
            cursor.execute(f"SELECT * FROM ({select}\n) AS q LIMIT 0")
        described = [(column.name, column.type_code) for column in cursor.description or ()]
    return [(name, _POSTGRES_TYPES.get(oid) or _type_of(session, oid)) for name, oid in described]


def columns_plpy(plpy: Any, select: str) -> list[tuple[str, ColumnType]]:
    """Return name and type of the columns of a SELECT, inside the server."""
    with said_by(_from_postgres):
        result = plpy.execute(f"SELECT * FROM ({select}\n) AS q LIMIT 0")
    return [
        (name, _POSTGRES_TYPES.get(oid) or _type_of_inside(plpy, oid))
        for name, oid in zip(result.colnames(), result.coltypes(), strict=True)
    ]


def refused_by_postgres() -> AbstractContextManager[None]:
    """Let a server's errors within say what is wrong with the statement of the user's."""
    return said_by(_from_postgres)


def prepare_plpy(plpy: Any, statement: str) -> None:
    """Check that a text is one statement, inside the server; see Connection.prepare."""
    from mmdb.db.ddl import split_statements  # a session that predicts loads no parser

    require_one(len(split_statements(statement)))
    with said_by(_from_postgres):
        plpy.prepare(statement)


def require_one(count: int) -> None:
    """Raise NotOneStatement unless there is one."""
    if count != 1:
        text = f"The text holds {count or 'no'} statement{'s' * (count != 1)}."
        raise errors.NotOneStatement(text, hint="Pass exactly one statement.")


def scan_copy(session: Any, select: str, kinds: Sequence[Field]) -> Iterator[Batch]:
    """Yield the rows of a SELECT over a psycopg connection; see Connection.scan."""

    def ask(query: str) -> Any:
        with session.cursor() as cursor:
            row = cursor.execute(query).fetchone()
            return row["found"] if isinstance(row, dict) else row[0]

    framing: Framing = "arrays" if _has_arrays(ask, kinds) else "copy"
    parser = row_parser(kinds, framing)
    wire = _wire_select(select, kinds, framing)
    with session.cursor() as cursor, said_by(_from_postgres):
        for step in _steps(_streamed(cursor, wire, kinds, framing)):
            yield parser.parse(step)


def _streamed(
    cursor: Any, wire: str, kinds: Sequence[Field], framing: Framing
) -> Iterator[bytes | memoryview]:
    """Yield rows as they come: those of numbers alone many at a time, which takes a third of COPY.

    Rows that may be of any length come one by one, and all with a libpq older than 17.
    """
    from psycopg import capabilities  # whose session it is: the server never comes here

    is_short = framing == "arrays" and not any(kind in _SIZES for _, kind in kinds)
    if is_short and capabilities.has_stream_chunked():
        cursor.row_factory = lambda _: itemgetter(0)
        yield from cursor.stream(wire, binary=True, size=_step_rows(8 * len(kinds)))
        return
    with cursor.copy(f"COPY ({wire}) TO STDOUT (FORMAT BINARY)") as copy:
        for row in _copy_rows(iter(copy)):
            yield row[_ONE_FIELD:] if framing == "arrays" else row


#: Bytes before the value in a row of COPY that has one field.
_ONE_FIELD = 6


def _has_arrays(ask: Callable[[str], Any], kinds: Sequence[Field]) -> bool:
    """Return whether rows may come as arrays of PostgreSQL's memory.

    They may not on a cluster, whose nodes lack mmdb's functions, from a server whose texts are not
    in UTF-8, nor from one whose numbers have another order of bytes.

    Args:
        ask: returns the value `found` of a query.
    """
    if not in_arrays(kinds) or not ask(
        "SELECT pg_catalog.to_regprocedure('mmdb_call.raw(text[])') IS NOT NULL"
        " AND pg_catalog.getdatabaseencoding() OPERATOR(pg_catalog.=) 'UTF8' AS found"
    ):
        return False
    order = ask("SELECT mmdb_call.raw(ARRAY[1::pg_catalog.int8]) AS found")
    return bytes(order[:4]) == (1).to_bytes(4, sys.byteorder)


def scan_cursor(plpy: Any, select: str, kinds: Sequence[Field]) -> Iterator[Batch]:
    """Yield the rows of a SELECT through a cursor inside the server; see Connection.scan."""
    has_arrays = _has_arrays(lambda query: plpy.execute(query)[0]["found"], kinds)
    framing: Framing = "arrays" if has_arrays else "record"
    parser = row_parser(kinds, framing)
    wire = _wire_select(select, kinds, framing)
    if framing == "record":
        wire = f"SELECT pg_catalog.record_send(ROW(q.*)) AS r FROM ({wire}) AS q"
    is_whole = all(kind not in _SIZES for _, kind in kinds)
    with said_by(_from_postgres):
        cursor = _interpreted(plpy, wire if is_whole else _in_pieces(wire))
        try:
            found = _fetched(cursor, STEP_ROWS) if is_whole else _joined(_fetched(cursor, _PIECES))
            for step in found:
                yield parser.parse(step)
        finally:
            try:
                cursor.close()
            except (plpy.Error, ValueError) as error:  # gone with the subtransaction that failed
                if errors.stops_the_caller(error):
                    raise


def _interpreted(plpy: Any, query: str) -> Any:
    """Return a cursor whose query is not compiled: of rows in pieces PostgreSQL expects 1,000."""
    (before,) = plpy.execute("SELECT pg_catalog.current_setting('jit') AS jit")
    plpy.execute("SELECT pg_catalog.set_config('jit', 'off', TRUE)")
    cursor = plpy.cursor(query)
    plpy.execute(f"SELECT pg_catalog.set_config('jit', '{before['jit']}', TRUE)")
    return cursor


#: Bytes of a piece of a row, and pieces that are fetched at once at most.
_PIECE_BYTES, _PIECES = 8192, 8192


def _in_pieces(wire: str) -> str:
    """Return the query of rows, long ones cut into pieces; the last one of a row is not full."""
    is_long = f"pg_catalog.length(w.r) OPERATOR(pg_catalog.>=) {_PIECE_BYTES}"
    return (
        f"SELECT CASE WHEN p.k IS NULL THEN w.r ELSE pg_catalog.substr(w.r, p.k"
        f" OPERATOR(pg_catalog.*) {_PIECE_BYTES} OPERATOR(pg_catalog.+) 1, {_PIECE_BYTES}) END AS r"
        f" FROM ({wire} OFFSET 0) AS w LEFT JOIN LATERAL (SELECT pg_catalog.generate_series(0,"
        f" pg_catalog.length(w.r) OPERATOR(pg_catalog./) {_PIECE_BYTES}) AS k WHERE {is_long}"
        ") AS p ON TRUE"
    )


def _fetched(cursor: Any, most: int) -> Iterator[list[bytes]]:
    """Yield a cursor's values in lists; PL/Python holds a few MB of them at once, 64 at most."""
    size = FIRST_ROWS
    while True:
        with lifted(None):
            rows = cursor.fetch(size)
        if not rows:
            return
        yield (found := [row["r"] for row in rows])
        size = min(most, _step_rows(sum(map(len, found)) // len(found)))


def _joined(fetched: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    """Yield rows whose pieces may come in several lists."""
    begun: list[bytes] = []
    for pieces in fetched:
        if not begun and max(map(len, pieces)) < _PIECE_BYTES:
            yield pieces
            continue
        rows = []
        for piece in pieces:
            begun.append(piece)
            if len(piece) < _PIECE_BYTES:
                rows.append(b"".join(begun))
                begun = []
        if rows:
            yield rows


#: What tells how large a value is, without reading one that is stored apart from its row.
_SIZES = {
    **dict.fromkeys(("text", "nullable_text", "bytes", "files"), "octet_length"),
    "reals": "pg_column_size",
}
#: What a row takes of memory on its way into a dataset, in its own sizes.
_COPIES = 8
#: Begins the text of which PostgreSQL says that it is no array.
_TOO_LARGE = "too large: "


def blocks_select(select: str, fields: Sequence[Field], shard: str) -> str:
    """Return the query of a SELECT's rows in blocks, each an array of records named `rows`.

    Args:
        shard: a column beside the fields that tells apart what no block may hold together.
    """
    wire = _wire_select(select, fields, "record", shard)
    row = ", ".join(f"w.{quote_name(name)}" for name, _ in fields)
    size = f"GREATEST(pg_catalog.length(v.r), {STEP_BYTES // STEP_ROWS})"
    return (  # an aggregate's order has the groups sorted: else PostgreSQL might hold them all
        "SELECT pg_catalog.array_agg(b.r ORDER BY b.ends) AS rows FROM (SELECT v.r, v.k,"
        f" pg_catalog.sum({size}) OVER (PARTITION BY v.k ROWS UNBOUNDED PRECEDING) AS ends FROM"
        f" (SELECT pg_catalog.record_send(ROW({row})) AS r, w.{quote_name(shard)} AS k"
        f" FROM ({wire}) AS w) AS v) AS b GROUP BY b.k, b.ends OPERATOR(pg_catalog./) {STEP_BYTES}"
    )


def _wire_select(
    select: str, fields: Sequence[Field], framing: Framing, passed: str | None = None
) -> str:
    """Return the query of what goes over the wire.

    A row that is too large for a call's memory ends the query before it is copied.

    Args:
        passed: a column that the query has beside, as it is: nodes are to run it.
    """
    items = _items(fields, framing)
    sizes = [
        f"pg_catalog.{_SIZES[kind]}({quote_name(name)})" for name, kind in fields if kind in _SIZES
    ]
    if sizes:
        most = _most_bytes()
        size = " OPERATOR(pg_catalog.+) ".join(
            f"COALESCE({one}, 0)::pg_catalog.int8" for one in sizes
        )
        over = f"OPERATOR(pg_catalog.>) {most // len(sizes)}"  # as one is where their sum is
        ending = f"('{_TOO_LARGE}' OPERATOR(pg_catalog.||) ({size}))::pg_catalog.float4[]"
        name, kind = next(field for field in fields if field[1] in _SIZES)
        name = name if name in items else next(iter(items))
        if kind != "reals":
            ending = f"{ending}::pg_catalog.text::pg_catalog.bytea"
        items[name] = (
            f"CASE WHEN ({' OR '.join(f'{one} {over}' for one in sizes)}) AND ({size})"
            f" OPERATOR(pg_catalog.>) {most} THEN {ending} ELSE {items[name]} END"
        )
        if passed is None:  # else each value would be made twice; but nodes run none with OFFSET
            select = f"SELECT * FROM ({select}\n) AS t OFFSET 0"
    if passed is not None:
        items[passed] = quote_name(passed)
    named = ", ".join(f"{item} AS {quote_name(name)}" for name, item in items.items())
    return f"SELECT {named} FROM ({select}\n) AS s"


def _items(fields: Sequence[Field], framing: Framing) -> dict[str, str]:
    """Return what is sent, text in UTF-8 whatever encoding the client asked for."""
    if framing == "arrays":
        arrays = (", ".join(map(_element, some)) for some in in_arrays(fields))
        return {"r": " OPERATOR(pg_catalog.||) ".join(f"mmdb_call.raw(ARRAY[{a}])" for a in arrays)}
    return {
        name: f"pg_catalog.convert_to({quote_name(name)}, 'UTF8')"
        if kind in ("text", "nullable_text")
        else quote_name(name)
        for name, kind in fields
    }


def _element(field: Field) -> str:
    name, kind = quote_name(field[0]), field[1]
    return f"COALESCE({name}, mmdb_call.from_bits({NULL_BITS}))" if kind == "number" else name


def _most_bytes() -> int:
    return min(ROW_BYTES, call_bytes() // _COPIES)


def _copy_rows(messages: Iterator[memoryview]) -> Iterator[memoryview]:
    """Yield the rows of a COPY: the server sends each as one message, the header with the first."""
    first = next(messages, memoryview(b""))
    if bytes(first[:11]) != _COPY_SIGNATURE:
        raise ValueError("The server's COPY does not start as PostgreSQL's manual describes it.")
    header = 19 + int.from_bytes(first[15:19], "big")
    if len(first) > header:
        yield from _not_the_end(first[header:])
    for message in messages:
        yield from _not_the_end(message)


def _not_the_end(message: memoryview) -> Iterator[memoryview]:
    if len(message) > 2 or message != _COPY_END:
        yield message


def _steps(rows: Iterator[_Bytes]) -> Iterator[list[_Bytes]]:
    step: list[_Bytes] = []
    size = FIRST_ROWS
    for row in rows:
        step.append(row)
        if len(step) == size:
            yield step
            step, size = [], _step_rows(len(row))
    if step:
        yield step


def _step_rows(row_bytes: int) -> int:
    return max(1, min(STEP_ROWS, STEP_BYTES // max(row_bytes, 1)))


#: What texts of numbers and intervals are written by while a dataset's rows are read, whatever the
#: session says: its rows are told by their keys' texts, and grouped by them.
SET_FORMS = (
    "SELECT pg_catalog.set_config('extra_float_digits', '1', true),"
    " pg_catalog.set_config('intervalstyle', 'postgres', true), current_user AS role"
)

#: What a type is a domain over in the end, or itself; and of which kind that is.
_BASE_TYPE = """
WITH RECURSIVE base AS (
    SELECT t.oid, t.typtype, t.typcategory, t.typbasetype
    FROM pg_catalog.pg_type AS t WHERE t.oid = {}::oid
    UNION ALL
    SELECT t.oid, t.typtype, t.typcategory, t.typbasetype
    FROM base AS b INNER JOIN pg_catalog.pg_type AS t ON b.typbasetype = t.oid
)
SELECT
    b.oid::bigint AS oid,
    (b.typtype::text || b.typcategory::text) AS kind,
    pg_catalog.format_type(b.oid, NULL) AS name
FROM base AS b WHERE b.typtype <> 'd'
"""


def _type_of(session: Any, oid: int) -> ColumnType:
    with session.cursor() as cursor:
        cursor.execute(_BASE_TYPE.format("%s"), (oid,))
        (row,) = cursor.fetchall()
        return _base_type(**(row if isinstance(row, dict) else dict(zip(_BASE, row, strict=True))))


_BASE = ("oid", "kind", "name")


def _type_of_inside(plpy: Any, oid: int) -> ColumnType:
    plan = plpy.prepare(_BASE_TYPE.format("$1"), ["oid"])
    (row,) = plpy.execute(plan, [oid])
    return _base_type(**row)


#: By typtype and typcategory, of types that are no others': citext is a text, too.
_OWN_TYPES = {"eE": "text", "bS": "text", "cC": "composite", "rR": "range"}


def _base_type(oid: int, kind: str, name: str) -> ColumnType:
    # Where all names are quoted, those of PostgreSQL's own types are, too.
    return _POSTGRES_TYPES.get(oid) or _OWN_TYPES.get(kind, name.replace('"', ""))


def _from_postgres(error: Exception) -> Exception:
    """Return what a server's error says about the query; anything else as it is."""
    state = getattr(error, "sqlstate", None)
    diag = getattr(error, "diag", None)
    text = (diag.message_primary if diag else None) or str(error)
    if large := re.search(rf'"{_TOO_LARGE}(\d+)"', text):
        return errors.OutOfMemory(
            f"The query returned a row of {int(large[1]):,} bytes; this call takes rows of at most "
            f"{_most_bytes():,}."
        )
    if ran_out(error):
        return errors.OutOfMemory("The query, with its rows, takes more memory than it may.")
    kinds: dict[str, type[errors.MmdbError]] = {
        "42P01": errors.UnknownTable,
        "3F000": errors.UnknownTable,
        "42703": errors.UnknownColumn,
        "25006": errors.NotASelect,  # it calls a function that writes
        "22003": errors.NotFinite,
    }
    if state in kinds:
        own = (diag.message_hint if diag else getattr(error, "hint", None)) or ""
        return kinds[state](sentence(text), hint=own)
    if isinstance(error, errors.MmdbError) or not state:
        return error
    if state == "42501" or state[:2] in {"08", "57", "MM"}:  # rights, lost, cancelled, our own
        return error
    return errors.QueryFailed(f"The database refused the query: {sentence(text)}")


def sentence(text: str) -> str:
    """Return what an engine says as a sentence."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


@contextmanager
def said_by(translate: Callable[[Exception], BaseException]) -> Iterator[None]:
    """Let errors within be told as a translation says, in which those of others stay."""
    try:
        yield
    except Exception as error:
        translated = translate(error)
        if translated is error:
            raise
        raise translated from error
