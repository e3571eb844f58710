"""Rows to predict: a vector, an object or a SELECT, decoded as the dataset's own rows are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mmdb.data import functions
from mmdb.data.decoded import Inputs
from mmdb.data.decoding import Column, Decoding, Input, numbers_in
from mmdb.data.features import Field, cast_select
from mmdb.data.tokenize import Encoder
from mmdb.db.connection import Connection, Kind, NullFound, RaggedFound
from mmdb.errors import InvalidInput, NotFinite, NullValues, RaggedArray, UnknownColumn

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
    decoding: Decoding, row: Mapping[str, Any], encoders: Mapping[str, Encoder]
) -> Inputs:
    """Return one row given by column name, as the model takes it: (1, *shape) for each input.

    Args:
        encoders: of the columns that become tokens; see `encoders_of`.
    Raises:
        InvalidInput: a column is missing, unknown or of another type or width.
    """
    names = {column.name for column in decoding.features}
    if names - set(row):
        raise InvalidInput(f"The row lacks {', '.join(sorted(names - set(row)))}.")
    values = {column.name: _one(column, row[column.name]) for column in decoding.features}
    try:
        return _assemble(decoding, values, encoders)
    except NotFinite as error:
        raise InvalidInput("The row holds numbers that are not finite.") from error


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
    if not np.isfinite(x).all():
        raise NotFinite("The query returned NaN or infinite numbers.")
    return x.reshape(len(x), *given.shape)


def _one(column: Column, value: Any) -> Values:
    """Return a value of a JSON row as a scan of one row would deliver it."""
    if column.kind == "tokens" and not isinstance(value, str):
        raise InvalidInput(f"Column {column.name!r} holds {value!r}, not a text.")
    if column.kind in ("categorical", "tokens"):
        return [str(value)]
    if column.kind == "bytes" and isinstance(value, str):
        try:
            value = list(bytes.fromhex(value.removeprefix("\\x")))
        except ValueError as error:
            raise InvalidInput(f"Column {column.name!r} is not hexadecimal.") from error
    try:
        found = _numbers(value)
    except _NOT_NUMBERS as error:
        raise InvalidInput(f"Column {column.name!r} holds {value!r}, not numbers.") from error
    return found[:, 0] if column.kind == "numeric" and found.shape[1] == 1 else found


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
        places = {text: place for place, text in enumerate(column.categories)}
        unknown = sorted(set(values) - set(places))
        if unknown:
            raise InvalidInput(
                f"Column {column.name!r} has the value {unknown[0]!r}, which the dataset had not.",
                hint=f"Known: {', '.join(column.categories[:20])}.",
            )
        onehot = np.zeros((len(values), len(places)), np.float32)
        onehot[np.arange(len(values)), [places[text] for text in values]] = 1.0
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
        raise NullValues("The query returned NULLs.") from error
    except RaggedFound as error:
        raise RaggedArray(f"Column {error.column!r} has rows of different lengths.") from error


_KEY = "mmdb key"  # no output column of the user's has this name


def _fields(connection: Connection, decoding: Decoding, select: str, key: str) -> tuple[Field, ...]:
    types = dict(connection.columns(select))
    missing = [c for c in (key, *(c.name for c in decoding.features)) if c not in types]
    if missing:
        raise UnknownColumn(
            f"The query returns no column {missing[0]!r}; it returns {', '.join(types)}.",
            hint="It must return the key and every feature of the model's dataset.",
        )
    fields = [
        Field(name=c.name, type=types[c.name], kind=c.kind, scanned=_SCANNED[c.kind])
        for c in decoding.features
    ]
    named = Field(name=key, type="text", kind="categorical", scanned="text", alias=_KEY)
    return (*fields, named)
