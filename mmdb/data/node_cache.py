"""Files that the processes of a node share: decoded partitions, models, states between two hops."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from mmdb.data import arrays
from mmdb.data.arrays import Decoded
from mmdb.errors import EngineError

#: Which decoding made the files, for those of an older mmdb may stay: one more for each change.
_DECODED_AS = 1
#: Of rows, of networks that features are computed with, and of models' tensors.
_SUFFIXES = (".npy", ".json", ".safetensors", ".tensors")
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
    for name in ("x.npy", "x0.npy"):  # one file speaks for its partition
        with suppress(FileNotFoundError):
            os.utime(directory() / _name(key, name))
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


def private_path(key: bytes, file: str) -> Path | None:
    """Return where a file belongs, if nobody but this user may write to the cache's folder."""
    try:
        path = path_of(key, file)
        status = path.parent.stat()
    except OSError:  # there is no place for temporary files
        return None
    is_own = status.st_uid == os.getuid() and not status.st_mode & 0o022
    return path if is_own else None


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
        folder = _path(named)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise EngineError(
                f"MMDB_CACHE_DIR is {named!r}, which cannot be a folder: {error.strerror}.",
                hint="Set it to a folder that this user may write to, for the server or here.",
            ) from error
        return folder
    folder = _path(f"{tempfile.gettempdir()}/mmdb-cache-{os.getuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if _is_private(folder):
        return folder
    others = sorted(folder.parent.glob(f"{folder.name}.*"))
    made = next(filter(_is_private, others), None)
    return made or Path(tempfile.mkdtemp(prefix=f"{folder.name}."))


_path = lru_cache(4)(Path)  # as few folders are asked for with every hop


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
    return f"{key.hex()}.{_DECODED_AS}.{file}"


def clear() -> None:
    """Remove every partition from this node's cache; who needs one decodes it again."""
    for path in directory().iterdir():
        if path.suffix in _SUFFIXES:  # what is unfinished its process moves or removes
            path.unlink(missing_ok=True)


def _evict(folder: Path, kept: bytes) -> None:
    """Remove the least recently used partitions until the rest fits, and dead processes' files."""
    entries: dict[str, list[tuple[Path, os.stat_result]]] = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            status = path.stat()
            if path.suffix == ".part":
                if time.time() - status.st_mtime > STALE_S:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif path.suffix in _SUFFIXES:
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


#: Seconds after which a candidate's states are taken for forgotten.
STALE_STATE_S = 7 * 24 * 3600


def write(owner: str, candidate_id: int, state_hash: str, state: bytes) -> None:
    """Leave a state for the node's other sessions.

    Args:
        owner: names the database: candidates of two have the same ids.
        state_hash: in hex; names the file.
    """
    folder = _folder(owner, candidate_id)
    path = os.path.join(folder, state_hash)
    if os.path.exists(path):
        return
    os.makedirs(folder, mode=0o700, exist_ok=True)
    unfinished = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.part"
    try:
        with open(unfinished, "wb") as file:
            file.write(state)
        os.replace(unfinished, path)
    finally:
        with suppress(FileNotFoundError):  # it was moved
            os.unlink(unfinished)


def read(owner: str, candidate_id: int, state_hash: str) -> bytes | None:
    """Return a state that a session of this node has left, or None."""
    try:
        with open(os.path.join(_folder(owner, candidate_id), state_hash), "rb") as file:
            return file.read()
    except OSError:
        return None


def drop(owner: str, candidate_id: int, state_hash: str) -> bool:
    """Delete a state; return whether it was there."""
    try:
        os.unlink(os.path.join(_folder(owner, candidate_id), state_hash))
    except OSError:
        return False
    return True


def keep_only(owner: str, candidate_id: int, kept: Iterable[str]) -> None:
    """Delete a candidate's states but for those whose hashes in hex are in `kept`."""
    names = set(kept)
    folder = _folder(owner, candidate_id)
    if not names:
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if name not in names and not name.endswith(".part"):
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))


def sweep(owner: str) -> None:
    """Delete the states of candidates that nobody has touched for long: their run has ended."""
    with suppress(OSError):
        for folder in (directory() / "states" / owner).iterdir():
            if time.time() - folder.stat().st_mtime > STALE_STATE_S:
                shutil.rmtree(folder, ignore_errors=True)


def _folder(owner: str, candidate_id: int) -> str:
    """Return where a candidate's states lie; no Path, which interns each name that it ever had."""
    return os.path.join(directory(), "states", owner, str(candidate_id))
