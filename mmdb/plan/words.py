"""Words of plans: amounts as people read them, and how a note on features begins. Pure."""

from __future__ import annotations

#: A note that begins so says what is shared, and warns of nothing.
FEATURES = "Features of "


def seconds_text(seconds: float) -> str:
    """Return a duration with about three digits.

    >>> seconds_text(0.0123), seconds_text(7.26), seconds_text(83.0), seconds_text(7300.0)
    ('12.3 ms', '7.26 s', '1 min 23 s', '2 h 02 min')
    """
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    if seconds < 3599.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes:02} min" if hours < 100 else f"{hours / 24:,.3g} days"


def bytes_text(count: float) -> str:
    """Return an amount of bytes with about three digits.

    >>> bytes_text(0), bytes_text(1536), bytes_text(2.5e9)
    ('0 B', '1.54 kB', '2.5 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1e3
    return f"{count:,.3g} TB"
