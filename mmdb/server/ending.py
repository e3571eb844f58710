"""The end of a server's session while one of its threads still computes.

PostgreSQL may end a session in the midst of a hop, and does not come back to Python for it. What
follows, the C library's taking down of torch or LLVM under the thread that computes with it, would
now and then be a crash, for which the server ends every session. No Python may run then either: its
frames may have been jumped over.
"""

from __future__ import annotations

import ctypes
from functools import cache


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
