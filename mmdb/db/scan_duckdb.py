"""The columns and the rows of the user's SELECT in DuckDB, through Arrow.

As `mmdb.db.scan` it imports no driver: sessions come as arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mmdb import errors
from mmdb.db.arrow import to_nullable_numpy, to_numpy
from mmdb.db.connection import Batch, ColumnType, Kind, NullFound, RaggedFound
from mmdb.db.row_formats import NULLABLE, Field, nullable_numbers, to_texts
from mmdb.db.scan import STEP_ROWS, require_one, said_by, sentence

_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), "integer"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), "integer"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), "float"),
    "BOOLEAN": "boolean",
    **dict.fromkeys(("VARCHAR", "ENUM", "UUID", "BIT"), "text"),
    **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"), "moment"),
    **dict.fromkeys(("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "moment"),
    **dict.fromkeys(("TIME", "TIME_NS"), "clock"),
    "INTERVAL": "span",
    "BLOB": "bytes",
    "STRUCT": "composite",
}
_BOUND = {"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE_INTO", "CREATE"}
_ARRAY_ITEMS = {"integer", "float", "float_array"}
_DTYPES: dict[Kind, str] = {"real": "<f4", "double": "<f8", "bigint": "<i8"}


def prepare_duckdb(session: Any, statement: str) -> None:
    """Check that a text is one statement; see Connection.prepare.

    Names are looked up of what reads or writes rows, and of CREATE.
    """
    with said_by(_translated):
        found = session.extract_statements(statement)
        require_one(len(found))
        if found[0].type.name in _BOUND:
            try:
                session.execute(f"EXPLAIN {statement}")
            except Exception as error:
                if errors.stops_the_caller(error) or type(error).__name__ != "ParserException":
                    raise  # TRUNCATE cannot be explained


def columns_duckdb(session: Any, select: str) -> list[tuple[str, ColumnType]]:
    """Return name and type of the columns of a SELECT.

    Raises:
        UnknownTable, UnknownColumn, QueryFailed: as DuckDB says.
    """
    with said_by(_translated):
        rows = session.execute(f"DESCRIBE ({select}\n)").fetchall()  # a subquery renames twins
    return [(row[0], _column_type(row[1])) for row in rows]


def scan_duckdb(session: Any, select: str, kinds: Sequence[Field]) -> Iterator[Batch]:
    """Yield the rows of a SELECT through Arrow; see Connection.scan.

    Lists may hold any number type and be nested: they are cast to float32 and flattened here.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    with said_by(_translated):
        for batch in session.sql(select).to_arrow_reader(STEP_ROWS):
            if batch.num_rows:
                yield {
                    name: _from_arrow(batch.column(name), name, kind, shapes)
                    for name, kind in kinds
                }


def _column_type(name: str) -> ColumnType:
    if name.endswith("]"):
        return "float_array" if _column_type(name[: name.rindex("[")]) in _ARRAY_ITEMS else name
    return _TYPES.get(name.partition("(")[0].strip(), name)


def _from_arrow(
    array: Any, name: str, kind: Kind, shapes: dict[str, tuple[int, ...]]
) -> np.ndarray | Sequence[Any]:
    if kind == "number":
        values, missing = to_nullable_numpy(array)
        return nullable_numbers(values.astype("<f8"), missing)
    if array.null_count and kind not in NULLABLE:
        raise NullFound(name)
    if kind in ("text", "nullable_text"):
        return to_texts(array)
    if kind == "files":
        return array.to_pylist()  # type: ignore[no-any-return]
    if kind in _DTYPES:
        return to_numpy(array).astype(_DTYPES[kind], copy=False)
    flat, shape = _flatten_bytes(array, name) if kind == "bytes" else _flatten_list(array, name)
    if shapes.setdefault(name, shape) != shape:
        raise RaggedFound(name)
    return flat


def _flatten_bytes(array: Any, name: str) -> tuple[np.ndarray, tuple[int, ...]]:
    values = array.to_pylist()
    width = len(values[0])
    if any(len(value) != width for value in values):
        raise RaggedFound(name)
    flat = np.frombuffer(b"".join(values), np.uint8)
    return flat.reshape(len(values), width), (width,)


def _flatten_list(array: Any, name: str) -> tuple[np.ndarray, tuple[int, ...]]:
    rows, count, shape = len(array), len(array), []
    while hasattr(array.type, "value_type"):
        width = len(array.flatten()) // count if count else 0
        if hasattr(array, "offsets"):
            lengths = np.diff(to_numpy(array.offsets))
            if (lengths != width).any():
                raise RaggedFound(name)
        array, count = array.flatten(), count * width
        shape.append(width)
        if array.null_count:
            raise NullFound(name)
    with np.errstate(over="ignore"):  # an infinity is found, counted and refused above
        decimals = str(array.type).startswith("decimal")  # as which HUGEINTs come, too
        flat = (np.array(array.to_pylist()) if decimals else to_numpy(array)).astype("<f4")
    return flat.reshape(rows, -1), tuple(shape)


def is_interrupt(error: Exception) -> bool:
    """Return whether an error is what DuckDB makes of a Ctrl-C.

    So it says it while it waits, inside a function, and while it reads a table of Python's.
    """
    found = re.search(
        r"(^|RuntimeError: )Query interrupted$|KeyboardInterrupt:?\s*$", str(error).strip()
    )
    return found is not None


def _translated(error: Exception) -> BaseException:
    if is_interrupt(error):
        return KeyboardInterrupt()
    kind, text = type(error).__name__, str(error).split("\n\nLINE ")[0].split("\n")[0].strip()
    if kind == "CatalogException" and ("Table with name" in text or "chema" in text):
        return errors.UnknownTable(sentence(text))
    if kind == "BinderException" and ("Referenced column" in text or "a column named" in text):
        candidates = re.search(r"Candidate bindings: .*", str(error))
        return errors.UnknownColumn(sentence(text), hint=candidates[0] if candidates else "")
    if kind == "ConversionException" and "out of range for the destination type FLOAT" in text:
        return errors.NotFinite(sentence(text))
    if kind == "OutOfMemoryException":
        return errors.OutOfMemory(sentence(text))
    if kind == "InterruptException":
        return errors.Cancelled(sentence(text))
    if not type(error).__module__.endswith("duckdb"):
        return error
    return errors.QueryFailed(f"The database refused the query: {sentence(text)}")
