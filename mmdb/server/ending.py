"""The end of a server's session while one of its threads still computes."""

from __future__ import annotations

import ctypes
import os
from functools import cache

_Handler = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@cache
def end_at_once() -> None:
    """Let the process end as soon as PostgreSQL has done so; call it once torch is loaded.

    PostgreSQL ends a session whose client is gone in the midst of a hop, and does not come back to
    Python for it. What follows, the C library's taking down of torch under the thread that computes
    with it, would now and then be a crash, for which the server ends every session.
    """
    library = ctypes.CDLL(None)
    try:
        ending = ctypes.c_bool.in_dll(library, "proc_exit_inprogress")
        register = library.__cxa_atexit
    except (AttributeError, ValueError):  # no PostgreSQL, or another C library
        return
    handler = _Handler(lambda _: os._exit(1) if ending.value else None)
    _kept.append(handler)
    register(handler, None, None)


_kept: list[object] = []  # the C library keeps the address alone
