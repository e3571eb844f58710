"""Tensors out of their chunks, which are streamed and decoded straight into their memory."""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import NoReturn

import blake3
import numpy as np
import torch

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.store.tensors.codec import CorruptChunk, decode, needs_base
from mmdb.store.tensors.pipeline import batches, pipeline
from mmdb.store.tensors.tensor_bytes import DTYPES, chunk_count, fitted, tensor_hash

_Q = load("tensors")
#: Bytes of a chunk's digest: enough to find a flipped bit, not an identity.
DIGEST_BYTES = 16
#: Bytes of tensors that are fetched at once rather than streamed.
_AT_ONCE = 2 << 20
#: Bytes of tensors that one query streams: DuckDB makes 2048 rows before it gives the first.
_QUERY_BYTES = 64 << 20
#: Numbers of tensors that lie apart by more are read by themselves.
_NEAR = 8


class BadTensor(Exception):
    """Stored bytes are wrong; whoever reads a model says of which path."""

    def __init__(self, tensor_id: int, reason: str, ordinal: int | None = None) -> None:
        super().__init__(reason)
        self.tensor_id, self.reason, self.ordinal = tensor_id, reason, ordinal


@dataclass(frozen=True, slots=True)
class Whole:
    """The tensor that a chunk is a piece of: all that its bytes mean anything with."""

    tensor_hash: bytes
    base_hash: bytes | None
    word: int
    chunk_bytes: int

    def digest(self, ordinal: int, codec: int, data: bytes | memoryview) -> bytes:
        """Return the first bytes of the BLAKE3 of a chunk, as it is stored, and of its place."""
        base = (self.base_hash if needs_base(codec) else None) or b""
        place = struct.pack(
            "<32s32s4q", self.tensor_hash, base, self.word, self.chunk_bytes, ordinal, codec
        )
        return blake3.blake3(place).update(data).digest(length=DIGEST_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLayout:
    """How a tensor lies in its chunks."""

    tensor_id: int
    base_id: int | None
    base_hash: bytes | None
    base_bytes: int | None
    word: int
    chunk_bytes: int
    chunks: int
    tensor_hash: bytes
    dtype: str
    shape: tuple[int, ...]
    byte_count: int

    @classmethod
    def from_row(cls, row: Row) -> ChunkLayout:
        """Return the value of a row of `find_encodings`."""
        return cls(**(dict(row) | {"shape": tuple(row["shape"])}))

    @property
    def whole(self) -> Whole:
        """What its chunks are pieces of."""
        return Whole(self.tensor_hash, self.base_hash, self.word, self.chunk_bytes)

    def check(self) -> None:
        """Raise BadTensor where what it says of the tensor cannot be."""
        dtype = DTYPES.get(self.dtype)
        if dtype is None or not holds(dtype, self.shape, self.byte_count):
            raise BadTensor(self.tensor_id, "its dtype, shape and bytes do not belong together")
        is_cut = self.chunk_bytes > 0 and self.word in (1, 2, 4, 8)
        if not is_cut or chunk_count(self.byte_count, self.chunk_bytes) != self.chunks:
            raise BadTensor(self.tensor_id, "it cannot have been cut into chunks as its row says")


def holds(dtype: torch.dtype, shape: Sequence[int], byte_count: int) -> bool:
    """Return whether a tensor has so many bytes."""
    return min(shape, default=0) >= 0 and math.prod(shape) * dtype.itemsize == byte_count


def find_encodings(connection: Connection, tensor_ids: Collection[int]) -> dict[int, ChunkLayout]:
    """Return the encodings of those tensors that have one, by tensor_id."""
    rows = connection.rows(_Q.find_encodings, tensor_ids=list(tensor_ids)) if tensor_ids else []
    return {row["tensor_id"]: ChunkLayout.from_row(row) for row in rows}


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """Return a contiguous tensor's own memory as writable uint8 (bytes,)."""
    flat: np.ndarray = tensor.reshape(-1).view(torch.uint8).numpy()
    return flat


#: Given each tensor that is complete: its tensor_id and bytes, by whatever thread.
Taker = Callable[[int, np.ndarray], None]


class _Target:
    """A tensor while its chunks arrive."""

    def __init__(
        self, encoding: ChunkLayout, *, checked: bool, pinned: bool, taker: Taker | None
    ) -> None:
        encoding.check()
        self.encoding, self.byte_count = encoding, encoding.byte_count
        self._count = encoding.chunks
        self._pinned, self._checked, self._taker = pinned, checked, taker
        self._held: tuple[torch.Tensor, np.ndarray] | None = None  # with its own memory, as bytes
        self._left = set(range(self._count))  # own chunks that have not come
        self._under: set[int] = set()  # chunks of the base that lie in the memory
        self._decoded = 0
        self._lock = threading.Lock()

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor."""
        return self._hold()[0]

    def _hold(self) -> tuple[torch.Tensor, np.ndarray]:
        """Return the tensor and its bytes, for which there is memory from the first chunk on."""
        with self._lock:
            if self._held is None:
                form, dtype = self.encoding.shape, DTYPES[self.encoding.dtype]
                tensor = torch.empty(form, dtype=dtype, pin_memory=self._pinned)
                self._held = tensor, bytes_of(tensor)
            return self._held

    def lay_under(self, ordinal: int, codec: int, data: bytes) -> bool:
        """Decode a chunk of the base into its place; return False: there is more to come."""
        if needs_base(codec):
            self._fail("its base's chunk is a difference itself", ordinal)
        if 0 <= ordinal < self._count:
            _decode_base(self.encoding, ordinal, codec, data, self._place(ordinal))
            self._under.add(ordinal)
        return False

    def take(self, ordinal: int, codec: int, data: bytes) -> bool:
        """Decode one of the tensor's own chunks; return whether it was the last one."""
        if not 0 <= ordinal < self._count:
            self._fail(f"it has only {self._count} chunks", ordinal)
        with self._lock:
            if ordinal not in self._left:
                self._fail("the chunk is there twice", ordinal)
            self._left.remove(ordinal)
        if needs_base(codec) and ordinal not in self._under:
            self._fail("it is a difference to a chunk that is missing", ordinal)
        _decode(self.encoding, ordinal, codec, data, self._place(ordinal))
        with self._lock:
            self._decoded += 1
            return self._decoded == self._count

    def complete(self) -> None:
        """Compare the hash, where that is asked for, and give the tensor away to who takes it."""
        _, memory = self._hold()
        if self._checked:
            found = tensor_hash(self.encoding.dtype, self.encoding.shape, memory)
            if found != self.encoding.tensor_hash:
                self._fail("its bytes are not those of its hash")
        if self._taker is not None:
            self._taker(self.encoding.tensor_id, memory)
            self._held = None

    def _place(self, ordinal: int) -> np.ndarray:
        size = self.encoding.chunk_bytes
        return self._hold()[1][ordinal * size : (ordinal + 1) * size]

    def _fail(self, reason: str, ordinal: int | None = None) -> NoReturn:
        raise BadTensor(self.encoding.tensor_id, reason, ordinal)

    def check_complete(self) -> None:
        """Raise BadTensor where chunks are missing."""
        if self._left:
            self._fail(f"{len(self._left)} of its chunks are missing")


def _decode(encoding: ChunkLayout, ordinal: int, codec: int, data: bytes, out: np.ndarray) -> None:
    """Decode a chunk; a difference is one to what `out` holds."""
    try:
        decode(codec, data, encoding.word, out, out)
    except CorruptChunk as error:
        raise BadTensor(encoding.tensor_id, str(error), ordinal) from error


def _decode_base(
    encoding: ChunkLayout, ordinal: int, codec: int, data: bytes, out: np.ndarray
) -> None:
    """Decode a chunk of a tensor's base, whose last one may be shorter or longer: see `fitted`."""
    size = encoding.chunk_bytes
    length = min(size, (encoding.base_bytes or 0) - ordinal * size)
    if length == len(out):
        _decode(encoding, ordinal, codec, data, out)
        return
    piece = np.empty(max(0, length), np.uint8)
    _decode(encoding, ordinal, codec, data, piece)
    out[:] = fitted(piece, len(out))


def read_tensors(
    connection: Connection,
    encodings: Sequence[ChunkLayout],
    *,
    checked: Collection[int] = (),
    pinned: bool = False,
    taker: Taker | None = None,
) -> dict[int, torch.Tensor]:
    """Return whole tensors by tensor_id, on the CPU.

    Where a tensor is a difference, its base is decoded into its memory first.

    Args:
        checked: tensor_ids whose bytes are compared with their hash.
        pinned: into page-locked memory, from which a GPU copies by itself.
        taker: is given each tensor's bytes, whose memory then serves for others; none is returned.
    Raises:
        BadTensor
    """
    targets = {
        e.tensor_id: _Target(e, checked=e.tensor_id in checked, pinned=pinned, taker=taker)
        for e in encodings
    }
    over: dict[int, list[_Target]] = {}  # base -> the tensors that are differences to it
    for target in targets.values():
        if target.encoding.base_id is not None:
            over.setdefault(target.encoding.base_id, []).append(target)
    if sum(encoding.byte_count for encoding in encodings) <= _AT_ONCE:
        _decode_few(connection, over, targets)
    else:
        _decode_chunks(connection, over, _Target.lay_under)
        _decode_chunks(connection, {k: [t] for k, t in targets.items()}, _Target.take)
    for target in targets.values():
        target.check_complete()
    return {} if taker else {tensor_id: target.tensor for tensor_id, target in targets.items()}


def _decode_few(
    connection: Connection, over: Mapping[int, list[_Target]], targets: Mapping[int, _Target]
) -> None:
    """Read a few tensors and their bases in one query that stays prepared, without threads."""
    ids = list({**over, **targets})
    if len(ids) > 2:
        rows = connection.rows(_Q.read_chunks, tensor_ids=ids)
    else:
        rows = connection.rows(_Q.read_pair, tensor_id=ids[0], other_id=ids[-1]) if ids else []
    chunks = [(row["tensor_id"], (row["ordinal"], row["codec"], row["data"])) for row in rows]
    for tensor_id, chunk in chunks:
        for target in over.get(tensor_id, ()):
            target.lay_under(*chunk)
    for tensor_id, chunk in chunks:
        if tensor_id in targets and targets[tensor_id].take(*chunk):
            targets[tensor_id].complete()


def _decode_chunks(
    connection: Connection,
    targets: Mapping[int, list[_Target]],
    apply: Callable[[_Target, int, int, bytes], bool],
) -> None:
    """Stream the chunks of some tensors and apply each to its targets.

    Threads do so while the caller waits for a server. DuckDB's rows are the caller's own work: it
    decodes them too, as threads would wait for Python's lock at each, and threads compare hashes.
    """

    def work(row: tuple[int, int, int, bytes]) -> None:
        for target in targets[row[0]]:
            if apply(target, *row[1:]):
                completing.feed(target)

    if not targets:
        return
    decoders = 0 if connection.engine == "duckdb" else connection.threads
    # What goes wrong ends the stream first, which frees the session. PostgreSQL then cancels the
    # statement, so that a transaction can go on from a savepoint alone.
    is_spoilt = connection.engine == "postgres" and connection.in_transaction
    with (
        connection.transaction() if is_spoilt else nullcontext(),
        pipeline(_Target.complete, connection.threads - decoders) as completing,
        pipeline(work, decoders) as decoding,
    ):
        for group in batches(sorted(targets), lambda k: targets[k][0].byte_count, _QUERY_BYTES):
            with closing(connection.stream(_Q.read_chunks, tensor_ids=group)) as chunks:
                for chunk in chunks:
                    decoding.feed(chunk)
        decoding.finish()
        completing.finish()


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes start..stop of a tensor, one or more."""

    encoding: ChunkLayout
    start: int
    stop: int

    @property
    def ordinals(self) -> range:
        """The chunks that they lie in."""
        size = self.encoding.chunk_bytes
        return range(self.start // size, (self.stop - 1) // size + 1)

    def check(self) -> None:
        """Raise BadTensor where the tensor cannot have them."""
        self.encoding.check()
        if self.stop > self.encoding.byte_count:
            reason = f"it has only {self.encoding.byte_count} bytes"
            raise BadTensor(self.encoding.tensor_id, reason)


def read_spans(
    connection: Connection, spans: Sequence[Span], *, checked: bool = True
) -> list[np.ndarray]:
    """Return the bytes of each span, uint8 (stop - start,), and read no chunk that has none.

    Args:
        checked: compare each chunk with its digest.
    Raises:
        BadTensor
    """
    wanted: dict[int, set[int]] = {}  # tensor_id -> ordinals
    for span in spans:
        span.check()
        for tensor_id in {span.encoding.tensor_id, span.encoding.base_id} - {None}:
            wanted.setdefault(tensor_id, set()).update(span.ordinals)  # type: ignore[arg-type]
    found: dict[tuple[int, int], list[Row]] = {}
    for row in _find_chunks(connection, wanted):
        found.setdefault((row["tensor_id"], row["ordinal"]), []).append(row)
    return [_decode_span(span, found, checked) for span in spans]


def _find_chunks(connection: Connection, wanted: Mapping[int, Collection[int]]) -> list[Row]:
    """Return some chunks of some tensors; the numbers of those saved together lie together."""
    if len(wanted) == 1:
        ((tensor_id, own),) = wanted.items()
        span = {"tensor_id": tensor_id, "first": min(own), "last": max(own)}
        return connection.rows(_Q.read_span, **span)
    runs: list[list[int]] = []
    for tensor_id in sorted(wanted):
        if not runs or tensor_id - runs[-1][-1] > _NEAR:
            runs.append([])
        runs[-1].append(tensor_id)
    rows: list[Row] = []
    for run in runs:
        ordinals = [ordinal for tensor_id in run for ordinal in wanted[tensor_id]]
        rows += connection.rows(
            _Q.read_spans,
            lowest=run[0],
            highest=run[-1],
            first=min(ordinals),
            last=max(ordinals),
            places=[(one << 31) + ordinal for one in run for ordinal in wanted[one]],
        )
    return rows


def _decode_span(
    span: Span, found: Mapping[tuple[int, int], Sequence[Row]], checked: bool
) -> np.ndarray:
    encoding, ordinals, size = span.encoding, span.ordinals, span.encoding.chunk_bytes
    own = _checked(encoding.tensor_id, found, ordinals, encoding.whole if checked else None)
    leaning = [row["ordinal"] for row in own if needs_base(row["codec"])]
    base: list[Row] = []
    try:
        whole = Whole(encoding.base_hash or b"", None, encoding.word, size)
        base_id = encoding.tensor_id if encoding.base_id is None else encoding.base_id
        base = _checked(base_id, found, leaning, whole if checked else None)
        for row in base:
            if needs_base(row["codec"]):
                raise BadTensor(base_id, "the chunk is a difference itself", row["ordinal"])
    except BadTensor as error:
        reason = f"it is a difference to a tensor of which {error.reason}"
        raise BadTensor(encoding.tensor_id, reason, error.ordinal) from error
    first = ordinals[0] * size
    memory = np.empty(min(ordinals[-1] * size + size, encoding.byte_count) - first, np.uint8)
    for rows, fill in ((base, _decode_base), (own, _decode)):
        for row in rows:
            place = row["ordinal"] * size - first
            out = memory[place : place + size]
            fill(encoding, row["ordinal"], row["codec"], row["data"], out)
    return memory[span.start - first : span.stop - first]


def _checked(
    tensor_id: int,
    found: Mapping[tuple[int, int], Sequence[Row]],
    ordinals: Sequence[int],
    whole: Whole | None,
) -> list[Row]:
    """Return chunks that are there, each once; and which are as their digests say."""
    there = [found.get((tensor_id, ordinal), ()) for ordinal in ordinals]
    for ordinal, rows in zip(ordinals, there, strict=True):
        if len(rows) != 1:
            reason = "the chunk is there twice" if rows else "the chunk is missing"
            raise BadTensor(tensor_id, reason, ordinal)
    for (row,) in there:
        if whole and bytes(row["digest"]) != whole.digest(
            row["ordinal"], row["codec"], row["data"]
        ):
            raise BadTensor(tensor_id, "the chunk is not as it was written", row["ordinal"])
    return [row for (row,) in there]


def find_bad_chunk(connection: Connection, encoding: ChunkLayout) -> BadTensor:
    """Return what is wrong with a tensor whose bytes are not those of its hash."""
    size = encoding.chunk_bytes
    try:
        encoding.check()
        for ordinal in range(encoding.chunks):
            stop = min((ordinal + 1) * size, encoding.byte_count)
            read_spans(connection, [Span(encoding, ordinal * size, stop)])
    except BadTensor as error:
        return error
    return BadTensor(
        encoding.tensor_id, "each chunk is as it was written, but together they are not the tensor"
    )
