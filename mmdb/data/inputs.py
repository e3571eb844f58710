"""Rows to predict: a vector, an object or a SELECT, decoded as the dataset's own rows are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mmdb.data.decoding import Column, Decoding
from mmdb.data.features import Field, Options, Request
from mmdb.data.query import analyse
from mmdb.db.connection import Connection, Kind, NullFound, RaggedFound
from mmdb.errors import InvalidInput, NotFinite, NullValues, RaggedArray, UnknownColumn

_SCANNED: dict[str, Kind] = {
    "numeric": "real",
    "tensor": "reals",
    "bytes": "bytes",
    "categorical": "text",
}


def vector_input(decoding: Decoding, values: Sequence[Any]) -> np.ndarray:
    """Return one row of features given in order, float32 (1, *input_shape).

    Raises:
        InvalidInput: there are not as many finite numbers as the model takes.
    """
    try:
        x = _numbers(values)
    except _NOT_NUMBERS as error:
        raise InvalidInput(f"The input is not a list of numbers: {error}.") from error
    if x.shape[1] != decoding.width or not np.isfinite(x).all():
        raise InvalidInput(
            f"The model takes {decoding.width} finite numbers; {x.shape[1]} values were given."
        )
    return x.reshape(1, *decoding.input_shape)


def object_input(decoding: Decoding, row: Mapping[str, Any]) -> np.ndarray:
    """Return one row of features given by column name, float32 (1, *input_shape).

    Raises:
        InvalidInput: a column is missing, unknown or of another type or width.
    """
    names = {column.name for column in decoding.features}
    if names - set(row):
        raise InvalidInput(f"The row lacks {', '.join(sorted(names - set(row)))}.")
    x = np.empty((1, decoding.width), np.float32)
    for column, span in decoding.spans():
        x[:, span] = _column(column, _one(column, row[column.name]))
    if not np.isfinite(x).all():
        raise InvalidInput("The row holds numbers that are not finite.")
    return x.reshape(1, *decoding.input_shape)


def _one(column: Column, value: Any) -> np.ndarray | list[str]:
    """Return a value of a JSON row as a scan of one row would deliver it."""
    if column.kind == "categorical":
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


def _column(column: Column, values: np.ndarray | list[str]) -> np.ndarray:
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
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Run a SELECT and yield its keys with features, float32 (n, *input_shape).

    Raises:
        QueryError: the query cannot be used. UnknownColumn: it lacks the key or a feature.
        NullValues, RaggedArray, NotFinite, InvalidInput
    """
    select = analyse(query, connection.engine, connection.table_columns).select
    request = _request(connection, decoding, select, key)
    try:
        for batch in connection.scan(request.cast_select(select), request.kinds()):
            x = np.empty((len(batch[_KEY]), decoding.width), np.float32)
            for column, span in decoding.spans():
                x[:, span] = _column(column, batch[column.name])
            if not np.isfinite(x).all():
                raise NotFinite("The query returned NaN or infinite numbers.")
            yield list(batch[_KEY]), x.reshape(len(x), *decoding.input_shape)
    except NullFound as error:
        raise NullValues("The query returned NULLs.") from error
    except RaggedFound as error:
        raise RaggedArray(f"Column {error.column!r} has rows of different lengths.") from error


_KEY = "mmdb key"  # no output column of the user's has this name


def _request(connection: Connection, decoding: Decoding, select: str, key: str) -> Request:
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
    fields.append(Field(name=key, type="text", kind="categorical", scanned="text", alias=_KEY))
    return Request(
        fields=tuple(fields), task=decoding.task, options=Options(), engine=connection.engine
    )
