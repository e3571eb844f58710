"""What the server's sessions hold in memory while a load goes on."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path
from typing import Self

#: Seconds in which every session is looked at once: one after the other, for a look at what a
#: process has mapped takes a millisecond or two, in which the process may have to wait.
ROUND_S = 10.0


def session_bytes(pid: int) -> int | None:
    """Return what a process holds, the server's shared memory apart; None where it cannot be read.

    It is the proportional set size: what processes share, such as torch's code, counts for each in
    part.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    kilobytes = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return 1024 * (int(kilobytes["Pss_Anon"]) + int(kilobytes["Pss_File"]))


class Memory:
    """Looks at processes of this machine, in turn, until the block ends.

    Attributes:
        first, last: bytes of each process at the first and at the last look.
    """

    def __init__(self, pids: Collection[int]) -> None:
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self._pids = list(pids)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        for pid in self._pids:
            self._look(pid)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def growth(self, pids: Collection[int]) -> float | None:
        """Return by which share the processes' bytes have grown; None where they were not seen."""
        first = sum(self.first.get(pid, 0) for pid in pids)
        return sum(self.last.get(pid, 0) for pid in pids) / first - 1 if first else None

    def megabytes(self, pids: Collection[int]) -> float:
        """Return what the processes held at the last look, in MB (10^6)."""
        return sum(self.last.get(pid, 0) for pid in pids) / 1e6

    def _watch(self) -> None:
        pause = ROUND_S / max(1, len(self._pids))
        while True:
            for pid in self._pids:
                if self._ended.wait(pause):
                    return
                self._look(pid)

    def _look(self, pid: int) -> None:
        found = session_bytes(pid)
        if found is not None:
            self.first.setdefault(pid, found)
            self.last[pid] = found
