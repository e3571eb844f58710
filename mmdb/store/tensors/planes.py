"""Words of 1, 2, 4 or 8 bytes as a tree of planes, each raw, constant or zstd.

The exponents of trained weights repeat, their mantissas are noise. A word is therefore split into
halves, and those again, down to single bytes; a half is coded alone or left as it is.

The format, for `count` words of `width` bytes, all integers little-endian. A node is

    0 RAW        count * width bytes
    1 ZSTD       4 bytes: length of the frame; one zstd frame of count * width bytes
    2 CONSTANT   width bytes: the word that all are equal to
    3 SPLIT      two nodes of width / 2, high and low:
                 word = high * 256 ** (width / 2) + low, modulo 256 ** width

where the first byte of a node is its number. In a tree of signed words (two's complement) the
halves are signed too, so that the high half of a small number is 0, whatever its sign.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import zstandard
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Words: TypeAlias = NDArray[Any]  # of any integer type, little-endian
Part: TypeAlias = bytes | memoryview

_MINIMUM_GAIN = 0.97  # a plane that shrinks by less than 3 % is not worth its decoding
_REPEATS = 0.95  # looking for repeats must save 5 % more, as it takes three times as long
_SAMPLE_RUNS, _RUN_WORDS = 8, 512  # words looked at to plan a chunk, from all over it
_SCRATCH_LIMIT = 8 << 20  # bytes; a larger buffer is not kept
_WINDOW_LIMIT = 1 << 23  # bytes; the largest window of zstd's levels up to 19


class CorruptChunk(ValueError):
    """The payload is not one that `encode` writes for this many bytes."""


class Node(IntEnum):
    """How the words of one node are written; the values are the file format."""

    RAW = 0
    ZSTD = 1
    CONSTANT = 2
    SPLIT = 3


class RepeatSearch(IntEnum):
    """How hard zstd looks for repeats."""

    NONE = 0  # Huffman codes only: on exponents smaller than level 1, and twice as fast
    PROBE = 1  # repeats only, at 10 GB/s where there are none
    LEVEL = 2  # the caller's level


@dataclass(frozen=True, slots=True)
class NodeCoding:
    """How to write a node: its halves, or one search; share is of the raw bytes, from a sample."""

    search: RepeatSearch
    share: float
    halves: tuple[NodeCoding, ...] = ()


class _Thread(threading.local):
    """The zstd contexts and the buffers of one thread."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_LIMIT)
        self._compressors: dict[tuple[RepeatSearch, int], zstandard.ZstdCompressor] = {}
        self._buffers: dict[str, Bytes] = {}

    def compressor(self, search: RepeatSearch, level: int) -> zstandard.ZstdCompressor:
        """Return the context for one kind of search."""
        level = {RepeatSearch.NONE: 0, RepeatSearch.PROBE: -5, RepeatSearch.LEVEL: level}[search]
        found = self._compressors.get((search, level))
        if found is None:
            if search is RepeatSearch.NONE:
                # 64 slots and 7-byte matches: in effect Huffman coding alone.
                parameters = zstandard.ZstdCompressionParameters(
                    window_log=17,
                    hash_log=6,
                    chain_log=6,
                    search_log=1,
                    min_match=7,
                    strategy=zstandard.STRATEGY_FAST,
                )
                found = zstandard.ZstdCompressor(compression_params=parameters)
            else:
                found = zstandard.ZstdCompressor(level=level)
            self._compressors[search, level] = found
        return found

    def buffer(self, name: str, count: int, dtype: np.dtype[Any]) -> Words:
        """Return `count` words of scratch memory; the next call with this name reuses it."""
        size = count * dtype.itemsize
        found = self._buffers.get(name)
        if found is None or found.size < size:
            found = np.empty(size, np.uint8)
            if size <= _SCRATCH_LIMIT:
                self._buffers[name] = found
        return found[:size].view(dtype)


THREAD = _Thread()


