"""Values as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def value_text(value: Any) -> str:
    """Return a value, a number with four significant digits, a mapping as `key=value`."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    if isinstance(value, Mapping):
        return " ".join(
            value_text(v) if k == "name" else f"{k}={value_text(v)}" for k, v in value.items()
        )
    return str(value)
