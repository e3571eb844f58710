"""Tensors into chunks: each content once, encoded alone or against a base, in a bounded memory.

What is stored already is read once a session, and stored anew where it is damaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from weakref import WeakKeyDictionary

import numpy as np

from mmdb.db.connection import Connection
from mmdb.db.owners import may_replace, usable
from mmdb.db.queries import load
from mmdb.errors import CorruptTensor
from mmdb.store.tensors.codec import encode, needs_base
from mmdb.store.tensors.pipeline import batches, pipeline
from mmdb.store.tensors.reading import (
    BadTensor,
    ChunkLayout,
    Whole,
    bytes_of,
    find_encodings,
    read_tensors,
)
from mmdb.store.tensors.tensor_bytes import Statistics, chunk_bytes, chunk_count, fitted, spans

_GC_QUERIES = load("gc")
#: Bytes of tensors that are read and compared at once; one tensor may be larger.
_GROUP_BYTES = 32 << 20

#: Tensors that a session has read and found to be those of their hashes.
_right: WeakKeyDictionary[Connection, set[int]] = WeakKeyDictionary()


def find_right(
    connection: Connection, tensor_ids: Collection[int], old: Collection[int]
) -> set[int]:
    """Return those of some tensors whose chunks are there and are right; the others have no more.

    A session reads a tensor once: models that share most of their tensors are saved one after the
    other, and each would read them all. The chunks of a tensor that is damaged are deleted.

    Args:
        old: tensors that this save has not named itself.
    Raises:
        CorruptTensor: one is damaged, and this role may not delete its chunks.
    """
    right = _right.setdefault(connection, set())
    unread = set(tensor_ids) - right
    encodings = find_encodings(connection, unread)
    damaged = _find_strays(connection, (unread - encodings.keys()) & set(old))
    for group in batches(encodings.values(), lambda e: e.byte_count, _GROUP_BYTES):
        if _find_damage(connection, group) is None:
            right.update(e.tensor_id for e in group)
            continue
        for encoding in group:
            error = _find_damage(connection, [encoding])
            if error is None:
                right.add(encoding.tensor_id)
            else:
                damaged[encoding.tensor_id] = error
    if damaged:
        _delete_chunks(connection, list(damaged.values()))
    return right & set(tensor_ids)


def _find_strays(connection: Connection, tensor_ids: Collection[int]) -> dict[int, BadTensor]:
    """Return those of some tensors without an encoding that have chunks."""
    rows = connection.rows(_GC_QUERIES.find_chunks, ids=list(tensor_ids)) if tensor_ids else []
    reason = "nothing says how its chunks are to be read"
    return {row["tensor_id"]: BadTensor(row["tensor_id"], reason) for row in rows}


def forget(connection: Connection) -> None:
    """Let a session read again what it has found to be right."""
    _right.pop(connection, None)


def _find_damage(connection: Connection, encodings: Sequence[ChunkLayout]) -> BadTensor | None:
    try:
        read_tensors(connection, encodings, checked={e.tensor_id for e in encodings})
    except BadTensor as error:
        return error
    return None


def _delete_chunks(connection: Connection, damaged: Sequence[BadTensor]) -> None:
    """Make room for chunks of the same bytes: differences to these tensors can be read again."""
    if not may_replace(connection):
        error = damaged[0]
        chunk = "" if error.ordinal is None else f", chunk {error.ordinal}"
        raise CorruptTensor(
            f"Tensor {error.tensor_id}{chunk}, which is stored already and which the model has, "
            f"is damaged: {error.reason}.",
            hint="Let a member of mmdb_admin save the model: damaged tensors are then stored anew.",
        )
    ids = [error.tensor_id for error in damaged]
    for query in (_GC_QUERIES.delete_chunks, _GC_QUERIES.delete_encodings):
        connection.run(query, ids=ids)


_Q = load("tensors")
#: Bytes of tensors that a thread describes in one go.
_BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A tensor to be stored unless it is."""

    tensor_hash: bytes
    dtype: str
    shape: tuple[int, ...]
    byte_count: int
    word: int
    load: Callable[[], np.ndarray]  # the bytes, uint8 (byte_count,)
    describe: Callable[[], Statistics]
    by_row: bool = False  # whether its rows are read one by one
    has_chunks: bool = True  # else its bytes lie in a pack, or in the storage that it is a view of
    base_id: int | None = None  # a tensor of its dtype and shape, or a pack, to be subtracted

    def statistics(self) -> Statistics:
        """Return what `describe` finds."""
        return self.describe()


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor that is stored, as its row describes it."""

    tensor_id: int
    dtype: str
    shape: tuple[int, ...]
    byte_count: int
    is_encoded: bool = True  # whether anything says how its chunks are to be read


_NOTHING: Mapping[bytes, Named] = MappingProxyType({})


@dataclass(slots=True)
class Stored:
    """What storing some contents came to."""

    ids: dict[bytes, int] = field(default_factory=dict)  # tensor_hash -> tensor_id
    stored_bytes: int = 0  # of the chunks added
    added: int = 0  # tensors that had no chunks before


def store_contents(
    connection: Connection, contents: Sequence[Content], parents: Mapping[bytes, Named] = _NOTHING
) -> Stored:
    """Store what is not there yet; the caller has begun the transaction.

    Contents are named in the order of their hashes, so that sessions which store the same ones
    wait for each other and never in a circle. What is there is read, and stored anew where it is
    damaged; see `mmdb.store.tensors.writing`.

    Args:
        parents: tensors by their hash that need not be searched for.
    Raises:
        BadTensor: a base is not as it was stored; tensor_id is that of the `base_id`.
        CorruptTensor: a tensor that is there is damaged, and this role may not store it anew.
    """
    stored = Stored()
    by_hash: dict[bytes, Content] = {}
    for content in contents:  # of equal ones, one that needs chunks of its own
        known_one = by_hash.get(content.tensor_hash)
        if known_one is None or content.has_chunks > known_one.has_chunks:
            by_hash[content.tensor_hash] = content
    known = {name: parents[name] for name in by_hash if name in parents}
    known |= _find(connection, by_hash.keys() - known.keys())
    for name, named in known.items():
        _check_named(by_hash[name], named)
    before = {named.tensor_id for named in known.values()}
    unknown = [by_hash[name] for name in sorted(by_hash) if name not in known]
    if unknown:
        _name(connection, unknown)
        known |= _find(connection, [c.tensor_hash for c in unknown])
    stored.ids = {name: named.tensor_id for name, named in known.items()}
    needed = {stored.ids[c.tensor_hash]: c for c in by_hash.values() if c.has_chunks}
    encoded = {named.tensor_id for named in known.values() if named.is_encoded}
    right = find_right(connection, needed.keys() & (before | encoded), before)
    missing = [
        # Others may be differences to one that was there: it can be no difference itself.
        replace(c, base_id=None) if tensor_id in before else c
        for tensor_id, c in needed.items()
        if c.byte_count and tensor_id not in right
    ]
    for group in batches(missing, _byte_count, _GROUP_BYTES):
        _write(connection, group, stored)
    return stored


def known_hashes(connection: Connection, hashes: Iterable[bytes]) -> set[bytes]:
    """Return which of some tensors the database knows, as far as their owner may say."""
    return set(_find(connection, hashes))


def _find(connection: Connection, hashes: Iterable[bytes]) -> dict[bytes, Named]:
    """Return the tensors of the hashes that are known to the owner."""
    wanted = list(hashes)
    rows = connection.rows(_Q.find_tensors, hashes=wanted) if wanted else []
    if any(row["owner"] for row in rows):  # each team has its own, and some sessions see all
        by_id = {row["tensor_id"]: row for row in rows}
        rows = [by_id[tensor_id] for tensor_id in reversed(usable(connection, by_id))]
    return {  # of equal ones the last
        bytes(row["tensor_hash"]): Named(
            row["tensor_id"],
            row["dtype"],
            tuple(row["shape"]),
            row["byte_count"],
            row["chunk_bytes"] is not None,
        )
        for row in rows
    }


def _check_named(content: Content, named: Named) -> None:
    said = (named.dtype, named.shape, named.byte_count)
    if said != (content.dtype, content.shape, content.byte_count):
        raise CorruptTensor(
            f"Tensor {named.tensor_id}, which is stored already and which the model has, is said "
            f"to be {named.dtype} {list(named.shape)} of {named.byte_count} bytes."
        )


def _byte_count(content: Content) -> int:
    return content.byte_count


def _name(connection: Connection, contents: Sequence[Content]) -> None:
    def work(batch: Sequence[Content]) -> list[Statistics]:
        return [content.statistics() for content in batch]

    with pipeline(work, connection.threads) as describing:
        described = describing.map(batches(contents, _byte_count, _BATCH_BYTES))
        statistics = [found for batch in described for found in batch]
    names = list(_Q.add_tensor.parameters)
    connection.run_many(
        _Q.add_tensor,
        [
            dict(zip(names, row, strict=True))
            for row in (
                (c.tensor_hash, c.dtype, list(c.shape), c.byte_count, *s.row())
                for c, s in zip(contents, statistics, strict=True)
            )
        ],
    )


@dataclass(slots=True)
class _Work:
    """One chunk on its way into the database."""

    content: Content
    whole: Whole
    tensor_id: int
    ordinal: int
    raw: np.ndarray
    base: np.ndarray | None


@dataclass(slots=True)
class _Written:
    """What a tensor's chunks came to."""

    stored_bytes: int = 0
    has_differences: bool = False


