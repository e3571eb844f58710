"""A module's tensors as the entries of a manifest: ties, views and buffers told apart. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from mmdb.errors import InputError, UnsupportedTensor
from mmdb.graph.spec.parse import is_adapter
from mmdb.store.tensors.tensor_bytes import (
    PACKED_BELOW,
    PackLayout,
    check_supported,
    dtype_name,
    hash_of,
    pack_layout,
)

#: A view's place in the storage entry that it shares: its ordinal, bytes and elements.
Layout = Mapping[str, Any]  # {"storage": ordinal, "offset": bytes, "stride": [elements]}

#: Buffers that torch's own layers register, told by name where only a state dict is given.
_BUFFERS = {"running_mean", "running_var", "num_batches_tracked"}
#: Views begin on this many bytes in their storage entry, whatever their dtype.
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tensor of a model, before or after it is stored."""

    ordinal: int
    path: str
    dtype: str
    shape: tuple[int, ...]
    byte_count: int
    kind: str = "parameter"
    trainable: bool = True
    tied_to: int | None = None
    layout: Layout | None = None

    @property
    def is_small(self) -> bool:
        """Whether its bytes lie in the model's pack."""
        return self.layout is None and self.byte_count < PACKED_BELOW

    @property
    def structure(self) -> tuple[object, ...]:
        """What two models must agree on, entry by entry, to share a manifest."""
        layout = None if self.layout is None else tuple(sorted(map(str, self.layout.items())))
        return self.path, self.kind, self.trainable, self.tied_to, layout


@dataclass(frozen=True, slots=True)
class ModuleContents:
    """The tensors to be saved, by entry; they may be loaded one by one."""

    entries: list[Entry]
    tensors: Mapping[str, torch.Tensor]
    storages: Mapping[int, torch.Tensor] = field(default_factory=dict)  # ordinal -> uint8 (n,)
    transients: Mapping[str, torch.Tensor] = field(default_factory=dict)
    hashes: Mapping[int, bytes] = field(default_factory=dict)  # ordinal -> of those read already

    def tensor(self, entry: Entry) -> torch.Tensor:
        """Return the tensor of an entry; a mapping that reads a file reads it here."""
        if entry.kind == "storage":
            return self.storages[entry.ordinal]
        return (self.transients if entry.kind == "transient" else self.tensors)[entry.path]


def contents_of(source: nn.Module | Mapping[str, torch.Tensor]) -> ModuleContents:
    """Return what there is to save of a module or a state dict.

    Tensors that share memory are kept shared where `source` is a module or a `dict`; another
    mapping is taken to load each tensor when it is asked for.

    Raises:
        UnsupportedTensor: an entry is not a tensor, or has no shape yet.
        InputError: a path is not text.
    """
    if isinstance(source, nn.Module):
        return _contents_of_module(source)
    if isinstance(source, dict):
        entries = [_entry(k, path, source[path]) for k, path in enumerate(source)]
        return _shared(ModuleContents(entries, source))
    entries, hashes = [], {}
    for k, path in enumerate(source):
        tensor = source[path]  # which may take long: all that is needed of it is taken now
        entries.append(_entry(k, path, tensor))
        hashes[k] = named_hash(path, tensor)
    return ModuleContents(entries, source, hashes=hashes)


def layout_of_pack(entries: Iterable[Entry]) -> PackLayout:
    """Return where a model's small tensors lie in its pack."""
    small = [e for e in entries if e.tied_to is None and e.is_small]
    added = {e.ordinal for e in small if is_adapter(e.path)}
    return pack_layout([(e.ordinal, e.dtype, e.byte_count) for e in small], added)


def named_hash(path: str, tensor: torch.Tensor) -> bytes:
    """Return the hash of a tensor.

    Raises:
        UnsupportedTensor: its bytes cannot be kept; the message names the path.
    """
    try:
        return hash_of(tensor)
    except UnsupportedTensor as error:
        raise UnsupportedTensor(f"{path!r}: {error.message}") from error


def _contents_of_module(module: nn.Module) -> ModuleContents:
    tensors = module.state_dict(keep_vars=True)
    buffers = module.named_buffers(remove_duplicate=False)
    transients = {path: buffer for path, buffer in buffers if path not in tensors}
    entries = [
        _entry(k, path, tensors[path], _kind(tensors[path])) for k, path in enumerate(tensors)
    ]
    entries += [
        _entry(len(entries) + k, path, buffer, "transient")
        for k, (path, buffer) in enumerate(transients.items())
    ]
    return _shared(ModuleContents(entries, tensors, transients=transients))


def _kind(tensor: object) -> str:
    return "parameter" if isinstance(tensor, nn.Parameter) else "buffer"


