"""Files and folders that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mmdb.errors import FileExists, FileNotWritten

#: A file system without hard links answers one of these.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


@contextmanager
def writing(what: Path) -> Iterator[None]:
    """Turn the system's errors inside the block into FileNotWritten of `what`."""
    if "\0" in str(what):
        raise FileNotWritten(f"{str(what)!r} is no name of a file.")
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileNotWritten(f"{what} could not be written: {reason}.") from error


@contextmanager
def replacing(target: Path, *, overwrite: bool = False) -> Iterator[BinaryIO]:
    """Yield a file that takes the name `target` when the block ends, and is gone if it raises.

    It lies in the same folder until then, and is on the disk before it is renamed.

    Raises:
        FileExists: `target` is there and `overwrite` is false, or it is a folder.
        FileNotWritten: a device or a pipe is never replaced.
    """
    with writing(target):
        if target.is_dir() or (not overwrite and os.path.lexists(target)):
            raise FileExists(f"{target} is there already.")
        if target.exists() and not target.is_file():
            raise FileNotWritten(f"{target} is no file.")
        hidden = beside(target)
        try:
            with hidden.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if overwrite:
                os.replace(hidden, target)
            else:
                _rename_new(hidden, target)
            sync_folder(target.parent)
        finally:
            hidden.unlink(missing_ok=True)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the name `target` when the block ends.

    Raises:
        FileExists: `target` is there and is not an empty folder.
        FileNotWritten
    """
    if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
        raise FileExists(f"{target} is there already.")
    with staging(target) as hidden:
        yield hidden
        with writing(target):
            sync_folder(hidden)
            os.rename(hidden, target)
            sync_folder(target.parent)


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target`; what is still in it when the block ends is deleted."""
    hidden = beside(target)
    with writing(target):
        hidden.mkdir()
    try:
        yield hidden
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def beside(target: Path) -> Path:
    """Return a name in the folder of `target` that nothing has yet, hidden from listings."""
    return target.with_name(f".mmdb-{secrets.token_hex(8)}.part")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last through a power cut, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _rename_new(hidden: Path, target: Path) -> None:
    """Rename, but never over a file that came into being in the meantime."""
    try:
        os.link(hidden, target)
    except FileExistsError:
        raise FileExists(f"{target} is there already.") from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.rename(hidden, target)