def _write(connection: Connection, group: Sequence[Content], stored: Stored) -> None:
    bases = _read_bases(connection, group)
    written = {stored.ids[c.tensor_hash]: _Written() for c in group}

    def work(item: _Work) -> tuple[int, int, int, bytes, bytes]:
        encoded = encode(item.raw, item.content.word, item.base)
        found = item.whole.digest(item.ordinal, encoded.codec, encoded.data)
        return item.tensor_id, item.ordinal, encoded.codec, found, encoded.data

    def rows(pieces: Iterator[tuple[int, int, int, bytes, bytes]]) -> Iterator[tuple[object, ...]]:
        for row in pieces:
            done = written[row[0]]
            done.stored_bytes += len(row[4])
            done.has_differences |= needs_base(row[2])
            yield row

    with pipeline(work, connection.threads) as encoding:
        connection.append(_Q.add_chunk, rows(encoding.map(_works(group, stored, bases))))
    connection.append(
        _Q.add_encoding,
        [_encoding_row(c, stored.ids[c.tensor_hash], bases, written) for c in group],
    )
    stored.stored_bytes += sum(done.stored_bytes for done in written.values())
    stored.added += len(group)


_Bases = dict[int, tuple[ChunkLayout, np.ndarray]]  # base as asked for -> base as used, its bytes


