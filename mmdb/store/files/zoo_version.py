"""The tensors of one version in a zoo's folder: how they are listed, checked and read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from mmdb.errors import FileDamaged
from mmdb.store.content import DTYPES
from mmdb.store.entries import Contents, Entry, view_of

_HASH = re.compile(r"[0-9a-f]{64}")
_STATE_DICT = ("parameter", "buffer")
_KINDS = (*_STATE_DICT, "storage", "transient")

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class HashedEntry:
    """An entry of a model with the hash of its tensor, in hexadecimal."""

    entry: Entry
    hash: str


def objects(value: object) -> list[dict[str, Any]] | None:
    """Return a list of JSON objects, or None if it is none."""
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return value
    return None


def tensor_json(tensor: HashedEntry) -> dict[str, Any]:
    """Return what `parse_tensors` reads."""
    entry = tensor.entry
    value = {
        "path": entry.path,
        "dtype": entry.dtype,
        "shape": list(entry.shape),
        "kind": entry.kind,
        "trainable": entry.trainable,
        "tied_to": entry.tied_to,
        "layout": None if entry.layout is None else dict(entry.layout),
        "hash": tensor.hash,
    }
    return {key: item for key, item in value.items() if item is not None}


def parse_tensors(path: Path, listed: Sequence[Mapping[str, Any]]) -> list[HashedEntry]:
    """Return the tensors that a file of anybody's lists.

    Raises:
        FileDamaged
    """
    tensors = [_parse(path, ordinal, row) for ordinal, row in enumerate(listed)]
    _check_links(path, [tensor.entry for tensor in tensors])
    return tensors


def _parse(path: Path, ordinal: int, row: Mapping[str, Any]) -> HashedEntry:
    shape, layout, tied_to = row.get("shape"), row.get("layout"), row.get("tied_to")
    name, where, dtype = row.get("hash"), row.get("path"), DTYPES.get(str(row.get("dtype")))
    if not (
        isinstance(where, str)
        and "\0" not in where
        and dtype is not None
        and isinstance(shape, list)
        and all(map(_is_size, shape))
        and row.get("kind") in _KINDS
        and isinstance(row.get("trainable"), bool)
        and (tied_to is None or _is_size(tied_to))
        and (layout is None or _is_layout(layout, len(shape)))
        and isinstance(name, str)
        and _HASH.fullmatch(name)
    ):
        raise FileDamaged(f"{path}: tensor {ordinal} is not well formed.")
    entry = Entry(
        ordinal=ordinal,
        path=where,
        dtype=row["dtype"],
        shape=tuple(shape),
        byte_count=math.prod(shape) * dtype.itemsize,
        kind=row["kind"],
        trainable=row["trainable"],
        tied_to=tied_to,
        layout=layout,
    )
    return HashedEntry(entry, name)


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**48


def _is_layout(value: object, dimensions: int) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"storage", "offset", "stride"}
        and _is_size(value["storage"])
        and _is_size(value["offset"])
        and isinstance(value["stride"], list)
        and len(value["stride"]) == dimensions
        and all(map(_is_size, value["stride"]))
    )


def _check_links(path: Path, entries: Sequence[Entry]) -> None:
    """Raise where a tie or view leads to no entry that it can be, or a path comes twice."""
    for entry in entries:
        first = entry.ordinal if entry.tied_to is None else entry.tied_to
        place = first if entry.layout is None else entry.layout["storage"]
        if not (
            first < len(entries)
            and entries[first].tied_to is None
            and (entries[first].dtype, entries[first].shape) == (entry.dtype, entry.shape)
            and place < len(entries)
            and (entry.layout is None or entries[place].kind == "storage")
            and (entry.kind != "storage" or (entry.dtype == "uint8" and len(entry.shape) == 1))
        ):
            raise FileDamaged(f"{path}: {entry.path!r} shares the memory of no such tensor.")
    paths = [entry.path for entry in entries if entry.kind != "storage"]
    if len(set(paths)) < len(paths):
        raise FileDamaged(f"{path} lists a path twice.")


# -- reading --------------------------------------------------------------------


def lazy_contents(
    path: Path, tensors: Sequence[HashedEntry], read: Callable[[str, Entry], torch.Tensor]
) -> Contents:
    """Return what there is to save of a version; `read` is called for each tensor when it is used.

    Args:
        path: of the file that lists the tensors, for errors.
        read: takes a tensor's hash and entry.
    """

    def tensor(ordinal: int) -> torch.Tensor:
        entry = tensors[ordinal].entry
        if entry.layout is None:
            return read(tensors[ordinal].hash, entry)
        try:
            return view_of(entry, tensor(entry.layout["storage"]))
        except RuntimeError as error:  # torch checks the bounds
            raise FileDamaged(f"{path}: {entry.path!r} leaves the memory it shares.") from error

    entries = [tensor.entry for tensor in tensors]
    return Contents(
        entries,
        _OnAccess({e.path: e.ordinal for e in entries if e.kind in _STATE_DICT}, tensor),
        _OnAccess({e.ordinal: e.ordinal for e in entries if e.kind == "storage"}, tensor),
        _OnAccess({e.path: e.ordinal for e in entries if e.kind == "transient"}, tensor),
    )


class _OnAccess(Mapping[Key, torch.Tensor]):
    """Tensors by path or by ordinal that are read on access."""

    def __init__(self, ordinals: Mapping[Key, int], read: Callable[[int], torch.Tensor]) -> None:
        self._ordinals, self._read = ordinals, read

    def __getitem__(self, key: Key) -> torch.Tensor:
        return self._read(self._ordinals[key])

    def __iter__(self) -> Iterator[Key]:
        return iter(self._ordinals)

    def __len__(self) -> int:
        return len(self._ordinals)
