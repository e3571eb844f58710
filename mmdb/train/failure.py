"""The traceback of what a user's code raised, as text for a candidate's row."""

from __future__ import annotations

import traceback

from mmdb.errors import MmdbError

#: Characters of a traceback that are kept: its end, where the error is.
TRACE_LIMIT = 16_384


def trace_of(error: BaseException) -> str:
    """Return the traceback that an error carries, or its cause's, or its own; its last 16 KB.

    Of an error of mmdb that has neither, nothing: its message says it all.
    """
    kept = getattr(error, "trace", "")
    if kept:
        return str(kept)
    if isinstance(error, MmdbError):
        if error.__cause__ is None:
            return ""
        error = error.__cause__
    text = "".join(traceback.format_exception(error))
    return text if len(text) <= TRACE_LIMIT else "...\n" + text[len(text) - TRACE_LIMIT + 4 :]