def _read_bases(connection: Connection, group: Sequence[Content]) -> _Bases:
    """Return the bytes of the bases: a base that is a difference stands for its own base."""
    wanted = find_encodings(connection, {c.base_id for c in group if c.base_id is not None})
    further = {e.base_id for e in wanted.values() if e.base_id is not None}
    known = wanted | find_encodings(connection, further)
    roots = {tensor_id: known[found.base_id or tensor_id] for tensor_id, found in wanted.items()}
    unique = {root.tensor_id: root for root in roots.values()}
    try:
        tensors = read_tensors(connection, list(unique.values()), checked=unique)
    except BadTensor as error:
        asked = next(k for k, root in roots.items() if root.tensor_id == error.tensor_id)
        raise BadTensor(asked, error.reason, error.ordinal) from error
    return {
        tensor_id: (root, bytes_of(tensors[root.tensor_id])) for tensor_id, root in roots.items()
    }


def _works(group: Sequence[Content], stored: Stored, bases: _Bases) -> Iterator[_Work]:
    for content in group:
        raw = content.load()
        base = _base_of(content, bases)
        base_hash = None if base is None else bases[content.base_id or 0][0].tensor_hash
        whole = Whole(content.tensor_hash, base_hash, content.word, _size(content))
        for ordinal, start, stop in spans(content.byte_count, _size(content)):
            yield _Work(
                content,
                whole,
                stored.ids[content.tensor_hash],
                ordinal,
                raw[start:stop],
                None
                if base is None or len(base) <= start
                else fitted(base[start:stop], stop - start),
            )


def _base_of(content: Content, bases: _Bases) -> np.ndarray | None:
    """Return the base's bytes where they are cut as the content will be."""
    if content.base_id not in bases:
        return None
    root, base = bases[content.base_id]
    is_cut_alike = root.chunk_bytes == _size(content) and root.word == content.word
    return base if is_cut_alike else None


def _size(content: Content) -> int:
    itemsize = content.byte_count // max(1, math.prod(content.shape))
    return chunk_bytes(content.shape, itemsize, by_row=content.by_row)


def _encoding_row(
    content: Content, tensor_id: int, bases: _Bases, written: dict[int, _Written]
) -> tuple[object, ...]:
    done, size = written[tensor_id], _size(content)
    base_id = None
    if done.has_differences and content.base_id is not None:
        base_id = bases[content.base_id][0].tensor_id
    count = chunk_count(content.byte_count, size)
    return tensor_id, base_id, content.word, size, count, done.stored_bytes
