"""Tensors from one database into another: as they are stored, or encoded anew on the way.

Chunks pass as bytes, each compared with its digest on the way. A batch is one transaction of the
target, so that an interrupted copy goes on after the last whole batch; until a model names them,
`gc` leaves tensors alone for its grace period.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import CorruptTensor, WriteConflict
from mmdb.store.models.recover import SAMPLED_EVERY, Verify
from mmdb.store.sync.exchange import (
    ChunkRow,
    Described,
    EncodingRow,
    HeldTensor,
    Need,
    Shipment,
    TensorExchange,
    bases_to_ask,
    batches,
    check_arrival,
    missing,
    name_tensors,
    plan_shipments,
)
from mmdb.store.tensors.codec import encode, needs_base
from mmdb.store.tensors.pipeline import pipeline
from mmdb.store.tensors.reading import (
    BadTensor,
    ChunkLayout,
    Whole,
    bytes_of,
    find_encodings,
    read_tensors,
)
from mmdb.store.tensors.tensor_bytes import chunk_count

_T = load("tensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A tensor's own bytes, to be encoded for the target."""

    tensor: Described  # word and chunk_bytes are those to use
    data: np.ndarray  # uint8 (byte_count,)
    base: tuple[bytes, np.ndarray] | None = None  # hash and bytes; whole at the target


def send_fresh(exchange: TensorExchange, raws: Iterable[tuple[bool, Raw]]) -> bool:
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


def send_raw(exchange: TensorExchange, raw: Raw) -> EncodingRow:
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


_Q = load("sync")
#: Bytes of tensors that are decoded together to compare their hashes.
_CHECKED_BYTES = 64 << 20
#: How often a batch that another session got in the way of is begun again.
_ATTEMPTS = 5


def plan(
    exchange: TensorExchange, needs: Sequence[Need], *, keep_differences: bool
) -> list[Shipment]:
    """Return what has to be sent so that the target has some tensors.

    Raises:
        CorruptTensor: the source lacks the bytes of one.
    """
    exchange.ask(need.tensor_hash for need in needs)
    wanted = {need.tensor_id: need.has_chunks for need in missing(needs, exchange.held)}
    lacking = [(d, wanted[d.tensor_id]) for d in exchange.describe(wanted)]
    for tensor, has_chunks in lacking:
        if has_chunks and tensor.chunks is None:
            raise CorruptTensor(f"Tensor {tensor.tensor_hash.hex()[:12]} has no chunks.")
    asked = bases_to_ask(lacking)
    exchange.ask(asked)
    held = exchange.held
    absent = [k for name, k in asked.items() if name not in held or not held[name].has_chunks]
    bases = {base.tensor_hash: base for base in exchange.describe(absent)}
    return plan_shipments(lacking, held, bases, keep_differences=keep_differences)


def send(exchange: TensorExchange, shipments: Sequence[Shipment]) -> None:
    """Send tensors, in batches; afterwards `exchange.held` has them.

    Raises:
        BadTensor: the source's bytes are damaged; it names the source's tensor.
        CorruptTensor: they did not arrive.
        ConnectionLost: batches that were committed stay.
    """
    exchange.progress.expect(sum(shipment.size for shipment in shipments))
    for batch in batches(shipments, exchange.batch_bytes):
        if not exchange.checks_at_target:
            ids = [s.tensor.tensor_id for s in batch if s.has_chunks and s.as_stored]
            _check(exchange.source, ids, exchange.verify)
        attempts = _ATTEMPTS
        while True:
            attempts -= 1
            try:
                with exchange.target.transaction():
                    _send_batch(exchange, batch)
                break
            except WriteConflict:  # another session stores the same tensors
                if not attempts:
                    raise
        exchange.progress.tensors += len(batch)


