"""Memory of process trees, from /proc: shared pages are counted once, divided among their users."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Self

INTERVAL_S = 0.25


class PeakMemory:
    """The most memory that some process trees had at once; use it in `with`.

    Attributes:
        peak_bytes: proportional set size (PSS) of all processes together.
    """

    def __init__(self, roots: Iterable[int]) -> None:
        self.peak_bytes = 0
        self._roots = tuple(roots)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            total = sum(memory_bytes(pid) for pid in tree(self._roots))
            self.peak_bytes = max(self.peak_bytes, total)


def tree(roots: Iterable[int]) -> set[int]:
    """Return the processes, and those that descend from them."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (parent := parent_of(int(folder.name))) is not None:
            children[parent].append(int(folder.name))
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children[pid]
    return found


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])  # the name may hold spaces


def memory_bytes(pid: int) -> int:
    """Return a process's PSS; its resident set where this user may not read that; 0 if gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
