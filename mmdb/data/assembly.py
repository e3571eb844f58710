"""Columns of raw values put together as a model's inputs: the same for stored rows and others.

Columns are named. Their values are as a scan or a block has them: numbers float32 or float64 (n,)
with NaN for NULL, arrays float32 (n, width), bytes uint8 (n, width), tokens int32 (n, length),
texts a list or `mmdb.db.connection.Texts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from mmdb.data.arrays import Inputs
from mmdb.data.decoding import Column, Decoding, Input
from mmdb.errors import InvalidInput, NotFinite

Values = np.ndarray | Sequence[str | None]


def assemble(decoding: Decoding, values: Mapping[str, Values]) -> Inputs:
    """Return the inputs of some rows, each (n, *shape).

    Args:
        values: of every feature, by column.
    Raises:
        InvalidInput: a column has another width. NotFinite: a number is NaN or infinite.
    """
    arrays = {given.name: _array(decoding, given, values) for given in decoding.inputs}
    return arrays[""] if decoding.is_one_input else arrays


def _array(decoding: Decoding, given: Input, values: Mapping[str, Values]) -> np.ndarray:
    spans = list(decoding.spans(given))
    count = len(values[given.columns[0]])
    if len(spans) == 1:
        x = numbers_of(spans[0][0], values[given.columns[0]])
    else:
        x = np.empty((count, spans[-1][1].stop), np.float32)
        for column, span in spans:
            x[:, span] = numbers_of(column, values[column.name])
    return x.astype(given.dtype, copy=False).reshape(count, *given.shape)


def numbers_of(column: Column, values: Values) -> np.ndarray:
    """Return a column as a model takes it, (n, decoded_width): float32, or int32 tokens.

    Raises:
        InvalidInput, NotFinite: see `assemble`.
    """
    if column.transform is not None:
        if isinstance(values, np.ndarray) and values.dtype.kind == "f" and np.isinf(values).any():
            raise NotFinite(f"Column {column.name!r} holds NaN, or a number that is not finite.")
        found = column.transform.apply(values)
    else:
        assert isinstance(values, np.ndarray)
        found = values.reshape(len(values), math.prod(values.shape[1:]))
    if found.shape[1] != column.decoded_width:
        raise InvalidInput(
            f"Column {column.name!r} has {found.shape[1]} values a row; "
            f"the dataset has {column.decoded_width}."
        )
    if column.kind == "bytes":
        return found if column.transform is not None else found / np.float32(255)
    if column.kind == "tokens":
        return found.clip(0)  # behind a text any token will do: its label is left out
    with np.errstate(over="ignore"):
        found = found.astype(np.float32, copy=False)
    if not np.isfinite(found).all():
        raise NotFinite(f"Column {column.name!r} holds NaN, or a number that is not finite.")
    return found
