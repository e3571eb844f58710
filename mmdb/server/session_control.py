"""What a server's session hears of PostgreSQL's signals, how it ends, and how it stands back.

PostgreSQL may end a session in the midst of a hop, and does not come back to Python for it. What
follows, the C library's taking down of torch or LLVM under the thread that computes with it, would
now and then be a crash, for which the server ends every session. No Python may run then either: its
frames may have been jumped over.
"""

from __future__ import annotations

import ctypes
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from mmdb.errors import InvalidOption
from mmdb.memory import lifted

#: Of PostgreSQL's `enum TimeoutId`.
_STATEMENT_TIMEOUT = 3


#: Of PostgreSQL's `struct SnapshotData`: up to `curcid`, which transactions and which commands of
#: its own a statement sees.
_SNAPSHOT_BYTES = 52


class _Flags:
    """PostgreSQL's own variables."""

    def __init__(self) -> None:
        """Find it in the process.

        Raises:
            AttributeError, ValueError: this is no PostgreSQL.
        """
        self._library = ctypes.PyDLL(None)
        signals = ("InterruptPending", "QueryCancelPending", "ProcDiePending")
        self._pending, self._cancelled, self._dies, self._looks = (
            ctypes.c_int.in_dll(self._library, name)
            for name in (*signals, "CheckClientConnectionPending")
        )
        self._check_client = self._library.pq_check_connection
        self._timed_out = self._library.get_timeout_indicator
        self._check_client.restype = self._timed_out.restype = ctypes.c_bool
        self._has_snapshot, self._snapshot = (
            self._library[name] for name in ("ActiveSnapshotSet", "GetActiveSnapshot")
        )
        self._has_snapshot.restype, self._snapshot.restype = ctypes.c_bool, ctypes.c_void_p
        self._started = self._library["GetCurrentStatementStartTimestamp"]
        self._started.restype = ctypes.c_int64
        # Within a function that runs with another role's rights, the last is the caller's.
        names = ("GetUserId", "GetSessionUserId", "GetCurrentRoleId")
        self._roles = [self._library[name] for name in names]

    @property
    def any(self) -> bool:
        """Whether PostgreSQL has anything to do."""
        return bool(self._pending.value)

    def statement(self) -> tuple[object, ...] | None:
        """Return when the client sent what runs now, which rows it sees, and as whom."""
        if not self._has_snapshot():
            return None
        seen = ctypes.string_at(self._snapshot(), _SNAPSHOT_BYTES)
        return (self._started(), seen, *(role() for role in self._roles))

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


def statement() -> tuple[object, ...] | None:
    """Return what a look into the catalog depends on: as long as it is equal, it finds the same.

    None where that is not known, as outside of PostgreSQL; only PostgreSQL's own thread may ask.
    """
    flags = _flags()
    return None if flags is None else flags.statement()


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


def end_at_once() -> None:
    """Let the process end as soon as PostgreSQL has done all that it does at an end.

    Call it again once torch is loaded: what is registered last goes first.
    """
    server = _server()
    if server is not None:
        leave = ctypes.cast(server._exit, ctypes.c_void_p)
        server.__cxa_atexit(leave, None, None)


@cache
def end_before_libraries() -> None:
    """Let the process end once PostgreSQL has given back all that it shares with others.

    For a session with a thread that was left behind, which may be loading libraries even now: what
    they register goes first. The server does not log the end of such a session.
    """
    server = _server()
    if server is not None:
        server.on_proc_exit(ctypes.cast(server._exit, ctypes.c_void_p), ctypes.c_void_p(0))


def _server() -> ctypes.CDLL | None:
    """Return the process's own functions; None if it is no PostgreSQL, or has another C library."""
    library = ctypes.CDLL(None)
    needed = ("proc_exit_inprogress", "on_proc_exit", "__cxa_atexit", "_exit")
    return library if all(hasattr(library, name) for name in needed) else None


#: How far workers stand back, as `nice`: from 0, not at all, to 19; another one by MMDB_NICE.
NICE, MOST = 15, 19
#: Linux divides processors by sessions of processes, of which every PostgreSQL session is one, and
#: by `nice` only within each, but for what this file says. It takes ten such changes a second.
_GROUP, _TRIES, _PAUSE_S = Path("/proc/self/autogroup"), 5, 0.1


def stand_back() -> None:
    """Let other sessions' requests go before what this process computes, for as long as it lives.

    A processor that nobody else wants is used as before. A system that does not let it is left as
    it is.

    Raises:
        InvalidOption: MMDB_NICE is no such number.
    """
    nice = _nice()
    if nice == 0:
        return
    for thread in (0, os.getpid()):  # this one, PostgreSQL's own, and those that they start
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, nice)
    for _ in range(_TRIES):
        try:
            _GROUP.write_text(str(nice))
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:
            return
        else:
            return


def _nice() -> int:
    text = os.environ.get("MMDB_NICE", str(NICE))
    if not (text.isascii() and text.isdigit() and int(text) <= MOST):
        raise InvalidOption(
            f"MMDB_NICE is {text!r}.",
            hint=f"It is a whole number from 0, not at all, to {MOST}; the server reads it from "
            "its environment.",
        )
    return int(text)