def _entry(ordinal: int, path: Any, tensor: Any, kind: str | None = None) -> Entry:
    """Return the entry of a tensor; without a kind, one that a state dict alone tells."""
    _check_path(path)
    if not isinstance(tensor, torch.Tensor):
        raise UnsupportedTensor(
            f"{path!r} is a {type(tensor).__name__}, not a tensor.",
            hint="Register what must be kept as a buffer, or leave it out of the state dict.",
        )
    if is_lazy(tensor):
        raise UnsupportedTensor(f"{path!r} has no shape yet.", hint="Call the module once.")
    if tensor.is_nested:  # it has no one shape
        raise UnsupportedTensor(f"{path!r}: A tensor that is nested cannot be kept.")
    if kind is None:
        is_buffer = path.rpartition(".")[2] in _BUFFERS and not isinstance(tensor, nn.Parameter)
        kind = "buffer" if is_buffer else "parameter"
    is_trained = tensor.requires_grad or not isinstance(tensor, nn.Parameter)
    return Entry(
        ordinal=ordinal,
        path=path,
        dtype=dtype_name(tensor.dtype),
        shape=tuple(tensor.shape),
        byte_count=tensor.numel() * tensor.element_size(),
        kind=kind,
        trainable=kind == "parameter" and is_trained,
    )


def _check_path(path: object) -> None:
    if not isinstance(path, str):
        raise InputError(f"{path!r} is a {type(path).__name__}; a tensor's path is text.")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"The path {path!r} holds half a character.") from error


def _shared(contents: ModuleContents) -> ModuleContents:
    """Mark what shares memory: the very same tensor as tied, overlapping views as views."""
    entries = list(contents.entries)
    storages: dict[int, torch.Tensor] = {}
    for group in _by_memory(contents):
        first_of: dict[tuple[object, ...], int] = {}
        for ordinal, tensor in group:
            view = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
            first = first_of.setdefault(view, ordinal)
            if first != ordinal:
                entries[ordinal] = replace(entries[ordinal], tied_to=first)
        distinct = set(first_of.values())
        for views in _overlapping([view for view in group if view[0] in distinct]):
            storage, places = _storage_of([tensor for _, tensor in views])
            place = len(entries)
            for (ordinal, _), layout in zip(views, places, strict=True):
                entries[ordinal] = replace(entries[ordinal], layout={"storage": place, **layout})
            storages[place] = storage
            entries.append(_entry(place, "", storage, "storage"))
    return replace(contents, entries=entries, storages=storages)


_Views = list[tuple[int, torch.Tensor]]  # ordinal, tensor


def _by_memory(contents: ModuleContents) -> Iterator[_Views]:
    """Yield each group of two or more dense tensors in one memory."""
    groups: dict[int, _Views] = {}
    for entry in contents.entries:
        tensor = contents.tensor(entry)
        if tensor.numel() and _is_plain(tensor):
            memory = tensor.untyped_storage().data_ptr()
            groups.setdefault(memory, []).append((entry.ordinal, tensor))
    yield from (group for group in groups.values() if len(group) > 1)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether the tensor's bytes are those of its memory: a lazy conjugate's are not."""
    try:
        check_supported(tensor)
    except UnsupportedTensor:  # as whoever hashes it will say
        return False
    return not tensor.is_conj() and not tensor.is_neg()


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of the storage that a tensor touches, and the one after its last."""
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    first = int(tensor.storage_offset())
    return first * tensor.element_size(), (first + int(reach) + 1) * tensor.element_size()


def _overlapping(views: _Views) -> Iterator[_Views]:
    """Yield the views of one memory that overlap, directly or through others, together."""
    together: _Views = []
    reached = 0
    for start, end, view in sorted(((*_span(v[1]), v) for v in views), key=lambda v: v[:2]):
        if start >= reached:
            if len(together) > 1:
                yield together
            together = []
        together.append(view)
        reached = max(reached, end)
    if len(together) > 1:
        yield together


def _storage_of(tensors: list[torch.Tensor]) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    """Return the bytes that some views cover, uint8 (n,), and each view's place in them."""
    all_spans = [_span(t) for t in tensors]
    low = min(start for start, _ in all_spans) // _ALIGNMENT * _ALIGNMENT
    high = max(end for _, end in all_spans)
    # Two arrays that begin in one place are two storages, of which one may be the shorter.
    memory = max((t.untyped_storage() for t in tensors), key=lambda storage: storage.nbytes())
    storage = torch.empty(0, dtype=torch.uint8, device=tensors[0].device)
    storage.set_(memory, low, (high - low,), (1,))
    places = [
        {"offset": start - low, "stride": list(tensor.stride())}
        for (start, _), tensor in zip(all_spans, tensors, strict=True)
    ]
    return storage, places


def view_of(entry: Entry, storage: torch.Tensor) -> torch.Tensor:
    """Return the view that an entry is of its storage entry's tensor, uint8 (n,)."""
    assert entry.layout is not None
    dtype: torch.dtype = getattr(torch, entry.dtype)
    offset = entry.layout["offset"] // dtype.itemsize
    empty = torch.empty(0, dtype=dtype, device=storage.device)
    return empty.set_(storage.untyped_storage(), offset, entry.shape, entry.layout["stride"])
