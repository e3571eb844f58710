"""Models out of the store: whole, some tensors, or a few rows of one; verified on the way."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, Literal, TypeVar

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from mmdb.db.connection import Connection, OneSession, Source
from mmdb.errors import CorruptTensor, InvalidOption, ModelNotFound, StoreError, TensorNotFound
from mmdb.store.models.locations import Assembly, TensorLocations, gone, is_collected
from mmdb.store.models.model_rows import (
    SavedModel,
    StoredEntry,
    find_model,
    find_model_id,
    model_of,
)
from mmdb.store.tensors.mapped import read_whole
from mmdb.store.tensors.reading import (
    BadTensor,
    ChunkLayout,
    Span,
    find_bad_chunk,
    read_spans,
    read_tensors,
)
from mmdb.store.tensors.tensor_bytes import dtype_name, hash_of

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Cache(Generic[_Key, _Value]):
    """Values by key, the least recently used going first; for any number of threads.

    >>> cache = Cache[str, int](limit_bytes=10)
    >>> for key, size in [("a", 4), ("b", 4), ("a", 4), ("c", 4)]:
    ...     _ = cache.get(key) or cache.put(key, size, size)
    >>> [cache.get(key) for key in "abc"]
    [4, None, 4]
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._kept: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: _Key) -> _Value | None:
        """Return a value that is kept."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: _Key, value: _Value, size: int) -> None:
        """Keep a value of so many bytes; one above the limit is kept alone."""
        with self._lock:
            self._drop(key)
            self._kept[key] = (value, size)
            self.size_bytes += size
            while self.size_bytes > self.limit_bytes and len(self._kept) > 1:
                self._drop(next(iter(self._kept)))

    def forget(self, key: _Key) -> None:
        """Keep a value no longer."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: _Key) -> None:
        _, size = self._kept.pop(key, (None, 0))
        self.size_bytes -= size


_Result = TypeVar("_Result")

#: "full" compares every tensor with its hash, "sampled" one in SAMPLED_EVERY.
Verify = Literal["full", "sampled", "none"]
SAMPLED_EVERY = 16
#: Bytes of the catalogs that a reader keeps: those of some 300 models of 160 tensors.
KEPT_BYTES = 64 << 20
#: Bytes of the models' rows that a reader keeps, and of a row beside its architecture.
_MODEL_BYTES, _ROW_BYTES = 8 << 20, 1000


