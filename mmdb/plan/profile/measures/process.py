"""Bytes of a process that is ready to compute, and holds nothing of a candidate."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import torch

from mmdb.plan.profile.measures.timing import Allowance
from mmdb.plan.profile.row import Row
from mmdb.train.drive.child import ChildProcess

#: Pages of its own, and of files that it maps; a database's shared memory is not a worker's.
_COUNTED = ("RssAnon", "RssFile")


def measure_process(allowance: Allowance, seed: int, device: torch.device) -> Iterator[Row]:
    """Measure a worker's process: of a server's session itself, else a child that is started."""
    if "plpy" in sys.modules:
        yield _row(held_bytes())
        return
    with closing(ChildProcess(str(device))) as worker:
        worker.warm_up()
        yield _row(held_bytes(worker.pid))


def _row(size: int) -> Row:
    return Row(kind="process", size=1.0, value=float(size), unit="byte")


def held_bytes(pid: int | None = None) -> int:
    """Return the bytes of a process's memory, this one's if left out.

    Where the system does not say, they are the most that this one ever had.
    """
    status = Path("/proc") / ("self" if pid is None else str(pid)) / "status"
    if status.exists():
        lines = (line.split() for line in status.read_text().splitlines())
        return 1024 * sum(int(line[1]) for line in lines if line[0].rstrip(":") in _COUNTED)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
