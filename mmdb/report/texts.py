"""Values as texts of a report."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def value_text(value: Any) -> str:
    """Return a value, a number with four significant digits, a mapping as `key=value`.

    >>> value_text(0.123456), value_text({"name": "sgd", "momentum": 0.9}), value_text(None)
    ('0.1235', 'sgd momentum=0.9', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    if isinstance(value, Mapping):
        return " ".join(
            value_text(v) if k == "name" else f"{k}={value_text(v)}" for k, v in value.items()
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(value_text, value))
    return str(value)


def time_text(seconds: float | None) -> str:
    """Return a time of the clock, of UTC.

    >>> time_text(0.0)
    '1970-01-01 00:00 UTC'
    """
    if seconds is None:
        return ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def finite(value: float | None) -> float | None:
    """Return a number that a chart can show, or None."""
    return value if value is not None and math.isfinite(value) else None


def short(text: str, most: int = 32) -> str:
    """Return a text of at most so many characters.

    >>> short("lr=0.1 optimizer=adam", 10)
    'lr=0.1 op…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def architecture_text(text: str) -> str:
    """Return how a model was built as people write it; a text that is no JSON as it is.

    >>> architecture_text('{"arguments":{"hidden":[8]},"factory":"mlp"}'), architecture_text("x")
    ('mlp(hidden=[8])', 'x')
    """
    try:
        known = json.loads(text)
    except ValueError:
        return text
    if not isinstance(known, dict) or "factory" not in known:
        return text
    given = ", ".join(f"{k}={json.dumps(v)}" for k, v in (known.get("arguments") or {}).items())
    return f"{known['factory']}({given})"


def strategy_text(strategy: str, group_size: int, executed: bool) -> str:
    """Return the name of a way of training.

    >>> strategy_text("data_parallel", 2, True), strategy_text("pipeline", 1, False)
    ('data parallel of 2', 'pipeline (what-if)')
    """
    name = strategy.replace("_", " ") + (f" of {group_size}" if group_size > 1 else "")
    return name if executed else f"{name} (what-if)"