class ModelReader:
    """Reads tensors; keeps what never changes: entries and encodings.

    Args:
        source: one session, for one thread; or `mmdb.db.replicas.Replicas`, for any number.
        kept: catalogs by model_id, which readers of the same database may share.
    """

    def __init__(
        self, source: Connection | Source, kept: Cache[int, TensorLocations] | None = None
    ) -> None:
        self.source: Source = source if isinstance(source, Source) else OneSession(source)
        self.kept = Cache[int, TensorLocations](KEPT_BYTES) if kept is None else kept
        self._models = Cache[int, SavedModel](_MODEL_BYTES)

    def find(self, reference: str) -> SavedModel:
        """Return the model that a reference names now, as the primary has it.

        Raises:
            ModelNotFound
        """
        return self.source.newest(lambda connection: self._find(connection, reference))

    def _find(self, connection: Connection, reference: str) -> SavedModel:
        """Resolve a name, which may have moved; the row that it leads to never changes."""
        model_id = find_model_id(connection, reference)
        model = self._models.get(model_id)
        if model is None:
            model = model_of(connection, model_id)
            self._models.put(model_id, model, _ROW_BYTES + len(model.architecture or ""))
        return model

    def catalog(self, model: SavedModel) -> TensorLocations:
        """Return the entries of a model and where they lie.

        Raises:
            ModelNotFound: it was dropped, and its tensors collected.
        """
        catalog = self.kept.get(model.model_id)
        if catalog is None:
            catalog = self.source.read(
                lambda connection: TensorLocations.read(connection, model),
                model_ids=[model.model_id],
            )
            self.kept.put(model.model_id, catalog, catalog.size_bytes)
        return catalog

    def tensors(
        self,
        model: SavedModel,
        paths: Collection[str] | None = None,
        *,
        verify: Verify = "full",
        pinned: bool = False,
    ) -> dict[str, torch.Tensor]:
        """Return tensors by path in the order of the state dict, transient buffers last.

        Args:
            paths: None for all. Tied paths share one tensor.
        Raises:
            TensorNotFound, CorruptTensor
        """
        if verify not in ("full", "sampled", "none"):
            hint = "Choose full, sampled or none."
            raise InvalidOption(f"There is no verify {verify!r}.", hint=hint)
        catalog = self.catalog(model)
        wanted = catalog.select(paths)
        read_these = read_whole if len(wanted) == len(catalog.select(None)) else read_tensors
        holders = [catalog.holder(entry) for entry in wanted]
        encodings = [catalog.encoding(k) for k in dict.fromkeys(holders) if k is not None]
        checked = {e.tensor_id for k, e in enumerate(encodings) if _is_checked(verify, k)}
        read = self._read(
            [catalog],
            encodings,
            lambda c: read_these(c, encodings, checked=checked, pinned=pinned),
        )
        found = Assembly(catalog, read, checked=verify == "full")
        return {entry.path: found.tensor(entry) for entry in wanted}

    def many(self, wanted: Sequence[tuple[SavedModel, str]]) -> list[torch.Tensor]:
        """Return tensors of several models, as (model, path), verified, in one query of chunks.

        Raises:
            TensorNotFound, CorruptTensor
        """
        found = [(self.catalog(model), path) for model, path in wanted]
        entries = [(catalog, catalog.select([path])[0]) for catalog, path in found]
        encodings = {
            holder: catalog.encoding(holder)
            for catalog, entry in entries
            if (holder := catalog.holder(entry)) is not None
        }
        distinct = list(encodings.values())
        read = self._read(
            [catalog for catalog, _ in entries],
            distinct,
            lambda c: read_tensors(c, distinct, checked=encodings),
        )
        return [Assembly(c, read, checked=True).tensor(entry).clone() for c, entry in entries]

    def rows(
        self, model: SavedModel, path: str, lo: int, hi: int | None, *, verify: Verify = "full"
    ) -> torch.Tensor:
        """Return rows lo..hi of a tensor, (hi - lo, ...), and read no chunk that has none of them.

        Raises:
            TensorNotFound: no such path, or the rows are not there.
            CorruptTensor
        """
        return self.rows_of(model, {path: (lo, hi)}, verify=verify)[path]

    def rows_of(
        self,
        model: SavedModel,
        wanted: Mapping[str, tuple[int, int | None]],
        *,
        verify: Verify = "full",
    ) -> dict[str, torch.Tensor]:
        """Return rows lo..hi of several tensors, given by path, in one query; see `rows`.

        Raises:
            TensorNotFound, CorruptTensor
        """
        catalog = self.catalog(model)
        found: dict[str, torch.Tensor] = {}
        spans: dict[str, Span] = {}
        for entry in catalog.select(wanted):
            lo, hi = wanted[entry.path]
            end = _row_end(model, entry, lo, hi)
            row = math.prod(entry.shape[1:]) * _dtype(entry).itemsize
            holder = catalog.holder(entry)
            if catalog.first(entry).layout is not None:
                whole = self.tensors(model, [entry.path], verify=verify)[entry.path]
                found[entry.path] = whole[lo:end].clone()
            elif holder is None or lo == end:
                found[entry.path] = torch.empty((end - lo, *entry.shape[1:]), dtype=_dtype(entry))
            else:
                start = catalog.offset(entry) + lo * row
                spans[entry.path] = Span(catalog.encoding(holder), start, start + (end - lo) * row)
        read = self._read(
            [catalog],
            [span.encoding for span in spans.values()],
            lambda c: read_spans(c, list(spans.values()), checked=verify != "none"),
            sum(span.stop - span.start for span in spans.values()),
        )
        for (path, data), entry in zip(
            zip(spans, read, strict=True), catalog.select(spans), strict=True
        ):
            rows = torch.from_numpy(data.copy()).view(_dtype(entry))
            found[path] = rows.reshape(-1, *entry.shape[1:])
        return found

    def _read(
        self,
        catalogs: Sequence[TensorLocations],
        encodings: Sequence[ChunkLayout],
        work: Callable[[Connection], _Result],
        size: int | None = None,
    ) -> _Result:
        """Return what `work` reads of encodings of some models; `size`: bytes, all if left out."""

        def attempt(connection: Connection) -> _Result:
            try:
                return work(connection)
            except BadTensor as error:
                owners = [c for c in catalogs if error.tensor_id in c.encodings]
                raise self._explain(connection, owners[0], error) from error

        model_ids = {catalog.model.model_id for catalog in catalogs}
        total = sum(e.byte_count for e in encodings) if size is None else size
        return self.source.read(attempt, model_ids=model_ids, size=total)

    def _explain(
        self, connection: Connection, catalog: TensorLocations, error: BadTensor
    ) -> StoreError | ModelNotFound:
        """Return the error that names model, path and chunk, or says that the model is gone."""
        if is_collected(connection, catalog.model):
            self.kept.forget(catalog.model.model_id)
            return gone(catalog.model)
        if error.ordinal is None:
            error = find_bad_chunk(connection, catalog.encoding(error.tensor_id))
        where = catalog.where(error.tensor_id, error.ordinal)
        chunk = "" if error.ordinal is None else f", chunk {error.ordinal}"
        return CorruptTensor(f"Model {catalog.model.reference}, {where}{chunk}: {error.reason}.")


