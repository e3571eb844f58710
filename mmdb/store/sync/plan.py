"""Which tensors a copy between two databases sends, and in what form. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmdb.db.connection import Row
from mmdb.store.reading import Whole

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
class Held:
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


def missing(needs: Iterable[Need], held: Mapping[bytes, Held]) -> list[Need]:
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
    held: Mapping[bytes, Held],
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

    @classmethod
    def from_row(cls, row: Row) -> There:
        """Return the value of a row of `find_there`."""
        return cls(**(dict(row) | {"weights_hash": bytes(row["weights_hash"])}))

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
