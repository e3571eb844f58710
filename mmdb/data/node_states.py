"""States on their way from one session of a node to another: files that its processes share.

A file is named by the hash of its bytes, which whoever reads it compares; one that is lost is made
again by repeating hops. They lie in a folder for each candidate, beside the decoded partitions.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mmdb.data import node_cache

#: Seconds after which a candidate's states are taken for forgotten.
STALE_S = 7 * 24 * 3600


def write(owner: str, candidate_id: int, state_hash: str, state: bytes) -> None:
    """Leave a state for the node's other sessions.

    Args:
        owner: names the database: candidates of two have the same ids.
        state_hash: in hex; names the file.
    """
    folder = _folder(owner, candidate_id)
    path = folder / state_hash
    if path.exists():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = folder / f"{state_hash}.{os.getpid()}-{secrets.token_hex(4)}.part"
    try:
        unfinished.write_bytes(state)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read(owner: str, candidate_id: int, state_hash: str) -> bytes | None:
    """Return a state that a session of this node has left, or None."""
    try:
        return (_folder(owner, candidate_id) / state_hash).read_bytes()
    except OSError:
        return None


def drop(owner: str, candidate_id: int, state_hash: str) -> bool:
    """Delete a state; return whether it was there."""
    try:
        (_folder(owner, candidate_id) / state_hash).unlink()
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
        for path in folder.iterdir():
            if path.name not in names and path.suffix != ".part":
                path.unlink(missing_ok=True)


def sweep(owner: str) -> None:
    """Delete the states of candidates that nobody has touched for long: their run has ended."""
    with suppress(OSError):
        for folder in (node_cache.directory() / "states" / owner).iterdir():
            if time.time() - folder.stat().st_mtime > STALE_S:
                shutil.rmtree(folder, ignore_errors=True)


def _folder(owner: str, candidate_id: int) -> Path:
    return node_cache.directory() / "states" / owner / str(candidate_id)
