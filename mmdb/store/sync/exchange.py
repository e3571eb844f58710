"""Two databases that tensors are copied between: what each has, what is sent, and in what form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import CorruptTensor
from mmdb.store.models.recover import Verify
from mmdb.store.tensors.reading import Whole

#: Stored bytes that one transaction sends at most; one tensor may be larger.
BATCH_BYTES = 64 << 20

_STATISTICS = ("minimum", "maximum", "mean", "deviation", "zeros", "nans")


@dataclass(frozen=True, slots=True)
class Need:
    """A tensor of the source that a model has."""

    tensor_id: int
    tensor_hash: bytes
    has_chunks: bool  # else its bytes lie in a pack, or in the storage that it is a view of


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A tensor of the source, and how it lies in its chunks."""

    tensor_id: int
    tensor_hash: bytes
    dtype: str
    shape: tuple[int, ...]
    byte_count: int
    statistics: tuple[object, ...]  # in the order of the columns of mmdb.tensor
    # None from here on: it has no chunks of its own.
    word: int | None = None
    chunk_bytes: int | None = None
    chunks: int | None = None
    stored_bytes: int | None = None
    base_id: int | None = None
    base_hash: bytes | None = None

    @classmethod
    def from_row(cls, row: Row) -> Described:
        """Return the value of a row of `describe_tensors`."""
        values: dict[str, Any] = dict(row)
        statistics = tuple(values.pop(name) for name in _STATISTICS)
        base = values["base_hash"]
        values |= {
            "tensor_hash": bytes(row["tensor_hash"]),
            "shape": tuple(row["shape"]),
            "base_hash": None if base is None else bytes(base),
        }
        return cls(statistics=statistics, **values)

    @property
    def whole(self) -> Whole:
        """What its chunks are pieces of."""
        return Whole(self.tensor_hash, self.base_hash, self.word or 0, self.chunk_bytes or 0)

    def row(self) -> tuple[object, ...]:
        """Return the values in the order of `add_tensor`."""
        return self.tensor_hash, self.dtype, list(self.shape), self.byte_count, *self.statistics


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """A tensor that the target has."""

    tensor_id: int
    chunk_bytes: int | None  # None: it has no chunks of its own
    is_difference: bool = False

    @property
    def has_chunks(self) -> bool:
        """Whether its bytes can be read by itself."""
        return self.chunk_bytes is not None


@dataclass(frozen=True, slots=True)
class Shipment:
    """A tensor to be sent."""

    tensor: Described
    has_chunks: bool
    #: Its chunks go as they are; else they are decoded, and encoded without a base.
    as_stored: bool = True

    @property
    def size(self) -> int:
        """Stored bytes to be sent, as far as they are known before."""
        return (self.tensor.stored_bytes or 0) if self.has_chunks else 0


def missing(needs: Iterable[Need], held: Mapping[bytes, HeldTensor]) -> list[Need]:
    """Return what the target lacks, each tensor once; with chunks if any use of it needs them."""
    found: dict[bytes, Need] = {}
    for need in needs:
        there = held.get(need.tensor_hash)
        if there is None or (need.has_chunks and not there.has_chunks):
            known = found.get(need.tensor_hash, need)
            has_chunks = need.has_chunks or known.has_chunks
            found[need.tensor_hash] = replace(need, has_chunks=has_chunks)
    return list(found.values())


Lacking = Sequence[tuple[Described, bool]]  # tensors, and whether their chunks are needed


def bases_to_ask(lacking: Lacking) -> dict[bytes, int]:
    """Return the bases of tensors to be sent that are not sent themselves: hash -> tensor_id."""
    own = _going(lacking)
    return {
        tensor.base_hash: tensor.base_id
        for tensor, has_chunks in lacking
        if has_chunks and tensor.base_hash is not None and tensor.base_id is not None
        if tensor.base_hash not in own
    }


def _going(lacking: Lacking) -> set[bytes]:
    return {t.tensor_hash for t, has_chunks in lacking if has_chunks and t.base_hash is None}


def plan_shipments(
    lacking: Lacking,
    held: Mapping[bytes, HeldTensor],
    bases: Mapping[bytes, Described],
    *,
    keep_differences: bool = False,
) -> list[Shipment]:
    """Return what to send, bases before the differences to them.

    A difference goes as it is where its base is whole at the target, goes too, or is cheaper to
    send with it than the tensor by itself. That is encoded anew where neither is so: a base that
    is a difference itself at the target cannot carry another one.

    Args:
        held: tensors of the target, bases among them.
        bases: the bases that are neither among `lacking` nor with chunks at the target.
        keep_differences: send every base: more differences to them will follow.
    """
    goes = _going(lacking)
    leaning: dict[bytes, list[Described]] = {}
    shipments: list[Shipment] = []
    for tensor, has_chunks in lacking:
        base = tensor.base_hash if has_chunks else None
        if base is None or base in goes:
            shipments.append(Shipment(tensor, has_chunks))
        elif base in held and held[base].has_chunks:
            fits = not held[base].is_difference and held[base].chunk_bytes == tensor.chunk_bytes
            shipments.append(Shipment(tensor, has_chunks, as_stored=fits))
        else:
            leaning.setdefault(base, []).append(tensor)
    for name, tensors in leaning.items():
        sent = keep_differences or _is_cheaper(bases[name], tensors)
        if sent:
            shipments.append(Shipment(bases[name], has_chunks=True))
        shipments += [Shipment(tensor, has_chunks=True, as_stored=sent) for tensor in tensors]
    return sorted(shipments, key=lambda s: s.tensor.base_hash is not None)


