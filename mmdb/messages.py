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


def seconds_text(seconds: float | None) -> str:
    """Return a duration with about three digits; '' where it is not known.

    >>> seconds_text(0.0123), seconds_text(7.26), seconds_text(83.0), seconds_text(7300.0)
    ('12.3 ms', '7.26 s', '1 min 23 s', '2 h 02 min')
    """
    if seconds is None:
        return ""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    if seconds < 3599.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes:02} min" if hours < 100 else f"{hours / 24:,.3g} days"


def bytes_text(count: float | None) -> str:
    """Return an amount of bytes with about three digits; '' where it is not known.

    >>> bytes_text(0), bytes_text(1536), bytes_text(2.5e9)
    ('0 B', '1.54 kB', '2.5 GB')
    """
    if count is None:
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1e3
    return f"{count:,.3g} TB"
