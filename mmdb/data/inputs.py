"""Rows to predict: a vector, an object or a SELECT, decoded as the dataset's own rows are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mmdb.data import functions
from mmdb.data.arrays import Inputs
from mmdb.data.column_layout import Field, cast_select, check_twins
from mmdb.data.decoding import Column, Decoding, Input, numbers_in
from mmdb.data.matching import MISSING, kind_of, places, unseen
from mmdb.data.tokenize import Encoder
from mmdb.db.connection import ColumnType, Connection, Kind, NullFound, RaggedFound
from mmdb.errors import InvalidInput, NotFinite, NullValues, RaggedArray, UnknownColumn
from mmdb.messages import show

if TYPE_CHECKING:  # loads a parser of SQL
    from mmdb.data.query import Engine

_SCANNED: dict[str, Kind] = {
    "numeric": "real",
    "tensor": "reals",
    "bytes": "bytes",
    "categorical": "text",
    "tokens": "text",
}
#: A column's values in some rows, as a scan delivers them.
Values = np.ndarray | list[str]


def vector_input(decoding: Decoding, values: Sequence[Any]) -> np.ndarray:
    """Return one row of features given in order, float32 (1, *input_shape).

    Raises:
        InvalidInput: there are not as many finite numbers as the model takes, or it takes several
            inputs or tokens.
    """
    given = decoding.inputs[0]
    if not decoding.is_one_input or given.tokenizer is not None:
        raise InvalidInput(
            "The model takes no list of numbers: it has several inputs, or reads text.",
            hint=f"Pass a row with the columns {', '.join(c.name for c in decoding.features)}.",
        )
    try:
        x = _numbers(values)
    except _NOT_NUMBERS as error:
        raise InvalidInput(f"The input is not a list of numbers: {error}.") from error
    if x.shape[1] != numbers_in(given.shape) or not np.isfinite(x).all():
        raise InvalidInput(
            f"The model takes {numbers_in(given.shape)} finite numbers; "
            f"{x.shape[1]} values were given."
        )
    return x.reshape(1, *given.shape)


def object_input(
    decoding: Decoding, row: Mapping[str, Any], encoders: Mapping[str, Encoder], engine: Engine
) -> Inputs:
    """Return one row given by column name, as the model takes it: (1, *shape) for each input.

    Other columns than the model's play no part, so that a whole row of a table may be given.

    Args:
        encoders: of the columns that become tokens; see `encoders_of`.
        engine: how JSON of it writes byte strings.
    Raises:
        InvalidInput: a column is missing, NULL, or of another type or width.
    """
    missing = [column.name for column in decoding.features if column.name not in row]
    if missing:
        raise InvalidInput(
            f"The row lacks {', '.join(missing)}.",
            hint="It must have every feature of the model's dataset.",
        )
    values = {column.name: _one(column, row[column.name], engine) for column in decoding.features}
    try:
        return _assemble(decoding, values, encoders)
    except NotFinite as error:
        raise InvalidInput(error.message, hint="Pass finite numbers.") from error


def encoders_of(connection: Connection, decoding: Decoding) -> dict[str, Encoder]:
    """Return what turns a dataset's texts into tokens, by column.

    Raises:
        FunctionNotFound, FunctionFailed
    """
    return functions.encoders(connection, decoding.tokenizers)


def _assemble(
    decoding: Decoding, values: Mapping[str, Values], encoders: Mapping[str, Encoder]
) -> Inputs:
    """Return the inputs of some rows, whose columns' values are given by name."""
    arrays = {given.name: _array(decoding, given, values, encoders) for given in decoding.inputs}
    return arrays[""] if decoding.is_one_input else arrays


def _array(
    decoding: Decoding,
    given: Input,
    values: Mapping[str, Values],
    encoders: Mapping[str, Encoder],
) -> np.ndarray:
    first = values[given.columns[0]]
    if given.tokenizer is not None:
        assert isinstance(first, list)
        return encoders[given.columns[0]](first).astype(np.int64)
    x = np.empty((len(first), numbers_in(given.shape)), np.float32)
    for column, span in decoding.spans(given):
        x[:, span] = _column(column, values[column.name])
        if not np.isfinite(x[:, span]).all():
            raise NotFinite(f"Column {column.name!r} holds NaN, or a number that is not finite.")
    return x.reshape(len(x), *given.shape)


def _one(column: Column, value: Any, engine: Engine) -> Values:
    """Return a value of a JSON row as a scan of one row would deliver it."""
    if value is None:
        raise InvalidInput(
            f"Column {column.name!r} is NULL.", hint="Fill it, as with COALESCE, or skip the row."
        )
    if column.kind in ("categorical", "tokens"):
        return [_text(column, value)]
    if column.kind == "bytes" and isinstance(value, str):
        return np.frombuffer(_bytes(column, value, engine), np.uint8).reshape(1, -1)
    try:
        found = _numbers(value)
    except _NOT_NUMBERS as error:
        raise InvalidInput(f"Column {column.name!r} holds {show(value)}, not numbers.") from error
    if column.kind == "bytes" and not np.isin(found, np.arange(256)).all():
        raise InvalidInput(f"Column {column.name!r} holds {show(value)}, which are no bytes.")
    return found[:, 0] if column.kind == "numeric" and found.shape[1] == 1 else found