def sample(words: Words) -> Words:
    """Return a few thousand of the words, in runs from all over the chunk."""
    if words.size <= 2 * _SAMPLE_RUNS * _RUN_WORDS:
        return words
    whole = words[: words.size // _SAMPLE_RUNS * _SAMPLE_RUNS]
    return whole.reshape(_SAMPLE_RUNS, -1)[:, :_RUN_WORDS].ravel()


def plan_words(words: Words, level: int) -> NodeCoding:
    """Return how to write words like these, found by coding these; give it a `sample`."""
    if words.itemsize == 1:
        return _plan_plane(words, level)
    halves = tuple(plan_words(half, level) for half in _halves(words, "plan"))
    if all(half.search is RepeatSearch.PROBE for half in halves):
        return halves[0]
    return NodeCoding(RepeatSearch.NONE, sum(half.share for half in halves) / 2, halves)


def _plan_plane(plane: Words, level: int) -> NodeCoding:
    plain, searched = (
        len(THREAD.compressor(search, level).compress(plane.data)) / plane.size
        for search in (RepeatSearch.NONE, RepeatSearch.LEVEL)
    )
    if min(plain, searched) > _MINIMUM_GAIN:
        return NodeCoding(RepeatSearch.PROBE, 1.0)
    if searched < _REPEATS * plain:
        return NodeCoding(RepeatSearch.LEVEL, searched)
    return NodeCoding(RepeatSearch.NONE, plain)


def write_words(words: Words, plan: NodeCoding, level: int) -> list[Part]:
    """Return the tree of `words` after a plan made from a sample of them.

    Its parts are to be joined; some are scratch memory that the next call overwrites.
    """
    parts, _ = _write(words, plan, level, repeats=False, name="w")
    return parts


def _write(
    words: Words, plan: NodeCoding, level: int, *, repeats: bool, name: str
) -> tuple[list[Part], bool]:
    """Return the parts of a node, and whether its noise has been found to repeat.

    Noise that repeats was copied, so the planes beside it repeat as well. Low halves are noise
    most often, so they go first.
    """
    if plan.halves:
        high, low = _halves(words, name)
        tail, repeats = _write(low, plan.halves[1], level, repeats=repeats, name=name + "l")
        head, repeats = _write(high, plan.halves[0], level, repeats=repeats, name=name + "h")
        return [bytes([Node.SPLIT]), *head, *tail], repeats
    if words[0] == words[-1] and (words == words[0]).all():
        return [bytes([Node.CONSTANT]), words[:1].tobytes()], repeats
    search = RepeatSearch.LEVEL if repeats else plan.search
    raw = words.view(np.uint8).data
    frame = THREAD.compressor(search, level).compress(raw)
    if len(frame) > _MINIMUM_GAIN * len(raw):
        return [bytes([Node.RAW]), raw], repeats
    if search is RepeatSearch.PROBE:
        return _write(words, plan, level, repeats=True, name=name)
    return [bytes([Node.ZSTD]), len(frame).to_bytes(4, "little"), frame], repeats


def _halves(words: Words, name: str) -> tuple[Words, Words]:
    """Return the high and the low half of each word, in scratch memory."""
    dtype = _half(words.dtype)
    bits = 8 * dtype.itemsize
    high = THREAD.buffer(f"{name}{bits}h", words.size, dtype)
    low = THREAD.buffer(f"{name}{bits}l", words.size, dtype)
    np.copyto(low, words, casting="unsafe")
    if dtype.kind == "i":  # a negative low half takes from the high one
        words = words + (1 << (bits - 1))
    np.right_shift(words, bits, out=high, casting="unsafe")
    return high, low


def _half(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"<{dtype.kind}{dtype.itemsize // 2}")


class PayloadReader:
    """Takes a payload apart from its start."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._at = 0

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes."""
        end = self._at + size
        if end > len(self._data):
            raise CorruptChunk(f"The payload ends at byte {len(self._data)}, not {end}")
        taken, self._at = self._data[self._at : end], end
        return taken

    def integer(self, size: int) -> int:
        """Return the next `size` bytes as an unsigned integer."""
        return int.from_bytes(self.take(size), "little")

    def end(self) -> None:
        """Raise CorruptChunk unless the whole payload has been taken."""
        if self._at != len(self._data):
            raise CorruptChunk(f"The payload has {len(self._data) - self._at} bytes too many")


def read_words(
    reader: PayloadReader,
    count: int,
    dtype: np.dtype[Any],
    into: Words | None = None,
    name: str = "r",
) -> Words:
    """Return `count` words from a tree.

    Args:
        into: memory for the words, used unless the payload itself can stand for them.
    Returns:
        `into`, a view of the payload, or scratch memory that the next call overwrites.
    Raises:
        CorruptChunk: the tree is not one for this many words.
    """
    number = reader.integer(1)
    if number == Node.RAW:
        return np.frombuffer(reader.take(count * dtype.itemsize), dtype)
    words = THREAD.buffer(name, count, dtype) if into is None else into
    if number == Node.ZSTD:
        _inflate(reader.take(reader.integer(4)), words.view(np.uint8))
    elif number == Node.CONSTANT:
        words.fill(np.frombuffer(reader.take(dtype.itemsize), dtype)[0])
    elif number == Node.SPLIT and dtype.itemsize > 1:
        half = _half(dtype)
        high = read_words(reader, count, half, name=name + "h")
        low = read_words(reader, count, half, name=name + "l")
        # Two calls, not three: each lets go of the interpreter lock and must get it back.
        np.multiply(high, 1 << 8 * half.itemsize, out=words, dtype=dtype)
        words += low
    else:
        raise CorruptChunk(f"The payload has a node {number} of {dtype.itemsize} bytes")
    return words


def _inflate(frame: memoryview, out: Bytes) -> None:
    """Decompress one zstd frame that holds exactly the bytes of `out`."""
    try:
        size = zstandard.frame_content_size(frame)
        if size == out.size:
            size = THREAD.decompressor.stream_reader(frame).readinto(out)
    except zstandard.ZstdError as error:
        raise CorruptChunk(f"The payload has a bad zstd frame: {error}") from error
    if size != out.size:
        raise CorruptChunk(f"The payload has a zstd frame of {size} bytes, not {out.size}")
