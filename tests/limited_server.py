"""A PostgreSQL server that has little memory, and who takes it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tests.cluster import Cluster

#: Where the machine lets this user make control groups: of the first version, and of the second.
_PLACES = {
    "memory.limit_in_bytes": Path("/sys/fs/cgroup/memory"),
    "memory.max": Path("/sys/fs/cgroup"),
}


class LimitedServer(Cluster):
    """A server whose sessions have so much memory between them that the kernel kills one for more.

    Attributes:
        is_limited: whether the machine lets it be limited.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._group: Path | None = None
        super().__init__(in_memory=False)  # files in memory would count

    @property
    def is_limited(self) -> bool:
        """Whether there is a control group around the server."""
        return self._group is not None

    def start(self) -> None:
        """Start the server; sessions that it starts from now on are limited."""
        super().start()
        for name, place in _PLACES.items():
            group = place / f"mmdb-test-{os.getpid()}"
            limit = group / name
            try:
                group.mkdir(exist_ok=True)
                limit.write_text(str(self._most))
                (group / "cgroup.procs").write_text(str(self.pid))
            except OSError:
                with suppress(OSError):
                    group.rmdir()
                continue
            self._group = group
            return

    def stop(self) -> None:
        """End the server and remove its group."""
        super().stop()
        if self._group is not None:
            with suppress(OSError):
                self._group.rmdir()
            self._group = None