def _send_batch(exchange: TensorExchange, batch: Sequence[Shipment]) -> None:
    name_tensors(exchange, [shipment.tensor for shipment in batch])
    going = [s for s in batch if s.has_chunks and not exchange.held[_name(s)].has_chunks]
    stored = [s.tensor for s in going if s.as_stored]
    if stored:
        exchange.target.append(_T.add_chunk, _stored_chunks(exchange, stored))
    rows = [_encoding_row(exchange, tensor) for tensor in stored]
    for shipment in going:
        if not shipment.as_stored:
            rows.append(send_raw(exchange, _raw_of(exchange, shipment.tensor)))
    if not rows:
        return
    exchange.target.append(_T.add_encoding, rows)
    check_arrival(exchange, rows)
    if exchange.checks_at_target:
        _check_target(exchange, stored)
    for shipment in going:
        held = exchange.held[_name(shipment)]
        is_difference = shipment.as_stored and shipment.tensor.base_id is not None
        exchange.held[_name(shipment)] = HeldTensor(
            held.tensor_id, shipment.tensor.chunk_bytes, is_difference
        )


def _name(shipment: Shipment) -> bytes:
    return shipment.tensor.tensor_hash


def _raw_of(exchange: TensorExchange, tensor: Described) -> Raw:
    encodings = find_encodings(exchange.source, [tensor.tensor_id])
    read = read_tensors(exchange.source, list(encodings.values()), checked=[tensor.tensor_id])
    return Raw(tensor=tensor, data=bytes_of(read[tensor.tensor_id]))


# -- chunks as they are stored --------------------------------------------------


def _stored_chunks(exchange: TensorExchange, tensors: Sequence[Described]) -> Iterator[ChunkRow]:
    """Yield the chunks of tensors as the source has them, each compared with its digest."""
    by_id = {tensor.tensor_id: tensor for tensor in tensors}
    left = {tensor.tensor_id: [tensor.chunks or 0, tensor.stored_bytes or 0] for tensor in tensors}
    for tensor_id, ordinal, codec, known, data in exchange.source.stream(
        _Q.read_stored, tensor_ids=list(by_id)
    ):
        digest = by_id[tensor_id].whole.digest(ordinal, codec, data)
        if digest != bytes(known):
            raise BadTensor(tensor_id, "the chunk is not as it was written", ordinal)
        left[tensor_id][0] -= 1
        left[tensor_id][1] -= len(data)
        exchange.progress.chunks += 1
        exchange.progress.add(len(data))
        yield exchange.own_id(by_id[tensor_id]), ordinal, codec, digest, data
    for tensor_id, (chunks, size) in left.items():
        if chunks or size:
            raise BadTensor(tensor_id, f"{chunks} of its chunks, {size} bytes, are missing")


def _encoding_row(exchange: TensorExchange, tensor: Described) -> EncodingRow:
    """Return the row of `add_encoding` of a tensor whose chunks were sent as they are."""
    base = None if tensor.base_hash is None else exchange.held[tensor.base_hash].tensor_id
    return (
        exchange.own_id(tensor),
        base,
        tensor.word,
        tensor.chunk_bytes,
        tensor.chunks,
        tensor.stored_bytes,
    )


def _check_target(exchange: TensorExchange, tensors: Sequence[Described]) -> None:
    by_id = {exchange.own_id(tensor): tensor for tensor in tensors}
    try:
        _check(exchange.target, list(by_id), exchange.verify)
    except BadTensor as error:
        raise BadTensor(by_id[error.tensor_id].tensor_id, error.reason, error.ordinal) from error


def _check(connection: Connection, tensor_ids: Sequence[int], verify: Verify) -> None:
    """Decode tensors and compare them with their hashes; raises BadTensor."""
    step = {"full": 1, "sampled": SAMPLED_EVERY, "none": 0}[verify]
    encodings = find_encodings(connection, tensor_ids[::step]) if step and tensor_ids else {}
    group: list[ChunkLayout] = []
    for encoding in encodings.values():
        if group and sum(e.byte_count for e in group) + encoding.byte_count > _CHECKED_BYTES:
            read_tensors(connection, group, checked={e.tensor_id for e in group})
            group = []
        group.append(encoding)
    read_tensors(connection, group, checked={e.tensor_id for e in group})
