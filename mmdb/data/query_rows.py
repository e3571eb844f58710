"""Rows of a SELECT, for a model: the values of its features, and columns beside them."""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mmdb.data.arrays import Inputs
from mmdb.data.assembly import Values, assemble
from mmdb.data.column_layout import Field, cast_select
from mmdb.data.decoding import Column, Decoding
from mmdb.data.inputs import encoded, encoders_of
from mmdb.data.matching import kind_of, listed
from mmdb.data.parts import steps_of, with_parts
from mmdb.data.tokenize import Encoder
from mmdb.db.connection import Batch, ColumnType, Connection, Kind, NullFound, RaggedFound
from mmdb.db.row_formats import row_parser
from mmdb.errors import InvalidInput, NotFinite, NullValues, RaggedArray, UnknownColumn

#: A column of the query that is read beside the features, and how it is to arrive.
Beside = tuple[str, Kind]
KEY = "mmdb key"  # no output column of the user's has this name

#: How a query's column arrives that has no transform, by its kind.
_SCANNED: dict[str, Kind] = {
    "numeric": "real",
    "tensor": "reals",
    "bytes": "bytes",
    "tokens": "text",
}


def scan_inputs(
    connection: Connection, decoding: Decoding, query: str, key: str
) -> Generator[tuple[list[str], Inputs]]:
    """Run a SELECT and yield its keys with the inputs of as many rows; see `scan_values`."""
    for batch, values in scan_values(connection, decoding, query, {KEY: (key, "text")}):
        yield list(batch[KEY]), assemble(decoding, values)


def scan_values(
    connection: Connection, decoding: Decoding, query: str, beside: Mapping[str, Beside]
) -> Iterator[tuple[Batch, dict[str, Values]]]:
    """Run a SELECT and yield, of some rows, columns beside the features and the features' values.

    Args:
        beside: columns by the name they get; texts come as lists of str.
    Returns:
        Values as `assemble` takes them.
    Raises:
        QueryError: the query cannot be used. UnknownColumn: it lacks a column.
        NullValues, RaggedArray, NotFinite, InvalidInput, FunctionNotFound, FunctionFailed
    """
    encoders = encoders_of(connection, decoding)
    statement, fields = scanned_select(connection, decoding, query, beside)
    with _named(fields, beside):
        for batch in connection.scan(statement, kinds_of(fields)):
            yield _decoded(decoding, encoders, batch, beside)


def scanned_select(
    connection: Connection,
    decoding: Decoding,
    query: str,
    beside: Mapping[str, Beside],
    passed: Sequence[str] = (),
) -> tuple[str, tuple[Field, ...]]:
    """Return the SELECT of what `scan_values` reads, and its columns.

    Args:
        passed: columns of the query that are its last ones, as they are.
    Raises:
        QueryError, UnknownColumn, InvalidInput: as `scan_values`.
    """
    from mmdb.data.query import checked_select  # loads a parser of SQL: a row alone needs none
    from mmdb.data.query.names import fold

    engine = connection.engine
    select = checked_select(query, engine)
    written = connection.columns(select)
    asked = {name: "text" if "text" in kind else "float" for name, kind in beside.values()}
    asked |= {c.name: "float" if c.kind == "numeric" else "text" for c in decoding.features}
    wanted = dict.fromkeys(dict(written)) | asked
    select, found = with_parts(connection, select, written, wanted)
    types = {name: kind for name, kind in found if name in wanted and name not in passed}
    known = {fold(name, engine, is_quoted=True): kind for name, kind in types.items()}
    spelled = {name: fold(name, engine, is_quoted=True) for name in asked}
    types |= {name: known[one] for name, one in spelled.items() if one in known}
    is_postgres = engine == "postgres"  # whose casts do not tell the column
    fields = _fields(decoding, types, beside, is_postgres=is_postgres)
    as_they_are = [Field(name=name, type="", kind="bytes", scanned="bytes") for name in passed]
    whole = (*fields, *as_they_are)
    statement = cast_select(whole, engine, select, clamped=is_postgres)
    return statement, fields


def returned(connection: Connection, query: str, names: Sequence[str]) -> set[str]:
    """Return which of some columns a SELECT returns, whole or as parts of what it returns."""
    from mmdb.data.query import checked_select
    from mmdb.data.query.names import fold

    engine = connection.engine
    written = [name for name, _ in connection.columns(checked_select(query, engine))]
    known = {fold(name, engine, is_quoted=True) for name in written}
    is_part = {name for name in names for one in written if steps_of(name, one)}
    return is_part | {name for name in names if fold(name, engine, is_quoted=True) in known}


def kinds_of(fields: Sequence[Field]) -> list[tuple[str, Kind]]:
    """Return how columns arrive, by name."""
    return [(field.output, field.scanned) for field in fields]


def types_of(fields: Sequence[Field]) -> list[ColumnType]:
    """Return the types by which `parsed_inputs` knows how columns arrive."""
    return ["integer" if field.scanned == "bigint" else field.type for field in fields]


