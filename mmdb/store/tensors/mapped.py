"""A model's tensors in a file of this machine: read and decoded once, and mapped from then on.

A file is named by the numbers and the hashes of its tensors, which lie in it one after the other.
Each process compares it with the hashes before it first trusts it. It is mapped copy-on-write: who
changes a tensor changes no file.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import blake3
import numpy as np
import torch

from mmdb.data import node_cache
from mmdb.db.connection import Connection
from mmdb.store.tensors.pipeline import pipeline
from mmdb.store.tensors.reading import ChunkLayout, find_encodings, read_tensors
from mmdb.store.tensors.tensor_bytes import DTYPES, tensor_hash

#: Bytes of tensors from which on a file is worth its place.
KEPT_FROM = 8 << 20
_FILE = "whole.tensors"
#: Tensors begin on this many bytes.
_ALIGNMENT = 64
#: Seconds for which a file counts as used just now.
_USED_S = 60

#: A file as it was: its device and inode, and the time of its last change.
_Stamp = tuple[int, ...]
#: Files that this process has compared with the hashes.
_right: dict[Path, _Stamp] = {}
_REMEMBERED = 1000


def read_whole(
    connection: Connection,
    encodings: Sequence[ChunkLayout],
    *,
    checked: Collection[int] = (),
    pinned: bool = False,
) -> dict[int, torch.Tensor]:
    """Return all tensors of a model by tensor_id: out of this machine's file, else of the chunks.

    Args: as of `read_tensors`.
    Raises:
        BadTensor
    """
    places, size = _places(encodings)
    key = _key(encodings)
    path = node_cache.private_path(key, _FILE)
    if path is None or pinned or not KEPT_FROM <= size <= node_cache.capacity_bytes() // 4:
        return read_tensors(connection, encodings, checked=checked, pinned=pinned)
    # The database says what the session may read, and what is there: it may have been revoked.
    if find_encodings(connection, list(places)) == {e.tensor_id: e for e in encodings}:
        found = _map(path, encodings, places, size, connection.threads)
        if found is not None:
            return found
    with suppress(OSError):  # the disk is full
        written = _write(connection, encodings, places, size, key, checked)
        if len(set(checked)) == len(places):
            _remember(path, written)
        found = _map(path, encodings, places, size, connection.threads, written)
        if found is not None:
            return found
    return read_tensors(connection, encodings, checked=checked)


def _key(encodings: Sequence[ChunkLayout]) -> bytes:
    """Return what names a file; teams that have the same tensors have them by other numbers."""
    named = (e.tensor_id.to_bytes(8, "little") + e.tensor_hash for e in encodings)
    return blake3.blake3(b"".join(named)).digest()


def _places(encodings: Sequence[ChunkLayout]) -> tuple[dict[int, int], int]:
    """Return the first byte of each tensor by its tensor_id, and the bytes of the file."""
    places, end = {}, 0
    for encoding in encodings:
        encoding.check()
        places[encoding.tensor_id] = end
        end += encoding.byte_count + -encoding.byte_count % _ALIGNMENT
    return places, end


def _map(
    path: Path,
    encodings: Sequence[ChunkLayout],
    places: Mapping[int, int],
    size: int,
    threads: int,
    written: _Stamp | None = None,
) -> dict[int, torch.Tensor] | None:
    """Return the tensors of a file, if it is there and right; `written`: as it just was."""
    try:
        if time.time() - path.lstat().st_mtime > _USED_S:
            os.utime(path)
        there = path.lstat()
        if (stat.S_ISREG(there.st_mode), there.st_uid, there.st_size) != (True, os.getuid(), size):
            return None
        storage: Any = torch.UntypedStorage.from_file(str(path), shared=False, nbytes=size)
    except (OSError, RuntimeError):  # another process has made room
        return None
    stamp = _stamp(there)
    memory = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()

    def piece(encoding: ChunkLayout) -> np.ndarray:
        return memory[places[encoding.tensor_id] :][: encoding.byte_count]

    def is_right(encoding: ChunkLayout) -> bool:
        found = tensor_hash(encoding.dtype, encoding.shape, piece(encoding))
        return found == encoding.tensor_hash

    if stamp not in (written, _right.get(path)):
        with pipeline(is_right, threads) as comparing:
            if not all(comparing.map(encodings)):
                path.unlink(missing_ok=True)
                return None
        _remember(path, stamp)
    return {  # each has a memory of its own: it is saved without the others
        e.tensor_id: torch.from_numpy(piece(e)).view(DTYPES[e.dtype]).reshape(e.shape)
        for e in encodings
    }


def _stamp(there: os.stat_result) -> _Stamp:
    return there.st_dev, there.st_ino, there.st_mtime_ns


def _remember(path: Path, stamp: _Stamp) -> None:
    if len(_right) >= _REMEMBERED:
        _right.clear()
    _right[path] = stamp


def _write(
    connection: Connection,
    encodings: Sequence[ChunkLayout],
    places: Mapping[int, int],
    size: int,
    key: bytes,
    checked: Collection[int],
) -> _Stamp:
    """Read the chunks into a new file, and return what it then is."""
    with node_cache.placing(key) as folder:
        file = os.open(folder / _FILE, os.O_WRONLY | os.O_CREAT, 0o600)

        def put(tensor_id: int, memory: np.ndarray) -> None:
            at, left = places[tensor_id], memoryview(cast("bytes", memory))
            while left:
                count = os.pwrite(file, left, at)
                at, left = at + count, left[count:]

        try:
            os.posix_fallocate(file, 0, size)
            read_tensors(connection, encodings, checked=checked, taker=put)
            return _stamp(os.fstat(file))
        finally:
            os.close(file)
