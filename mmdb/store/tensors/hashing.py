"""From a model's entries to what is stored of them: hashes, one content each, and the pack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from mmdb.graph.grouped import EACH
from mmdb.store.tensors.pipeline import batches, drop, shared_pool
from mmdb.store.tensors.state_entries import (
    Entry,
    ModuleContents,
    layout_of_pack,
    named_hash,
)
from mmdb.store.tensors.tensor_bytes import (
    DTYPES,
    Statistics,
    raw_bytes,
    tensor_hash,
    word_bytes,
)
from mmdb.store.tensors.writing import Content

#: Bytes of tensors that a thread hashes in one go.
_BATCH_BYTES = 4 << 20

Hashes = dict[int, bytes]  # ordinal -> tensor_hash


class Hashing:
    """The hashes of a model's tensors, computed by threads while the caller goes on."""

    def __init__(self, contents: ModuleContents, threads: int) -> None:
        self._contents = contents
        own = [
            e for e in contents.entries if e.tied_to is None and e.ordinal not in contents.hashes
        ]
        self._batches = list(batches(own, lambda e: e.byte_count, _BATCH_BYTES))
        self._pending = (
            [shared_pool().submit(self._hash, batch) for batch in self._batches] if threads else []
        )

    @cached_property
    def result(self) -> Hashes:
        """The hash of each entry's tensor by ordinal; tied ones are read once.

        Raises:
            UnsupportedTensor
        """
        found: Hashes = dict(self._contents.hashes)
        for future in self._pending:
            found |= future.result()
        for batch in () if self._pending else self._batches:
            found |= self._hash(batch)
        entries = self._contents.entries
        return found | {e.ordinal: found[e.tied_to] for e in entries if e.tied_to is not None}

    def _hash(self, batch: Sequence[Entry]) -> Hashes:
        return {e.ordinal: named_hash(e.path, self._contents.tensor(e)) for e in batch}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Drop what has not begun, whether or not it is wanted."""
        drop(self._pending)


def hash_entries(contents: ModuleContents, threads: int) -> Hashes:
    """Return the hash of each entry's tensor by ordinal.

    Raises:
        UnsupportedTensor
    """
    with Hashing(contents, threads) as hashing:
        return hashing.result


def contents_to_store(
    contents: ModuleContents, hashes: Hashes, bases: Mapping[int, int]
) -> list[Content]:
    """Return what to store of each tensor; tied ones once.

    Args:
        bases: ordinal -> the tensor that it may be a difference to.
    """
    return [
        Content(
            tensor_hash=hashes[entry.ordinal],
            dtype=entry.dtype,
            shape=entry.shape,
            byte_count=entry.byte_count,
            word=word_bytes(DTYPES[entry.dtype]),
            load=lambda entry=entry: raw_bytes(contents.tensor(entry)),  # type: ignore[misc]
            describe=lambda entry=entry: Statistics.of(contents.tensor(entry)),  # type: ignore[misc]
            by_row=entry.path.startswith(EACH),
            has_chunks=entry.layout is None and not entry.is_small,
            base_id=bases.get(entry.ordinal),
        )
        for entry in contents.entries
        if entry.tied_to is None
    ]


def pack_of(contents: ModuleContents) -> Content | None:
    """Return the small tensors, one after the other, as one tensor of bytes."""
    members = [e for e in contents.entries if e.is_small and e.tied_to is None]
    layout = layout_of_pack(members)
    if not layout.byte_count:
        return None
    memory = np.zeros(layout.byte_count, np.uint8)
    for entry in members:
        start = layout.offsets[entry.ordinal]
        memory[start : start + entry.byte_count] = raw_bytes(contents.tensor(entry))
    return Content(
        tensor_hash=tensor_hash("uint8", [len(memory)], memory),
        dtype="uint8",
        shape=(len(memory),),
        byte_count=len(memory),
        word=layout.word,
        load=lambda: memory,
        describe=Statistics,  # of mixed bytes they would mean nothing
    )
