"""Arguments that arrive as SQL values."""

from __future__ import annotations

import json
from typing import Any

from mmdb.errors import InvalidOption


def json_value(text: Any) -> Any:
    """Return what a json argument holds.

    DuckDB passes a string literal where PostgreSQL passes jsonb, so a string that holds JSON is
    read once more.
    """
    value = json.loads(text) if isinstance(text, str) else text
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def json_object(text: Any, name: str) -> dict[str, Any]:
    """Return a json argument that must be an object.

    Raises:
        InvalidOption: it is none.
    """
    try:
        value = json_value(text)
    except ValueError as error:
        raise InvalidOption(f"{name} is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise InvalidOption(f"{name} is not a JSON object.", hint='Such as {"name": "value"}.')
    return value
