"""Folders in memory for what a throw-away server keeps.

A database is some six hundred files, and `CREATE DATABASE` makes them all. In memory that takes
40 ms. On ext4 it takes ten times as long where files were deleted in the last minutes, as at the
end of each test: the file system looks for an inode that was not in use so lately.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM_BYTES = 8 << 30  # for the largest test's gigabytes, on each of two servers
PREFIX = "mmdb-cluster-"


class MemoryFolder:
    """A folder in memory that no other program takes for abandoned while this object lives.

    Raises:
        NoRoom: this machine has no memory to spare.
    """

    def __init__(self) -> None:
        if not _has_room():
            raise NoRoom(f"{MEMORY} has less than {ROOM_BYTES >> 30} GiB of memory to spare.")
        _remove_abandoned()
        made = Path(tempfile.mkdtemp(dir=MEMORY))
        self._lock = os.open(made, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.rename(MEMORY / f"{PREFIX}{made.name}")  # locked before it is found

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


class NoRoom(Exception):
    """This machine has too little memory to keep files in it."""


def _has_room() -> bool:
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
        return False
    # The file system's own limit may be far above the memory that is left.
    left = min(shutil.disk_usage(MEMORY).free, _available_bytes())
    return left >= ROOM_BYTES


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _remove_abandoned() -> None:
    """Remove the folders of processes that were killed: nobody holds their locks."""
    for folder in MEMORY.glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder, os.O_RDONLY)
        except OSError:
            continue  # another user's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
