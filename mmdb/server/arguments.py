"""Arguments that arrive as SQL values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from operator import index
from typing import Any
from uuid import UUID

from mmdb.errors import CandidateNotFound, InvalidInput, InvalidLayerGraph, InvalidOption
from mmdb.messages import show

#: What json raises for a value that is no JSON, or is nested too deeply.
_JSON_ERRORS = (TypeError, ValueError, RecursionError)


def check_candidate_id(value: Any) -> int:
    """Return the number of a candidate, as far as it can be one.

    Raises:
        InvalidOption: it is no whole number.
        CandidateNotFound: it is none of 64 bits.
    """
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise InvalidOption(
            f"candidate_id is {show(value)}.",
            hint="It is a whole number: SELECT candidate_id FROM mmdb.leaderboard.",
        )
    if not -(2**63) <= number < 2**63:
        raise CandidateNotFound(f"Candidate {show(number)} does not exist.")
    return number


def json_text(value: Mapping[str, Any] | None, name: str) -> str:
    """Return an argument as the text of a JSON object.

    Raises:
        InvalidOption: it is no mapping, or see `as_json`.
    """
    if not isinstance(value, Mapping | None):
        raise InvalidOption(f"{name} is not a mapping.", hint='Such as {"name": "value"}.')
    return as_json(value or {}, name)


def as_json(value: Any, name: str) -> str:
    """Return an argument as the text of JSON.

    Raises:
        InvalidOption: it holds what JSON cannot, such as NaN.
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=_plain_value)
        text.encode()  # a lone surrogate is no text
    except _JSON_ERRORS as error:
        raise InvalidOption(
            f"{name} holds what JSON cannot: {error}.",
            hint="Use finite numbers, texts, true, false, null, lists and mappings.",
        ) from error
    return text


def architecture_text(value: Any) -> str:
    """Return an architecture as text.

    Raises:
        InvalidLayerGraph: it is neither a text nor a mapping that JSON can hold.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        what = "NULL" if value is None else f"a {type(value).__name__}"
        raise InvalidLayerGraph(f"an architecture is not {what}")
    try:
        return json.dumps(value)
    except _JSON_ERRORS as error:
        raise InvalidLayerGraph(f"the architecture holds what JSON cannot: {error}") from error


def input_text(x: Any) -> str:
    """Return one row for `predict` as JSON: values in order, or a mapping, or JSON as it is.

    Raises:
        InvalidInput: it holds something else, or a number that is not finite.
    """
    if x is None:
        raise InvalidInput("The input is NULL.")
    if isinstance(x, str):  # a text is no list of its letters
        json_row(x)
        return x
    try:
        given = dict(x) if isinstance(x, Mapping) else list(x)
        return json.dumps(given, allow_nan=False, default=_plain_value)
    except _JSON_ERRORS as error:
        raise InvalidInput(f"The input cannot be read: {error}.") from error


def _plain_value(value: Any) -> Any:
    """Return a value that a database or numpy gave as JSON has it, such as a date as its text.

    Raises:
        TypeError: JSON has no such value.
    """
    match value:
        case Decimal():  # a whole number keeps its digits, which may name a category
            return int(value) if value.as_tuple().exponent == 0 else float(value)
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID():
            return str(value)
        case bytes():
            return value.hex()
    if getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M"):
        value = value.astype(f"{value.dtype.kind}8[us]")  # Python has no nanoseconds
    if hasattr(value, "tolist"):  # of numpy or torch
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no type of JSON")


def json_value(text: Any) -> Any:
    """Return what a json argument holds.

    DuckDB passes a string literal where PostgreSQL passes jsonb, so a string that holds JSON is
    read once more.
    """
    value = json.loads(text) if isinstance(text, str) else text
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


class NumberText(float):
    """A number of JSON with a point or an exponent, and how it was written."""

    def __new__(cls, text: str) -> NumberText:
        """Return the number of a text."""
        number = super().__new__(cls, text)
        number._text = text
        return number

    _text: str

    def __str__(self) -> str:
        return self._text


def json_row(text: str) -> Any:
    """Return the row to predict that a text of JSON holds; numbers keep how they are written.

    Raises:
        InvalidInput: it is no JSON.
    """
    try:
        value = json.loads(text, parse_float=NumberText)
        return json.loads(value, parse_float=NumberText) if isinstance(value, str) else value
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"The input {show(text)} is not JSON.",
            hint='Pass a row such as {"a": 1}, or an array of numbers such as ARRAY[1, 2].',
        ) from error


def json_object(text: Any, name: str) -> dict[str, Any]:
    """Return a json argument that must be an object.

    Raises:
        InvalidOption: it is none.
    """
    try:
        value = json_value(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOption(
            f"{name} is not JSON: {error}.", hint='Such as {"name": "value"}.'
        ) from error
    if not isinstance(value, dict):
        raise InvalidOption(f"{name} is not a JSON object.", hint='Such as {"name": "value"}.')
    return value
