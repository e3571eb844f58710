"""Where the tensors of a model lie: alone, in its pack, or as views of shared memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import CorruptTensor, ModelNotFound, NotReplayable, TensorNotFound
from mmdb.store.models.model_rows import SavedModel, StoredEntry, find_entries, is_listed
from mmdb.store.tensors.reading import ChunkLayout, find_encodings, holds
from mmdb.store.tensors.state_entries import layout_of_pack, view_of
from mmdb.store.tensors.tensor_bytes import DTYPES, hash_of, tensor_hash

#: Paths that an error names; a pack may hold thousands.
_NAMED = 5


class TensorLocations:
    """A model's entries with the encodings that hold their bytes."""

    def __init__(
        self,
        model: SavedModel,
        entries: Sequence[StoredEntry],
        encodings: Mapping[int, ChunkLayout],
    ) -> None:
        self.model, self.entries, self.encodings = model, entries, encodings
        self._by_path = {e.path: e for e in entries if e.kind != "storage"}
        self._offsets: Mapping[int, int] = {}
        if model.pack_id is not None:
            self._offsets = layout_of_pack(entries).offsets

    @classmethod
    def read(cls, connection: Connection, model: SavedModel) -> TensorLocations:
        """Return the catalog of a model, in two queries.

        Raises:
            ModelNotFound
            CorruptTensor: its list of tensors is not the one that was saved.
        """
        entries = find_entries(connection, model.model_id)
        is_whole = model.manifest_id is None or is_listed(model, entries)
        if not (entries and is_whole) and is_collected(connection, model):
            raise gone(model)
        for position, entry in enumerate(entries):
            if reason := _find_fault(entries, position):
                raise CorruptTensor(f"Model {model.reference}, tensor {entry.path!r}: {reason}.")
        if not is_whole:
            raise CorruptTensor(f"Model {model.reference}: its list of tensors changed.")
        holders = {e.tensor_id for e in entries}
        if model.pack_id is not None:
            holders.add(model.pack_id)
        return cls(model, entries, find_encodings(connection, holders))

    @property
    def size_bytes(self) -> int:
        """Bytes of memory that it takes, about."""
        text = sum(len(entry.path) for entry in self.entries)
        return 600 * len(self.entries) + 400 * len(self.encodings) + text

    def select(self, paths: Collection[str] | None) -> list[StoredEntry]:
        """Return the entries of some paths, or of all.

        Raises:
            TensorNotFound
            NotReplayable: the model is kept as a recipe.
        """
        if self.model.manifest_id is None:
            raise NotReplayable(
                f"Model {self.model.reference} is kept as a recipe: no tensor of it is stored.",
                hint="Database.recover makes it again; its state_dict() has the tensors.",
            )
        if paths is None:
            return list(self._by_path.values())
        for path in paths:
            if path not in self._by_path:
                raise TensorNotFound(f"Model {self.model.reference} has no tensor {path!r}.")
        return [self._by_path[path] for path in paths]

    def first(self, entry: StoredEntry) -> StoredEntry:
        """Return the entry that a tied one is the same tensor as, or itself."""
        return entry if entry.tied_to is None else self.entries[entry.tied_to]

    def holder(self, entry: StoredEntry) -> int | None:
        """Return the tensor whose chunks hold an entry's bytes; None for an empty tensor."""
        own = self.first(entry)
        if own.layout is not None:
            return self.holder(self.entries[own.layout["storage"]])
        if not own.byte_count:
            return None
        return self.model.pack_id if own.ordinal in self._offsets else own.tensor_id

    def encoding(self, holder: int) -> ChunkLayout:
        """Return how a holder lies in its chunks.

        Raises:
            CorruptTensor: it is not there.
        """
        if holder not in self.encodings:
            where = self.where(holder)
            raise CorruptTensor(f"Model {self.model.reference}, {where}: its chunks are missing.")
        return self.encodings[holder]

    def where(self, holder: int, ordinal: int | None = None) -> str:
        """Return in words the tensors whose bytes a holder has, or one of its chunks."""
        held = [e for e in self.entries if e.kind != "storage" and self.holder(e) == holder]
        there = [e for e in held if ordinal is None or self._reaches(e, holder, ordinal)]
        paths = [repr(entry.path) for entry in there or held]
        if len(paths) == 1:
            return f"tensor {paths[0]}"
        others = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        return f"tensors {', '.join(paths[:_NAMED])}{others}, which lie together"

    def _reaches(self, entry: StoredEntry, holder: int, ordinal: int) -> bool:
        """Return whether an entry has bytes in a chunk of its holder; a view may have."""
        if self.first(entry).layout is not None or holder not in self.encodings:
            return True
        size, start = self.encodings[holder].chunk_bytes, self.offset(entry)
        return start < (ordinal + 1) * size and ordinal * size < start + entry.byte_count

    def offset(self, entry: StoredEntry) -> int:
        """Return an entry's first byte in its holder."""
        return self._offsets.get(self.first(entry).ordinal, 0)


