"""Arguments that every way in checks, for a wrong one would delete or overwrite."""

from __future__ import annotations

from mmdb.errors import InvalidOption
from mmdb.messages import show


def check_flag(value: object, name: str) -> bool:
    """Return an argument that must be true or false: NULL is neither.

    Raises:
        InvalidOption
    """
    if not isinstance(value, bool):
        raise InvalidOption(f"{name} is {show(value)}.", hint="It is true or false.")
    return value
