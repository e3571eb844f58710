"""Chunks of tensors as the payloads of `tensor_chunk.data`, and back, bit for bit.

A chunk is a run of a tensor's little-endian bytes. It is coded alone, or against the bytes at the
same place in another tensor, its base. Only integers are computed with, so NaN payloads and -0.0
come back. `tensor_chunk.codec` says how to read the payload; a tree is described in
`mmdb.store.tensors.planes`, words have `itemsize` bytes (1 if that does not divide the chunk), and
all integers are little-endian:

    0 RAW        the chunk
    1 CONSTANT   itemsize bytes: the word that all are equal to
    2 PLANES     the tree of the words
    3 SPARSE     positions; the tree of the words there; the others are 0
    4 SAME       nothing; the chunk is its base
    5 DELTA      the signed tree of word - base, modulo 256 ** itemsize
    6 PATCH      positions; the signed tree of word - base there; the others are the base's

`positions` are 4 bytes, the number of positions, 1 or more, and the tree of as many words of
4 bytes: how many words lie between a position and the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmdb.store.tensors.planes import (
    THREAD,
    Bytes,
    CorruptChunk,
    NodeCoding,
    PayloadReader,
    Words,
    plan_words,
    read_words,
    sample,
    write_words,
)

__all__ = ["Codec", "CorruptChunk", "Encoded", "decode", "encode", "needs_base"]

_DELTA_GAIN = 0.95  # a base must save 5 %, else the chunk is better off alone
_CLOSE = 0.8  # of the estimate: a delta below it needs no measured plain size to compare with
_SCATTERED = 1 / 4  # of the words: where more differ, a dense tree is faster
_SPARSE = 1 / 16  # of the words: where fewer differ, a dense tree is larger
_UNSIGNED: dict[int, np.dtype[Any]] = {k: np.dtype(f"<u{k}") for k in (1, 2, 4, 8)}
_SIGNED: dict[int, np.dtype[Any]] = {k: np.dtype(f"<i{k}") for k in (1, 2, 4, 8)}


class Codec(IntEnum):
    """Values of `tensor_chunk.codec`; they are a file format and never change."""

    RAW = 0
    CONSTANT = 1
    PLANES = 2
    SPARSE = 3
    SAME = 4
    DELTA = 5
    PATCH = 6


@dataclass(frozen=True, slots=True)
class Encoded:
    """A chunk as it is stored."""

    codec: int
    data: bytes


def needs_base(codec: int) -> bool:
    """Return whether `decode` needs the base's bytes."""
    return codec in (Codec.SAME, Codec.DELTA, Codec.PATCH)


def encode(
    raw: memoryview | Bytes,
    itemsize: int,
    base: memoryview | Bytes | None = None,
    *,
    level: int = 1,
) -> Encoded:
    """Return the smallest payload found for a chunk.

    Candidates are ranked on a sample of a few thousand words, and only the likely winner is coded
    whole. A chunk that does not shrink is left raw. Threads may call this at the same time.

    Args:
        raw: the chunk's bytes, any number of them.
        itemsize: bytes of a word: 1, 2, 4 or 8; for complex numbers, those of one component.
        base: bytes of the same length, or None.
        level: zstd's level, 1 to 19, for planes that hold repeats.
    Raises:
        ValueError: itemsize is not one of these, or base has another length.
    """
    words = _words(raw, itemsize)
    origin = None if base is None else _words(base, itemsize)
    _check_sizes(words, origin)
    if not words.size:
        return Encoded(Codec.RAW, b"")
    if origin is None:
        return _encode_alone(words, level)
    difference = THREAD.buffer("difference", words.size, words.dtype)
    np.subtract(words, origin, out=difference)
    changed = int(np.count_nonzero(difference))
    if not changed:
        return Encoded(Codec.SAME, b"")
    return _encode_against(words, difference.view(_SIGNED[words.itemsize]), changed, level)


def _encode_alone(words: Words, level: int, plan: NodeCoding | None = None) -> Encoded:
    if words[0] == words[-1] and (words == words[0]).all():
        return Encoded(Codec.CONSTANT, words[:1].tobytes())
    glimpse = sample(words)
    plan = plan or plan_words(glimpse, level)
    found, size = None, words.nbytes
    if np.count_nonzero(glimpse) <= _SCATTERED * glimpse.size:
        found = Encoded(Codec.SPARSE, _write_scattered(words, level))
        if len(found.data) < _CLOSE * plan.share * size:
            return found
        size = min(size, len(found.data))
    parts = write_words(words, plan, level)
    if sum(map(len, parts)) < size:
        return Encoded(Codec.PLANES, b"".join(parts))
    return found if found and len(found.data) == size else Encoded(Codec.RAW, words.tobytes())


