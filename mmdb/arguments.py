"""Checks of arguments and options: a bool is no number, although Python has it as an int."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Iterable
from typing import TypeGuard

from mmdb.errors import InvalidOption
from mmdb.messages import show

_LARGEST = sys.float_info.max


def is_whole(value: object, least: float = -math.inf, most: float = math.inf) -> TypeGuard[int]:
    """Return whether a value is a whole number from `least` to `most`.

    >>> is_whole(2, 1, 2), is_whole(3, 1, 2), is_whole(True), is_whole(2.0)
    (True, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: object, least: float = -_LARGEST, most: float = _LARGEST) -> TypeGuard[float]:
    """Return whether a value is a number from `least` to `most`: a finite one by default.

    >>> is_number(0.5, 0, 1), is_number(1), is_number(True), is_number(float("nan"))
    (True, True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def unfit(name: str, value: object, hint: str) -> InvalidOption:
    """Return the error that says of an argument or option what it is, and what it can be."""
    return InvalidOption(f"{name} is {show(value)}.", hint=hint)


def check_known(given: Iterable[object], known: Collection[str], says: str) -> None:
    """Refuse what is none of the known names.

    Args:
        says: how the error begins, before the name: "A run has no option".
    Raises:
        InvalidOption
    """
    for name in given:
        if name not in known:
            raise InvalidOption(f"{says} {show(name)}.", hint=f"Known: {', '.join(known)}.")


def check_whole(value: object, name: str, least: int, most: int) -> int:
    """Return an argument that must be a whole number from `least` to `most`.

    Raises:
        InvalidOption
    """
    if not is_whole(value, least, most):
        raise unfit(name, value, f"It is a whole number from {least} to {most}.")
    return value


def check_seconds(value: object, name: str) -> float:
    """Return a time as seconds: a number of them, or a text such as "5 min".

    >>> check_seconds("5 min", "budget"), check_seconds("1.5 hours", "budget")
    (300.0, 5400.0)

    Raises:
        InvalidOption
    """
    found = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    seconds = float(found[1]) * _UNITS[found[2][:1]] if found else value
    if not is_number(seconds, 0, 1e9) or not seconds:
        raise unfit(name, value, 'It is seconds, or a text such as "5 min".')
    return float(seconds)


_TIME = re.compile(r"(\d+(?:\.\d+)?) *(s|sec|seconds?|min|minutes?|h|hours?|d|days?|w|weeks?)")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def check_flag(value: object, name: str) -> bool:
    """Return an argument that must be true or false: NULL is neither.

    Raises:
        InvalidOption
    """
    if not isinstance(value, bool):
        raise unfit(name, value, "It is true or false.")
    return value
