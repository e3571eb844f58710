"""Worker processes that nobody needs just now: to start one and load torch takes seconds."""

from __future__ import annotations

import atexit
import os
import threading
from collections import defaultdict
from subprocess import Popen
from typing import Any

from mmdb.train.values.runtime import end

#: Seconds after which a process that is not needed is ended; how many are kept for a processor.
IDLE_S, MOST = 60.0, 2

#: What two processes have in common that can stand in for each other.
Kind = tuple[str, ...]


class IdleChildren:
    """Processes of calls that have ended, kept for a minute for the next one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Kind, list[tuple[Popen[Any], threading.Timer]]] = defaultdict(list)

    def take(self, kind: Kind) -> Popen[Any] | None:
        """Return a process of a kind that still runs, which is the caller's now."""
        with self._lock:
            while self._kept[kind]:
                process, timer = self._kept[kind].pop()
                timer.cancel()
                if process.poll() is None:
                    return process
                end(process)
        return None

    def keep(self, kind: Kind, process: Popen[Any]) -> None:
        """Keep a process that waits for calls, or end it where there are enough of them."""
        timer = threading.Timer(IDLE_S, self._end, (kind, process))
        timer.daemon = True
        with self._lock:
            if sum(map(len, self._kept.values())) < MOST * (os.cpu_count() or 1):
                self._kept[kind].append((process, timer))
                timer.start()
                return
        end(process)

    def _end(self, kind: Kind, process: Popen[Any]) -> None:
        with self._lock:
            own = [one for one in self._kept[kind] if one[0] is process]
            for one in own:
                self._kept[kind].remove(one)
        if own:
            end(process)

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            kept = [one for ones in self._kept.values() for one in ones]
            self._kept.clear()
        for process, timer in kept:
            timer.cancel()
            end(process)

    def forget(self) -> None:
        """Leave all of them to the process that this one was forked from."""
        self.__init__()  # type: ignore[misc]


#: Those of this process.
IDLE = IdleChildren()
atexit.register(IDLE.close)
os.register_at_fork(after_in_child=IDLE.forget)
