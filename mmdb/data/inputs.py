"""Rows to predict: a vector or an object, decoded as the dataset's own rows are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from mmdb.data import functions
from mmdb.data.arrays import Inputs
from mmdb.data.assembly import Values, assemble
from mmdb.data.decoding import Column, Decoding, numbers_in
from mmdb.data.parts import parts_of
from mmdb.data.pictures import decode_all
from mmdb.data.tokenize import Encoder
from mmdb.data.transform.transform import Source
from mmdb.db.connection import Connection
from mmdb.errors import InvalidInput, NotFinite
from mmdb.messages import show

if TYPE_CHECKING:  # loads a parser of SQL
    from mmdb.data.query import Engine

_EPOCH = datetime.fromtimestamp(0, UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)


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
    columns = [column for column, _ in decoding.spans(given)]
    if any(column.transform is not None for column in columns):
        return _by_place(columns, decoding, values)
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


def _by_place(columns: Sequence[Column], decoding: Decoding, values: Sequence[Any]) -> np.ndarray:
    """Return the input of a row whose values are given in the order of the columns."""
    ends = np.cumsum([column.width for column in columns]).tolist()
    if len(values) != ends[-1]:
        names = ", ".join(column.name for column in columns)
        raise InvalidInput(
            f"The model takes {ends[-1]} values; {len(values)} values were given.",
            hint=f"They are those of {names}, in this order.",
        )
    row = {
        column.name: values[end - column.width : end] if column.width > 1 else values[end - 1]
        for column, end in zip(columns, ends, strict=True)
    }
    found = object_input(decoding, row, {}, "postgres")
    assert isinstance(found, np.ndarray)
    return found


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
    return rows_input(decoding, {name: [value] for name, value in row.items()}, encoders, engine)


def rows_input(
    decoding: Decoding,
    rows: Mapping[str, Sequence[Any]],
    encoders: Mapping[str, Encoder],
    engine: Engine,
) -> Inputs:
    """Return rows given by column, each with the values of one row after the other.

    Raises:
        InvalidInput: see `object_input`; or columns have different lengths, or none.
    """
    counts = {name: len(values) for name, values in rows.items()}
    if len(set(counts.values())) > 1 or 0 in counts.values():
        raise InvalidInput(f"The columns have {counts} values.", hint="One for each row.")
    names = [column.name for column in decoding.features]
    if rows and not rows.keys() >= set(names):  # some are parts of others
        each = [
            parts_of(dict(zip(rows, row, strict=True)), names)
            for row in zip(*rows.values(), strict=True)
        ]
        there = [name for name in names if all(name in row for row in each)]
        rows = {name: [row[name] for row in each] for name in there}
    missing = [name for name in names if name not in rows]
    if missing:
        raise InvalidInput(
            f"The row lacks {', '.join(missing)}.",
            hint="It must have every feature of the model's dataset.",
        )
    values = {c.name: _joined(c, rows[c.name], engine) for c in decoding.features}
    try:
        return assemble(decoding, encoded(decoding, values, encoders))
    except NotFinite as error:
        raise InvalidInput(error.message, hint="Pass finite numbers.") from error


def _joined(column: Column, values: Sequence[Any], engine: Engine) -> np.ndarray | list[Any]:
    found = [_one(column, value, engine) for value in values]
    if isinstance(found[0], list):
        return [text for (text,) in found]
    if len({one.shape for one in found}) > 1:  # type: ignore[union-attr]
        raise InvalidInput(f"Column {column.name!r} has rows of different lengths.")
    return np.concatenate(found)


def encoders_of(connection: Connection, decoding: Decoding) -> dict[str, Encoder]:
    """Return what turns a dataset's texts into tokens, by column.

    Raises:
        FunctionNotFound, FunctionFailed
    """
    return functions.encoders(connection, decoding.tokenizers)


def encoded(
    decoding: Decoding,
    values: Mapping[str, Any],
    encoders: Mapping[str, Encoder],
    keys: Sequence[str] = (),
) -> dict[str, Values]:
    """Return columns with texts as tokens where they become these, and files as pictures.

    Args:
        keys: of the rows, which an error names; empty: there is one row alone.
    Raises:
        InvalidInput: a picture cannot be decoded.
    """
    found = {
        name: encoders[name](given) if name in encoders else given for name, given in values.items()
    }
    for column in decoding.features:
        if column.transform is not None and column.transform.source == "picture":
            found[column.name], failed = decode_all(column.transform, values[column.name])
            for place, why in failed.items():
                where = f" in the row with key {show(keys[place])}" if keys else ""
                raise InvalidInput(
                    f"Column {column.name!r} holds no picture{where}: {why}.",
                    hint="It takes the bytes of a JPEG or PNG file; leave other rows out.",
                )
    return found


def _one(column: Column, value: Any, engine: Engine) -> np.ndarray | list[Any]:
    """Return a value of a JSON row as a scan of one row would deliver it."""
    given = column.transform
    if given is not None and given.source == "text":
        return [None if value is None else _text(column, value)]
    if given is not None and given.source == "picture" and isinstance(value, str):
        return [_bytes(column, value, engine)]
    if given is not None and given.source != "picture" and value is None:
        return np.array([np.nan])
    if value is None:
        raise InvalidInput(
            f"Column {column.name!r} is NULL.", hint="Fill it, as with COALESCE, or skip the row."
        )
    if column.kind == "tokens":
        return [_text(column, value)]
    if column.kind == "bytes" and isinstance(value, str):
        return np.frombuffer(_bytes(column, value, engine), np.uint8).reshape(1, -1)
    is_time = given is not None and given.source in ("moment", "clock")
    if given is not None and (is_time or (given.source == "span" and isinstance(value, str))):
        return np.array([seconds_of(column, given.source, value)])
    try:
        if isinstance(value, str) and not (
            value.isascii() and (engine == "duckdb" or "_" not in value)
        ):
            raise ValueError(value)  # Python's float takes more than the database's cast
        found = _numbers(value) if given is None else np.asarray(value, np.float64).reshape(1, -1)
    except _NOT_NUMBERS as error:
        raise InvalidInput(f"Column {column.name!r} holds {show(value)}, not numbers.") from error
    if given is not None and (found.size != 1 or isinstance(value, list)):
        raise InvalidInput(f"Column {column.name!r} holds {show(value)}, not one number.")
    if column.kind == "bytes" and not np.isin(found, np.arange(256)).all():
        raise InvalidInput(f"Column {column.name!r} holds {show(value)}, which are no bytes.")
    if given is not None and not np.isfinite(found).all():
        raise InvalidInput(
            f"Column {column.name!r} holds {show(value)}.", hint="Pass finite numbers, or null."
        )
    return found[:, 0] if column.kind == "numeric" and found.shape[1] == 1 else found


def seconds_of(column: Column, source: Source, value: Any) -> float:
    """Return the seconds of a moment, clock or span as JSON has it; see `Source`."""
    try:
        if not isinstance(value, str):  # a number says not since when
            raise ValueError
        if source == "moment":
            moment = datetime.fromisoformat(value)
            return (moment - (_EPOCH if moment.tzinfo else _NAIVE_EPOCH)).total_seconds()
        if source == "clock":
            if value.startswith("24:00:00"):
                return 86_400.0
            clock = time.fromisoformat(value)
            seconds = clock.hour * 3600 + clock.minute * 60 + clock.second + clock.microsecond / 1e6
            return (seconds - (clock.utcoffset() or timedelta()).total_seconds()) % 86_400
        return _span(value)
    except ValueError:
        what = {"moment": "date", "clock": "time of day", "span": "interval"}[source]
        raise InvalidInput(
            f"Column {column.name!r} holds {show(value)}, which is no {what}.",
            hint=f"Such as {_EXAMPLES[source]}.",
        ) from None


#: An interval as databases write it, such as "1 year 2 mons -3 days 04:05:06.7", or as ISO 8601 has
#: it, such as "P1Y2M-3DT4H5M6.7S".
_SPAN = re.compile(
    r"(?:(?P<years>[+-]?\d+) years?)? ?(?:(?P<months>[+-]?\d+) (?:mon|month)s?)? ?"
    r"(?:(?P<days>[+-]?\d+) days?)? ?"
    r"(?:(?P<sign>[+-]?)(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d(?:\.\d+)?))?"
)
_DAYS, _CLOCK = (("years", "months", "days"), ("hours", "minutes", "seconds"))
_ISO_DAYS, _ISO_CLOCK = (
    "".join(rf"(?:(?P<{name}>[+-]?\d+(?:\.\d+)?){name[0].upper()})?" for name in names)
    for names in (_DAYS, _CLOCK)
)
_ISO_SPAN = re.compile(rf"P(?=.)(?P<sign>){_ISO_DAYS}(?:T(?=.){_ISO_CLOCK})?")
_EXAMPLES = {"moment": "2013-01-31T05:00:00", "clock": "05:00:00", "span": "1 day 02:30:00"}


def _span(value: str) -> float:
    """Return an interval's seconds: a year has 365.25 days and a month 30, as epoch has it."""
    parts = _SPAN.fullmatch(value) or _ISO_SPAN.fullmatch(value)
    if parts is None or not value:
        raise ValueError(value)
    years, months, days = (float(parts[name] or 0) for name in _DAYS)
    hours, minutes, seconds = (float(parts[name] or 0) for name in _CLOCK)
    clock = 3600 * hours + 60 * minutes + seconds
    days += 365.25 * years + 30 * months
    return days * 86_400 + (-clock if parts["sign"] == "-" else clock)


def _text(column: Column, value: Any) -> str:
    """Return a JSON value as the database's cast to text has it."""
    if isinstance(value, str):
        return value
    if column.kind == "tokens" or not isinstance(value, bool | int | float | UUID):
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