def _encode_against(words: Words, difference: Words, changed: int, level: int) -> Encoded:
    """Return the better of a chunk's difference from its base and of the chunk alone."""
    plan = plan_words(sample(words), level)
    expected = plan.share * words.nbytes
    found, size = None, _DELTA_GAIN * expected
    if changed <= _SCATTERED * words.size:
        found = Encoded(Codec.PATCH, _write_scattered(difference, level))
        size = min(size, len(found.data))
    if changed > _SPARSE * words.size:
        delta_plan = plan_words(sample(difference), level)
        if delta_plan.share * words.nbytes < size:
            parts = write_words(difference, delta_plan, level)
            if found is None or sum(map(len, parts)) < len(found.data):
                found = Encoded(Codec.DELTA, b"".join(parts))
    if found and len(found.data) < _CLOSE * expected:
        return found
    alone = _encode_alone(words, level, plan)
    return found if found and len(found.data) < _DELTA_GAIN * len(alone.data) else alone


def _write_scattered(words: Words, level: int) -> bytes:
    """Return the positions of the words that are not 0, and the tree of those words."""
    positions = np.flatnonzero(words)
    gaps = (np.diff(positions, prepend=-1) - 1).astype(_UNSIGNED[4])
    trees = (
        b"".join(write_words(tree, plan_words(sample(tree), level), level))
        for tree in (gaps, words[positions])
    )
    return b"".join([positions.size.to_bytes(4, "little"), *trees])


def decode(
    codec: int,
    data: bytes | memoryview,
    itemsize: int,
    out: Bytes,
    base: Bytes | None = None,
) -> None:
    """Write a chunk's bytes into `out`. Threads may call this at the same time.

    Args:
        codec: a value of `Codec`.
        itemsize: as given to `encode`.
        out: writable and contiguous, exactly as long as the chunk.
        base: the base's bytes, where `needs_base(codec)`; may be `out` itself.
    Raises:
        CorruptChunk: the payload is malformed; `out` then holds anything.
        ValueError: the base is missing or has another length.
    """
    reader = PayloadReader(data)
    words = _words(out, itemsize)
    if codec == Codec.RAW:
        words.view(np.uint8)[:] = np.frombuffer(reader.take(out.size), np.uint8)
    elif codec == Codec.CONSTANT:
        words.fill(reader.integer(words.itemsize))
    elif codec == Codec.PLANES:
        found = read_words(reader, words.size, words.dtype, words)
        if found is not words:
            np.copyto(words, found)
    elif codec == Codec.SPARSE:
        positions, values = _read_scattered(reader, words)
        words.fill(0)
        words[positions] = values
    elif needs_base(codec):
        if base is None:
            raise ValueError(f"Codec {codec} needs the bytes of the base")
        _decode_against(codec, reader, words, _words(base, itemsize))
    else:
        raise CorruptChunk(f"There is no codec {codec}")
    reader.end()


def _decode_against(codec: int, reader: PayloadReader, words: Words, origin: Words) -> None:
    _check_sizes(words, origin)
    if codec == Codec.SAME:
        np.copyto(words, origin)
        return
    signed, origin = words.view(_SIGNED[words.itemsize]), origin.view(_SIGNED[words.itemsize])
    if codec == Codec.DELTA:
        np.add(read_words(reader, signed.size, signed.dtype), origin, out=signed)
        return
    positions, values = _read_scattered(reader, signed)
    np.copyto(signed, origin)
    signed[positions] += values


def _read_scattered(reader: PayloadReader, words: Words) -> tuple[NDArray[np.int64], Words]:
    """Return positions within `words`, ascending, and the value at each."""
    count = reader.integer(4)
    if not 0 < count <= words.size:
        raise CorruptChunk(f"The payload has {count} positions in {words.size} words")
    gaps = read_words(reader, count, _UNSIGNED[4])
    positions = np.cumsum(gaps, dtype=np.int64)
    positions += np.arange(count)
    if positions[-1] >= words.size:
        raise CorruptChunk(f"The payload has position {positions[-1]} of {words.size} words")
    return positions, read_words(reader, count, words.dtype)


def _words(data: memoryview | Bytes, itemsize: int) -> Words:
    """Return bytes as words, or as words of one byte where `itemsize` does not divide them."""
    if itemsize not in _UNSIGNED:
        raise ValueError(f"A word has 1, 2, 4 or 8 bytes, not {itemsize}")
    chunk = np.frombuffer(data, np.uint8)
    return chunk.view(_UNSIGNED[1 if chunk.size % itemsize else itemsize])


def _check_sizes(words: Words, origin: Words | None) -> None:
    if origin is not None and words.nbytes != origin.nbytes:
        raise ValueError(f"The base has {origin.nbytes} bytes, the chunk {words.nbytes}")
