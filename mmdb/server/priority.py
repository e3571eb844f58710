"""Whose computing the operating system puts first, where sessions want the same processors."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from mmdb.errors import InvalidOption

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
