"""What PostgreSQL's signals have told a session, which looks only when its own code runs."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from mmdb.memory import lifted

#: Of PostgreSQL's `enum TimeoutId`.
_STATEMENT_TIMEOUT = 3


class _Flags:
    """PostgreSQL's own variables."""

    def __init__(self) -> None:
        """Find it in the process.

        Raises:
            AttributeError, ValueError: this is no PostgreSQL.
        """
        self._library = ctypes.PyDLL(None)
        names = ("InterruptPending", "QueryCancelPending", "ProcDiePending")
        self._pending, self._cancelled, self._dies, self._looks = (
            ctypes.c_int.in_dll(self._library, name)
            for name in (*names, "CheckClientConnectionPending")
        )
        self._check_client = self._library.pq_check_connection
        self._timed_out = self._library.get_timeout_indicator
        self._check_client.restype = self._timed_out.restype = ctypes.c_bool

    @property
    def any(self) -> bool:
        """Whether PostgreSQL has anything to do."""
        return bool(self._pending.value)

    def end(self) -> tuple[str, str] | None:
        """Return why the statement is to end, as SQLSTATE and message; None if it is not."""
        if self._dies.value:
            return "57P01", "terminating connection due to administrator command"
        if self._cancelled.value:
            timed_out = self._timed_out(_STATEMENT_TIMEOUT, False)
            why = "statement timeout" if timed_out else "user request"
            return "57014", f"canceling statement due to {why}"
        if self._looks.value and not self._check_client():
            return "08006", "connection to client lost"
        return None


@cache
def _flags() -> _Flags | None:
    try:
        return _Flags()
    except (AttributeError, ValueError):
        return None


def heed(plpy: Any) -> None:
    """Let PostgreSQL interrupt the session; what ends the statement is raised.

    It goes through all of Python, as an error of `plpy`. PostgreSQL itself would jump over Python's
    frames where it waits for nodes of a cluster, or end the process in their midst.
    """
    flags = _flags()
    end = flags.end() if flags is not None and flags.any else None
    if end is not None:
        plpy.error(end[1], sqlstate=end[0])
    if flags is None or flags.any:  # others may wait for this session to heed them
        with lifted():
            plpy.execute("SELECT 1")
