"""How values and errors stand in messages: in a line, whatever they hold."""

from __future__ import annotations

import math
import reprlib

_SHOWN_BITS = 128  # of a number that is shown digit by digit

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80


def show(value: object) -> str:
    """Return `value` in at most a line, safe for a message whatever it holds; None is NULL.

    >>> show(None), show("a"), show(10**400)
    ('NULL', "'a'", 'about 1e400')
    """
    if value is None:
        return "NULL"
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"about {'-' * (value < 0)}1e{int(value.bit_length() * math.log10(2))}"
    return _short.repr(value)[:200]


def explain(exc: BaseException) -> str:
    """Return the error's text, or its class if it has none, in at most 1,000 characters."""
    return (str(exc).strip() or type(exc).__name__)[:1000]
