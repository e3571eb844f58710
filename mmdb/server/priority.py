"""Whose computing the operating system puts first, where sessions want the same processors."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

#: How far workers stand back, as `nice`: from 0, not at all, to 19.
NICE = int(os.environ.get("MMDB_NICE", "15"))
#: Linux divides processors by sessions of processes, of which every PostgreSQL session is one, and
#: by `nice` only within each, but for what this file says. It takes ten such changes a second.
_GROUP, _TRIES, _PAUSE_S = Path("/proc/self/autogroup"), 5, 0.1


def stand_back() -> None:
    """Let other sessions' requests go before what this process computes, for as long as it lives.

    A processor that nobody else wants is used as before. A system that does not let it is left as
    it is.
    """
    if NICE <= 0:
        return
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)  # this thread's, and of threads that it starts
    for _ in range(_TRIES):
        try:
            _GROUP.write_text(str(NICE))
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:
            return
        else:
            return
