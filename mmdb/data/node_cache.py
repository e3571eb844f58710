"""Decoded partitions, kept once per node as files that its processes map.

A partition is a few .npy files (see `mmdb.data.arrays`) named by its content hash. They are written
in a folder of their own and moved out of it, so whoever sees a file sees all of it; a file that is
removed stays readable where it is mapped. The least recently used go when the files outgrow
MMDB_CACHE_BYTES.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mmdb.data import arrays
from mmdb.data.decoded import Decoded
from mmdb.errors import EngineError

#: Seconds after which an unfinished file is taken for a dead process's.
STALE_S = 3600


class NotCached(Exception):
    """The partition is not in the node's cache."""


def ensure(key: bytes, write: Callable[[Path], None]) -> None:
    """Have a partition in the cache.

    Args:
        key: the partition's content hash.
        write: writes the files that `arrays.mapped` reads into the folder it is given; called only
            where the cache lacks the partition or holds a damaged file.
    """
    if not holds(key):
        with placing(key) as folder:
            write(folder)


def holds(key: bytes) -> bool:
    """Return whether a partition is in the cache, undamaged; it counts as used now."""
    try:
        map(key)
    except NotCached:
        return False
    _touch(directory(), key)
    return True


@contextmanager
def placing(key: bytes) -> Iterator[Path]:
    """Make a partition; yields a folder of its own, whose files the cache takes at the end.

    What fails leaves nothing behind.
    """
    folder = directory()
    written = folder / f"{key.hex()}.{os.getpid()}-{secrets.token_hex(4)}.part"
    written.mkdir(mode=0o700)
    try:
        yield written
        for path in written.iterdir():
            path.replace(folder / _name(key, path.name))
    finally:
        shutil.rmtree(written, ignore_errors=True)
    _evict(folder, key)


def path_of(key: bytes, file: str) -> Path:
    """Return where a partition's file of this name is, if the cache holds the partition."""
    return directory() / _name(key, file)


def map(key: bytes) -> Decoded:
    """Return the rows of a partition, mapped copy-on-write: pages are shared.

    Raises:
        NotCached: it is not there, or its files are damaged; `ensure` it.
    """
    folder = directory()
    try:
        return arrays.mapped(lambda name: folder / _name(key, name))
    except (OSError, ValueError, EOFError) as error:
        raise NotCached(key.hex()) from error


def directory() -> Path:
    """Return the cache's folder, made if it is not there: MMDB_CACHE_DIR or a private one.

    Someone else who makes a folder of the private one's name is passed over: another is made.

    Raises:
        EngineError: MMDB_CACHE_DIR cannot be a folder.
    """
    named = os.environ.get("MMDB_CACHE_DIR")
    if named:
        folder = Path(named)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise EngineError(
                f"MMDB_CACHE_DIR is {named!r}, which cannot be a folder: {error.strerror}.",
                hint="Set it to a folder that this user may write to, for the server or here.",
            ) from error
        return folder
    folder = Path(tempfile.gettempdir()) / f"mmdb-cache-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if _is_private(folder):
        return folder
    others = sorted(folder.parent.glob(f"{folder.name}.*"))
    made = next(filter(_is_private, others), None)
    return made or Path(tempfile.mkdtemp(prefix=f"{folder.name}."))


def _is_private(folder: Path) -> bool:
    """Return whether it is a folder of this user that nobody else may look into, and no link."""
    try:
        status = folder.lstat()
    except FileNotFoundError:  # another process has just removed it
        return False
    mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return mine and not status.st_mode & 0o077


def capacity_bytes() -> int:
    """Return how large the cache may grow."""
    return int(os.environ.get("MMDB_CACHE_BYTES", 8 * 2**30))


def _name(key: bytes, file: str) -> str:
    return f"{key.hex()}.{file}"


def _touch(folder: Path, key: bytes) -> None:
    for name in ("x.npy", "x0.npy"):  # one file speaks for its partition
        with suppress(FileNotFoundError):
            os.utime(folder / _name(key, name))


def _evict(folder: Path, kept: bytes) -> None:
    """Remove the least recently used partitions until the rest fits, and dead processes' files."""
    entries: dict[str, list[tuple[Path, os.stat_result]]] = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            status = path.stat()
            if path.suffix == ".part":
                if time.time() - status.st_mtime > STALE_S:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif path.suffix in (".npy", ".json"):
                entries.setdefault(path.name.split(".")[0], []).append((path, status))
    sizes = {key: sum(s.st_size for _, s in found) for key, found in entries.items()}
    total = sum(sizes.values())
    for key in sorted(sizes, key=lambda key: max(s.st_mtime_ns for _, s in entries[key])):
        if total <= capacity_bytes():
            return
        if key != kept.hex():
            for path, _ in entries[key]:
                path.unlink(missing_ok=True)
            total -= sizes[key]