def _text(column: Column, value: Any) -> str:
    """Return a JSON value as the database's cast to text has it."""
    if isinstance(value, str):
        return value
    if column.kind == "tokens" or not isinstance(value, bool | int | float):
        raise InvalidInput(f"Column {column.name!r} holds {show(value)}, not a text.")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bytes(column: Column, value: str, engine: Engine) -> bytes:
    r"""Return a byte string that JSON holds: in hexadecimal, or as DuckDB writes it, `ab\x01`."""
    try:
        found = bytes.fromhex(value.removeprefix("\\x"))
        if len(found) == column.width or engine != "duckdb":
            return found
    except ValueError:
        pass
    if engine == "duckdb" and _ESCAPED.fullmatch(value):
        return b"".join(
            bytes.fromhex(piece[2:]) if len(piece) > 1 else piece.encode("ascii")
            for piece in _ESCAPED_BYTE.findall(value)
        )
    raise InvalidInput(f"Column {column.name!r} is not hexadecimal.", hint="Such as 00ff.")


_ESCAPED_BYTE = re.compile(r"\\x[0-9A-F]{2}|[ -~]")
_ESCAPED = re.compile(rf"(?:{_ESCAPED_BYTE.pattern})*")
#: What numpy raises for a value that is no number, or is too large for any.
_NOT_NUMBERS = (TypeError, ValueError, OverflowError)


def _numbers(values: Any) -> np.ndarray:
    """Return values as float32 (1, n); what is too large for it becomes infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype=np.float32).reshape(1, -1)


def _column(column: Column, values: Values) -> np.ndarray:
    """Return a scanned column as the model takes it, float32 (n, decoded_width).

    Raises:
        InvalidInput: an unknown category, or another width.
    """
    if column.categories is not None:
        texts = cast("list[str]", values)
        there = places(texts, column.categories)
        if there.min() == MISSING:
            raise unseen("Column", column, texts[int(there.argmin())])
        onehot = np.zeros((len(texts), len(column.categories)), np.float32)
        onehot[np.arange(len(texts)), there] = 1.0
        return onehot
    found = np.asarray(values, dtype=np.float32).reshape(len(values), -1)  # (n, width)
    if found.shape[1] != column.width:
        raise InvalidInput(
            f"Column {column.name!r} has {found.shape[1]} values a row; "
            f"the dataset has {column.width}."
        )
    return found / np.float32(255) if column.kind == "bytes" else found


def scan_inputs(
    connection: Connection, decoding: Decoding, query: str, key: str
) -> Iterator[tuple[list[str], Inputs]]:
    """Run a SELECT and yield its keys with the inputs of as many rows.

    Raises:
        QueryError: the query cannot be used. UnknownColumn: it lacks the key or a feature.
        NullValues, RaggedArray, NotFinite, InvalidInput, FunctionNotFound, FunctionFailed
    """
    from mmdb.data.query import parse_select  # loads a parser of SQL: a row alone needs none

    encoders = encoders_of(connection, decoding)
    select, _ = parse_select(query, connection.engine)
    fields = _fields(connection, decoding, select, key)
    kinds = [(field.output, field.scanned) for field in fields]
    try:
        for batch in connection.scan(cast_select(fields, connection.engine, select), kinds):
            yield list(batch[_KEY]), _assemble(decoding, batch, encoders)
    except NullFound as error:
        named = key if error.column == _KEY else error.column
        raise NullValues(f"Column {named!r} holds NULLs.") from error
    except RaggedFound as error:
        raise RaggedArray(f"Column {error.column!r} has rows of different lengths.") from error


_KEY = "mmdb key"  # no output column of the user's has this name


def _fields(connection: Connection, decoding: Decoding, select: str, key: str) -> tuple[Field, ...]:
    found = connection.columns(select)
    check_twins([name for name, _ in found], connection.engine)
    types = dict(found)
    missing = [c for c in (key, *(c.name for c in decoding.features)) if c not in types]
    if missing:
        raise UnknownColumn(
            f"The query returns no column {missing[0]!r}; it returns {', '.join(types)}.",
            hint="It must return the key and every feature of the model's dataset.",
        )
    for column in decoding.features:
        _check_type(column, types[column.name])
    fields = [
        Field(name=c.name, type=types[c.name], kind=c.kind, scanned=_SCANNED[c.kind])
        for c in decoding.features
    ]
    named = Field(name=key, type="text", kind="categorical", scanned="text", alias=_KEY)
    return (*fields, named)


def _check_type(column: Column, found: ColumnType) -> None:
    """Refuse a type that another kind of column has; what has none is cast to a text.

    Raises:
        InvalidInput
    """
    taken = _TYPES.get(column.kind)
    if found in ("float_array", "bytes") if taken is None else found not in taken:
        raise InvalidInput(
            f"Column {column.name!r} is {found}; the model has it as {kind_of(column)}.",
            hint="Cast it in the query.",
        )


#: The types that a column's values may have; any that is no list has a text.
_TYPES: dict[str, tuple[ColumnType, ...]] = {
    "numeric": ("integer", "float", "boolean"),
    "tensor": ("float_array",),
    "bytes": ("bytes",),
}
