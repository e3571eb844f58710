"""A small file system that can be filled and emptied again."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PIECE = 1 << 20


class NoMount(Exception):
    """This user may not mount a file system."""


class SmallDisk:
    """A mounted folder with a file of ballast in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no byte for anyone else."""
        with self._ballast.open("ab", buffering=0) as file:
            size = PIECE
            while size:
                try:
                    if file.write(bytes(size)) < size:
                        size //= 2
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[SmallDisk]:
    """Mount a file system in memory on a new folder, whose owner may write there.

    Raises:
        NoMount
    """
    folder.mkdir()
    owner = folder.parent.stat()
    options = f"size={size_mib}m,mode=777"
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise NoMount("There is no program `mount`.") from error
    if done.returncode:
        raise NoMount(done.stderr.decode().strip())
    try:
        os.chown(folder, owner.st_uid, owner.st_gid)
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
