"""How tensors are cut: large ones into chunks of rows, small ones into one pack per model. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mmdb.store.content import DTYPES, word_bytes

#: Bytes of a chunk before it is encoded. A quarter of a MiB stays in the processor's cache while
#: it is decoded, and a few rows of a tensor cost one chunk.
CHUNK_BYTES = 256 << 10
#: Tensors below this lie in their model's pack.
PACKED_BELOW = 8 << 10


def chunk_bytes(shape: Sequence[int], itemsize: int) -> int:
    """Return the bytes of a chunk: as many whole rows as fit, else a part of one row."""
    row = math.prod(shape[1:]) * itemsize
    if not 0 < row <= CHUNK_BYTES:
        return CHUNK_BYTES // itemsize * itemsize
    return CHUNK_BYTES // row * row


def chunk_count(byte_count: int, size: int) -> int:
    """Return into how many chunks of `size` bytes some bytes are cut."""
    return -(-byte_count // size)


def spans(byte_count: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield ordinal, first byte and the byte after the last of each chunk."""
    for ordinal, start in enumerate(range(0, byte_count, size)):
        yield ordinal, start, min(start + size, byte_count)


@dataclass(frozen=True, slots=True)
class Packed:
    """Where small tensors lie in a pack."""

    offsets: Mapping[int, int]  # ordinal in the model -> first byte
    byte_count: int
    word: int  # of the dtype that most of the bytes have


def pack_layout(members: Sequence[tuple[int, str, int]]) -> Packed:
    """Return the places of small tensors in a pack, so that each is aligned to its own words.

    Args:
        members: (ordinal, dtype, bytes) of the tensors, in the order of their ordinals.
    """
    ordered = sorted(members, key=lambda m: (-DTYPES[m[1]].itemsize, m[0]))
    offsets: dict[int, int] = {}
    by_word: dict[int, int] = {1: 0}
    position = 0
    for ordinal, dtype, size in ordered:
        offsets[ordinal] = position
        position += size
        word = word_bytes(DTYPES[dtype])
        by_word[word] = by_word.get(word, 0) + size
    return Packed(offsets, position, max(by_word, key=lambda word: by_word[word]))
