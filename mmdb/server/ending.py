"""The end of a server's session while one of its threads still computes."""

from __future__ import annotations

import ctypes


def end_at_once() -> None:
    """Let the process end as soon as PostgreSQL has done so.

    PostgreSQL may end a session in the midst of a hop, and does not come back to Python for it.
    What follows, the C library's taking down of torch under the thread that computes with it, would
    now and then be a crash, for which the server ends every session. No Python may run then either:
    its frames may have been jumped over. Call it again once torch is loaded: what is registered
    last goes first.
    """
    library = ctypes.CDLL(None)
    try:
        ctypes.c_bool.in_dll(library, "proc_exit_inprogress")
        register, leave = library.__cxa_atexit, library._exit
    except (AttributeError, ValueError):  # no PostgreSQL, or another C library
        return
    register(ctypes.cast(leave, ctypes.c_void_p), None, None)
