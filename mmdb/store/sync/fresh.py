"""Tensors that the source does not have as they are to be stored: encoded on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from mmdb.db.queries import load
from mmdb.store.chunks import chunk_count
from mmdb.store.codec import encode, needs_base
from mmdb.store.pipeline import pipeline
from mmdb.store.reading import Whole
from mmdb.store.sync.plan import Described
from mmdb.store.sync.sides import ChunkRow, EncodingRow, Exchange, check_arrival, name_tensors

_T = load("tensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A tensor's own bytes, to be encoded for the target."""

    tensor: Described  # word and chunk_bytes are those to use
    data: np.ndarray  # uint8 (byte_count,)
    base: tuple[bytes, np.ndarray] | None = None  # hash and bytes; whole at the target


def send_fresh(exchange: Exchange, raws: Iterable[tuple[bool, Raw]]) -> bool:
    """Encode tensors that have no chunks at the source; return whether any is a difference now.

    Args:
        raws: whether its chunks are needed, and the tensor.
    """
    leans = False
    for batch in _fresh_batches(raws, exchange.batch_bytes):
        with exchange.target.transaction():
            name_tensors(exchange, [raw.tensor for _, raw in batch])
            rows = [
                send_raw(exchange, raw)
                for has_chunks, raw in batch
                if has_chunks and raw.tensor.byte_count
                if not exchange.held[raw.tensor.tensor_hash].has_chunks
            ]
            if rows:
                exchange.target.append(_T.add_encoding, rows)
                check_arrival(exchange, rows)
        exchange.progress.tensors += len(batch)
        leans |= any(row[1] is not None for row in rows)
    return leans


def _fresh_batches(
    raws: Iterable[tuple[bool, Raw]], limit: int
) -> Iterator[list[tuple[bool, Raw]]]:
    batch: list[tuple[bool, Raw]] = []
    size = 0
    for has_chunks, raw in raws:
        batch.append((has_chunks, raw))
        size += raw.tensor.byte_count if has_chunks else 0
        if size >= limit:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def send_raw(exchange: Exchange, raw: Raw) -> EncodingRow:
    """Encode a tensor into chunks of the target; return the row of `add_encoding`."""
    tensor, own = raw.tensor, exchange.own_id(raw.tensor)
    size = tensor.chunk_bytes
    assert size is not None and tensor.word is not None
    word, sent, leans = tensor.word, 0, False
    base_hash = None if raw.base is None else raw.base[0]
    whole = Whole(tensor.tensor_hash, base_hash, word, size)

    def work(ordinal: int) -> ChunkRow:
        place = slice(ordinal * size, (ordinal + 1) * size)
        base = None if raw.base is None else raw.base[1][place]
        found = encode(raw.data[place], word, base)
        name = whole.digest(ordinal, found.codec, found.data)
        return own, ordinal, found.codec, name, found.data

    def counted(rows: Iterator[ChunkRow]) -> Iterator[ChunkRow]:
        nonlocal sent, leans
        for row in rows:
            sent += len(row[4])
            leans |= needs_base(row[2])
            exchange.progress.chunks += 1
            exchange.progress.add(len(row[4]))
            yield row

    chunks = chunk_count(tensor.byte_count, size)
    with pipeline(work, exchange.source.threads) as encoding:
        exchange.target.append(_T.add_chunk, counted(encoding.map(range(chunks))))
    base_id = exchange.held[raw.base[0]].tensor_id if raw.base is not None and leans else None
    return own, base_id, tensor.word, size, chunks, sent
