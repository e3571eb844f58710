"""Kinds of argument values: a kind returns its value, or raises ValueError that says what fits.

Arguments come from JSON that any user may write, so nothing here trusts a
type, a sign or a size.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mmdb.arguments import is_number, is_whole

Kind = Callable[[object], object]

MAX_WHOLE = 2**31 - 1  # sizes above this overflow the kernels' 32-bit indices


def whole(least: int, most: int = MAX_WHOLE) -> Kind:
    """Return the kind of whole numbers from `least` to `most`."""

    def check(value: object) -> object:
        if not is_whole(value, least, most):
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return check


def real(least: float, below: float = math.inf) -> Kind:
    """Return the kind of numbers in [least, below)."""

    def check(value: object) -> object:
        if not is_number(value, least) or value >= below:
            raise ValueError(f"must be a number from {least:g} to below {below:g}")
        return value

    return check


def flag(value: object) -> object:
    """Return `value` if it is true or false."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def one_of(*choices: str) -> Kind:
    """Return the kind of the strings `choices`."""

    def check(value: object) -> object:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return check


def pair(kind: Kind) -> Kind:
    """Return the kind of one `kind`, or of a list of two (height, width)."""

    def check(value: object) -> object:
        if not isinstance(value, list | tuple):
            return kind(value)
        if len(value) != 2:
            raise ValueError("must be one number or a list of two")
        return tuple(kind(item) for item in value)

    return check


def several(kind: Kind) -> Kind:
    """Return the kind of one `kind`, or of a list of 1 to 8 of them; the value is a tuple."""

    def check(value: object) -> object:
        items = value if isinstance(value, list | tuple) else [value]
        if not 1 <= len(items) <= 8:
            raise ValueError("must be a list of 1 to 8 numbers")
        return tuple(kind(item) for item in items)

    return check


def either(*kinds: Kind) -> Kind:
    """Return the kind of what any of `kinds` takes."""

    def check(value: object) -> object:
        reasons = []
        for kind in kinds:
            try:
                return kind(value)
            except ValueError as exc:
                reasons.append(str(exc))
        raise ValueError(", or ".join(reasons))

    return check


size = whole(1)
count = whole(0)
dim = whole(-8, 8)
shape = several(either(size, whole(-1, -1)))
probability = real(0.0, 1.0)
positive = real(1e-30, 1e30)
