"""The end of a server's session while one of its threads still computes."""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache

from mmdb.server.interrupt import COMPUTING

_Handler = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@cache
def end_at_once() -> None:
    """Let the process end as soon as PostgreSQL has done so, if a hop is still computed then.

    PostgreSQL ends a session whose client is gone in the midst of a hop, and does not come back to
    Python for it. What follows, the C library's taking down of torch under the thread that computes
    with it, would now and then be a crash, for which the server ends every session. A session that
    computes nothing ends as any other. Call it once torch is loaded: what is registered last goes
    first.
    """
    library = ctypes.CDLL(None)
    try:
        ending = ctypes.c_bool.in_dll(library, "proc_exit_inprogress")
        register = library.__cxa_atexit
    except (AttributeError, ValueError):  # no PostgreSQL, or another C library
        return

    def end(_: object) -> None:
        if ending.value and any(t.name == COMPUTING for t in threading.enumerate()):
            os._exit(1)

    handler = _Handler(end)
    _kept.append(handler)
    register(handler, None, None)


_kept: list[object] = []  # the C library keeps the address alone
