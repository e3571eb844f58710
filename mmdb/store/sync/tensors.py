"""Tensors from one database into another: what the other one lacks, as it is stored.

Chunks pass as bytes, each compared with its digest on the way. A batch is one transaction of the
target, so that an interrupted copy goes on after the last whole batch; until a model names them,
`gc` leaves tensors alone for its grace period.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import CorruptTensor, WriteConflict
from mmdb.store.reading import (
    BadTensor,
    Encoding,
    bytes_of,
    find_encodings,
    read_tensors,
)
from mmdb.store.recover import SAMPLED_EVERY, Verify
from mmdb.store.sync.fresh import Raw, send_raw
from mmdb.store.sync.plan import (
    Described,
    Held,
    Need,
    Shipment,
    bases_to_ask,
    batches,
    missing,
    plan_shipments,
)
from mmdb.store.sync.sides import ChunkRow, EncodingRow, Exchange, check_arrival, name_tensors

_Q = load("sync")
_T = load("tensors")
#: Bytes of tensors that are decoded together to compare their hashes.
_CHECKED_BYTES = 64 << 20
#: How often a batch that another session got in the way of is begun again.
_ATTEMPTS = 5


def plan(exchange: Exchange, needs: Sequence[Need], *, keep_differences: bool) -> list[Shipment]:
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


def send(exchange: Exchange, shipments: Sequence[Shipment]) -> None:
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


def _send_batch(exchange: Exchange, batch: Sequence[Shipment]) -> None:
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
        exchange.held[_name(shipment)] = Held(
            held.tensor_id, shipment.tensor.chunk_bytes, is_difference
        )


def _name(shipment: Shipment) -> bytes:
    return shipment.tensor.tensor_hash


def _raw_of(exchange: Exchange, tensor: Described) -> Raw:
    encodings = find_encodings(exchange.source, [tensor.tensor_id])
    read = read_tensors(exchange.source, list(encodings.values()), checked=[tensor.tensor_id])
    return Raw(tensor=tensor, data=bytes_of(read[tensor.tensor_id]))


# -- chunks as they are stored --------------------------------------------------


def _stored_chunks(exchange: Exchange, tensors: Sequence[Described]) -> Iterator[ChunkRow]:
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


def _encoding_row(exchange: Exchange, tensor: Described) -> EncodingRow:
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


def _check_target(exchange: Exchange, tensors: Sequence[Described]) -> None:
    by_id = {exchange.own_id(tensor): tensor for tensor in tensors}
    try:
        _check(exchange.target, list(by_id), exchange.verify)
    except BadTensor as error:
        raise BadTensor(by_id[error.tensor_id].tensor_id, error.reason, error.ordinal) from error


def _check(connection: Connection, tensor_ids: Sequence[int], verify: Verify) -> None:
    """Decode tensors and compare them with their hashes; raises BadTensor."""
    step = {"full": 1, "sampled": SAMPLED_EVERY, "none": 0}[verify]
    encodings = find_encodings(connection, tensor_ids[::step]) if step and tensor_ids else {}
    group: list[Encoding] = []
    for encoding in encodings.values():
        if group and sum(e.byte_count for e in group) + encoding.byte_count > _CHECKED_BYTES:
            read_tensors(connection, group, checked={e.tensor_id for e in group})
            group = []
        group.append(encoding)
    read_tensors(connection, group, checked={e.tensor_id for e in group})