def _is_cheaper(base: Described, tensors: Sequence[Described]) -> bool:
    """Return whether a base with some differences is smaller than their tensors by themselves.

    A tensor by itself is taken to be as large as the base, which has its dtype and shape.
    """
    whole = base.stored_bytes or 0
    return whole + sum(t.stored_bytes or 0 for t in tensors) <= whole * len(tensors)


def batches(shipments: Iterable[Shipment], limit: int) -> Iterator[list[Shipment]]:
    """Yield shipments, in their order, of at most `limit` stored bytes together."""
    batch: list[Shipment] = []
    size = 0
    for shipment in shipments:
        if batch and size + shipment.size > limit:
            yield batch
            batch, size = [], 0
        batch.append(shipment)
        size += shipment.size
    if batch:
        yield batch


@dataclass(frozen=True, slots=True, kw_only=True)
class There:
    """A model of the target."""

    model_id: int
    name: str
    version: int
    weights_hash: bytes
    manifest_id: int | None
    approach: str
    is_dropped: bool
    calibration: Any = None

    @classmethod
    def from_row(cls, row: Row) -> There:
        """Return the value of a row of `find_there`."""
        own = {"weights_hash": bytes(row["weights_hash"])}
        own |= {"calibration": json.loads(row["calibration"] or "null")}
        return cls(**(dict(row) | own))

    @property
    def reference(self) -> str:
        """The model as `name@version`."""
        return f"{self.name}@{self.version}"


def same_model(
    there: Iterable[There], weights_hash: bytes, name: str, version: int
) -> There | None:
    """Return the target's model of some weights: not a dropped one, of the same name, if it can."""
    found = [model for model in there if model.weights_hash == weights_hash]

    def rank(model: There) -> tuple[bool, bool, bool]:
        return model.is_dropped, model.name != name, model.version != version

    return min(found, key=rank, default=None)


_Q = load("sync")
_T = load("tensors")

ChunkRow = tuple[int, int, int, bytes, bytes]  # tensor_id, ordinal, codec, digest, data
EncodingRow = tuple[int | None, ...]  # the parameters of `add_encoding`


@dataclass(slots=True)
class CopyProgress:
    """What a copy has sent so far, and who is told."""

    report: Callable[[int, int], None] = lambda done, total: None
    total: int = 0  # stored bytes to be sent, as far as planned
    bytes: int = 0
    tensors: int = 0
    chunks: int = 0

    def expect(self, size: int) -> None:
        """Add to what is to be sent."""
        self.total += size
        self.report(self.bytes, self.total)

    def add(self, size: int) -> None:
        """Add to what has been sent."""
        self.bytes += size
        self.total = max(self.total, self.bytes)
        self.report(self.bytes, self.total)


@dataclass(slots=True, kw_only=True)
class TensorExchange:
    """Two databases, and what one knows of the other's tensors."""

    source: Connection
    target: Connection
    verify: Verify = "full"
    batch_bytes: int = BATCH_BYTES
    progress: CopyProgress = field(default_factory=CopyProgress)
    held: dict[bytes, HeldTensor] = field(default_factory=dict)

    @property
    def checks_at_target(self) -> bool:
        """Whether tensors are compared with their hashes where they arrive.

        That is where no wire lies before their bytes: at the source, unless only the target is a
        file.
        """
        return self.target.engine == "duckdb" and self.source.engine == "postgres"

    def ask(self, hashes: Iterable[bytes]) -> None:
        """Learn which of some tensors the target has."""
        wanted = list(dict.fromkeys(hashes))
        for row in self.target.rows(_T.find_tensors, hashes=wanted) if wanted else ():
            self.held[bytes(row["tensor_hash"])] = HeldTensor(
                row["tensor_id"], row["chunk_bytes"], row["base_id"] is not None
            )

    def own_id(self, tensor: Described) -> int:
        """Return the number that a tensor has at the target."""
        return self.held[tensor.tensor_hash].tensor_id

    def describe(self, tensor_ids: Iterable[int]) -> list[Described]:
        """Return what the source says of some tensors."""
        wanted = list(dict.fromkeys(tensor_ids))
        if not wanted:
            return []
        rows = self.source.rows(_Q.describe_tensors, tensor_ids=wanted)
        return [Described.from_row(row) for row in rows]


def name_tensors(exchange: TensorExchange, tensors: Sequence[Described]) -> None:
    """Name tensors at the target, in the order of their hashes as every session does."""
    columns = list(_T.add_tensor.parameters)
    by_hash = {tensor.tensor_hash: tensor for tensor in tensors}
    ordered = [by_hash[name] for name in sorted(by_hash)]
    exchange.target.run_many(
        _T.add_tensor, [dict(zip(columns, tensor.row(), strict=True)) for tensor in ordered]
    )
    exchange.ask(tensor.tensor_hash for tensor in ordered)


def check_arrival(exchange: TensorExchange, rows: Sequence[EncodingRow]) -> None:
    """Compare chunks and bytes at the target with what was sent. Its SQL has no BLAKE3."""
    (found,) = exchange.target.rows(_Q.measure_stored, tensor_ids=[row[0] for row in rows])
    expected = (sum(row[4] or 0 for row in rows), sum(row[5] or 0 for row in rows))
    if (found["chunks"], found["bytes"]) != expected:
        raise CorruptTensor(
            f"Of {expected[0]} chunks with {expected[1]} bytes, {found['chunks']} with "
            f"{found['bytes']} arrived.",
            hint="Push or pull it again.",
        )