def _find_fault(entries: Sequence[StoredEntry], position: int) -> str:
    """Return why the row of an entry cannot be one that was written; no memory is made for it."""
    entry = entries[position]
    dtype = DTYPES.get(entry.dtype)
    if dtype is None or not holds(dtype, entry.shape, entry.byte_count):
        return "its dtype, shape and bytes do not belong together"
    if entry.ordinal != position:
        return "an entry before it is missing"
    if entry.tied_to is not None:
        first = entries[entry.tied_to] if 0 <= entry.tied_to < len(entries) else entry
        if first.tied_to is not None or first.tensor_hash != entry.tensor_hash:
            return "it is not the tensor that it is tied to"
    if entry.layout is not None and not _is_view(entries, entry, dtype.itemsize):
        return "it is no view of its storage"
    return ""


def _is_view(entries: Sequence[StoredEntry], entry: StoredEntry, itemsize: int) -> bool:
    """Return whether all elements of a view lie in its storage."""
    match entry.layout:
        case {"storage": int(place), "offset": int(offset), "stride": [*stride]}:
            pass
        case _:
            return False
    if len(stride) != len(entry.shape) or not all(isinstance(s, int) and s >= 0 for s in stride):
        return False
    if not 0 <= place < len(entries) or offset < 0 or offset % itemsize:
        return False
    reach = sum((n - 1) * s for n, s in zip(entry.shape, stride, strict=True))
    storage = entries[place]
    is_within = offset + (reach + 1) * itemsize <= storage.byte_count
    return storage.kind == "storage" and storage.layout is None and is_within


class Assembly:
    """Tensors of a model out of the tensors that hold their bytes."""

    def __init__(
        self, catalog: TensorLocations, read: Mapping[int, torch.Tensor], *, checked: bool
    ) -> None:
        self._catalog, self._read, self._checked = catalog, read, checked
        self._made: dict[int, torch.Tensor] = {}
        self._given: set[int] = set()

    def tensor(self, entry: StoredEntry) -> torch.Tensor:
        """Return an entry's tensor; entries that are tied get the very same one."""
        own = self._catalog.first(entry)
        if own.ordinal not in self._made:
            self._made[own.ordinal] = self._make(own)
        return self._made[own.ordinal]

    def _make(self, entry: StoredEntry) -> torch.Tensor:
        holder = self._catalog.holder(entry)
        if entry.layout is None and holder is not None and holder == entry.tensor_id:
            # Equal tensors are stored once, but they are not one: each gets memory of its own.
            given = holder in self._given
            self._given.add(holder)
            return self._read[holder].clone() if given else self._read[holder]
        if entry.layout is not None:
            tensor = view_of(entry, self.tensor(self._catalog.entries[entry.layout["storage"]]))
        elif holder is None:
            tensor = torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
        else:
            start = self._catalog.offset(entry)
            piece = self._read[holder][start : start + entry.byte_count].clone()
            if len(piece) != entry.byte_count:
                raise self._wrong(entry, "the pack ends before it")
            tensor = piece.view(DTYPES[entry.dtype]).reshape(entry.shape)
            if self._checked:
                self._check(entry, tensor_hash(entry.dtype, entry.shape, piece.numpy()))
            return tensor
        if self._checked:
            self._check(entry, hash_of(tensor))
        return tensor

    def _check(self, entry: StoredEntry, found: bytes) -> None:
        if found != entry.tensor_hash:
            raise self._wrong(entry, "its bytes are not those of its hash")

    def _wrong(self, entry: StoredEntry, reason: str) -> CorruptTensor:
        where = f"Model {self._catalog.model.reference}, tensor {entry.path!r}"
        return CorruptTensor(f"{where}: {reason}.")


def is_collected(connection: Connection, model: SavedModel) -> bool:
    """Return whether a model was dropped, and `gc` has begun to free what it held."""
    rows = connection.rows(load("models").find_model, model_id=model.model_id)
    return not rows or rows[0]["manifest_id"] != model.manifest_id


def gone(model: SavedModel) -> ModelNotFound:
    """Return the error for a model whose tensors `gc` has deleted."""
    return ModelNotFound(f"Model {model.reference} was dropped, and its tensors are deleted.")