def parsed_inputs(
    decoding: Decoding,
    encoders: Mapping[str, Encoder],
    rows: Sequence[bytes],
    types: Sequence[ColumnType],
    key: str,
) -> tuple[list[str], Inputs]:
    """Return keys and inputs of rows that PostgreSQL sent as records, as `scan_inputs` does.

    Args:
        types: of the features and the key, as `types_of` returns them.
    Raises:
        InvalidInput: they are no such records; and what `scan_values` raises of rows.
    """
    beside: dict[str, Beside] = {KEY: (key, "text")}
    try:
        *given, last = types
        found = zip((c.name for c in decoding.features), given, strict=True)
        fields = _fields(decoding, {key: last, **dict(found)}, beside, is_postgres=True)
        with _named(fields, beside):
            batch = row_parser(kinds_of(fields), "record").parse(rows)
    except (ValueError, TypeError, IndexError, OverflowError, struct.error) as error:
        raise InvalidInput("The rows are no records of these columns.") from error
    with _named(fields, beside):
        read, values = _decoded(decoding, encoders, batch, beside)
        return list(read[KEY]), assemble(decoding, values)


def _decoded(
    decoding: Decoding,
    encoders: Mapping[str, Encoder],
    batch: Batch,
    beside: Mapping[str, Beside],
) -> tuple[Batch, dict[str, Values]]:
    read = {alias: _texts_if(batch.pop(alias), kind) for alias, (_, kind) in beside.items()}
    return read, encoded(decoding, batch, encoders, list(read.get(KEY, ())))


@contextmanager
def _named(fields: Sequence[Field], beside: Mapping[str, Beside]) -> Iterator[None]:
    """Name the column that a row's error is about as the query does."""
    try:
        yield
    except NullFound as error:
        named = beside[error.column][0] if error.column in beside else error.column
        raise NullValues(f"Column {named!r} holds NULLs.") from error
    except RaggedFound as error:
        raise RaggedArray(f"Column {error.column!r} has rows of different lengths.") from error
    except NotFinite as error:
        if error.__cause__ is None:  # it names the column
            raise
        named = ", ".join(field.name for field in fields if field.scanned == "reals") or "the query"
        raise NotFinite(f"A number of {named} is too large: {error.message}") from error


def _texts_if(values: np.ndarray | Sequence[Any], kind: Kind) -> np.ndarray | Sequence[Any]:
    if kind != "text":
        return values
    return list(map(str, values.tolist())) if isinstance(values, np.ndarray) else list(values)


def _fields(
    decoding: Decoding,
    types: Mapping[str, ColumnType],
    beside: Mapping[str, Beside],
    *,
    is_postgres: bool,
) -> tuple[Field, ...]:
    names = [*(name for name, _ in beside.values()), *(c.name for c in decoding.features)]
    missing = [name for name in names if name not in types]
    if missing:
        raise UnknownColumn(
            f"The query returns no column {missing[0]!r}; it returns {', '.join(types)}.",
            hint=f"It must return {listed(list(dict.fromkeys(names)))}.",
        )
    for column in decoding.features:
        _check_type(column, types[column.name])
    fields = [
        Field(
            name=c.name,
            type=types[c.name],
            kind=c.kind,
            scanned=_scanned(c, is_double=is_postgres and types[c.name] == "float"),
        )
        for c in decoding.features
    ]
    for alias, (name, kind) in beside.items():
        is_whole = is_postgres and kind == "text" and types[name] == "integer"
        scanned: Kind = "bigint" if is_whole else kind  # rows without a text come faster
        of = types[name] if scanned == "double" else "text"
        fields.append(Field(name=name, type=of, kind="numeric", scanned=scanned, alias=alias))
    return tuple(fields)


def _scanned(column: Column, *, is_double: bool) -> Kind:
    """Return how a column arrives; one of doubles as these, which PostgreSQL need not check."""
    if column.transform is None:
        return "double" if is_double and column.kind == "numeric" else _SCANNED[column.kind]
    known: dict[str, Kind] = {"text": "nullable_text", "picture": "files"}
    return known.get(column.transform.source, "number")


def _check_type(column: Column, found: ColumnType) -> None:
    """Refuse a type that another kind of column has; what has none is cast to a text.

    Raises:
        InvalidInput
    """
    source = column.transform and column.transform.source
    taken = _SOURCES.get(source or "") or _TYPES.get(column.kind)
    if found in ("float_array", "bytes") if taken is None else found not in taken:
        raise InvalidInput(
            f"Column {column.name!r} is {found}; the model has it as {kind_of(column)}.",
            hint="Cast it in the query.",
        )


#: The types that a column's values may have; any that is no list has a text.
_TYPES: dict[str, tuple[ColumnType, ...]] = {
    "numeric": ("integer", "float", "numeric", "boolean"),
    "tensor": ("float_array",),
    "bytes": ("bytes",),
}
_SOURCES: dict[str, tuple[ColumnType, ...]] = {
    "moment": ("moment",),
    "clock": ("clock",),
    "span": ("span",),
    "picture": ("bytes",),
}