def load_tensors(
    connection: Connection,
    model: SavedModel,
    paths: Collection[str] | None = None,
    *,
    verify: Verify = "full",
) -> dict[str, torch.Tensor]:
    """Return a model's tensors; see `ModelReader.tensors`."""
    return ModelReader(connection).tensors(model, paths, verify=verify)


#: Hashes of parameters that have not been written to since: (torch's count of writes, hash).
_hashes: WeakIdKeyDictionary = WeakIdKeyDictionary()


def shared_with(entries: Sequence[StoredEntry], base: nn.Module) -> dict[str, torch.Tensor]:
    """Return the frozen parameters of a model that a module has at the same paths, bit for bit.

    They have the module's memory; what is tied in the model stays so.
    """
    own = dict(base.named_parameters(remove_duplicate=False))
    found: dict[str, torch.Tensor] = {}
    for entry in entries:
        if entry.tied_to is not None:
            first = entries[entry.tied_to].path
            if first in found:
                found[entry.path] = found[first]
        elif entry.kind == "parameter" and not entry.trainable and entry.layout is None:
            there = own.get(entry.path)
            form = None if there is None else (dtype_name(there.dtype), tuple(there.shape))
            if there is not None and form == (entry.dtype, entry.shape):
                if _hash_once(there) == entry.tensor_hash:
                    found[entry.path] = there.detach()
    return found


def _hash_once(parameter: nn.Parameter) -> bytes:
    written = None if parameter.is_inference() else parameter._version
    known: tuple[int | None, bytes] = _hashes.get(parameter, (None, b""))
    if written is None or known[0] != written:
        known = _hashes[parameter] = (written, hash_of(parameter))
    return known[1]


def read_many(connection: Connection, wanted: Iterable[tuple[str, str]]) -> list[torch.Tensor]:
    """Return tensors of several models, as (reference, path); see `ModelReader.many`."""
    found = [(find_model(connection, model), path) for model, path in wanted]
    return ModelReader(connection).many(found)


def _dtype(entry: StoredEntry) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, entry.dtype)
    return dtype


def _row_end(model: SavedModel, entry: StoredEntry, lo: int, hi: int | None) -> int:
    rows = entry.shape[0] if entry.shape else 0
    end = rows if hi is None else hi
    if not entry.shape or not 0 <= lo <= end <= rows:
        raise TensorNotFound(
            f"Tensor {entry.path!r} of model {model.reference} has {rows} rows, not {lo} to {end}."
        )
    return end


def _is_checked(verify: Verify, position: int) -> bool:
    return verify == "full" or (verify == "sampled" and position % SAMPLED_EVERY == 0)
