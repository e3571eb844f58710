"""A whole zoo as a folder of plain files, each tensor in it once.

    zoo.json                        every version: name, parent, metrics, tags, notes, definition;
                                    and where the aliases are
    models/NAME-HASH/VERSION.json   a version's tensors: path, dtype, shape, and the hash of each
    tensors/HASH.safetensors        tensors by their hash; what a version added is one file
    datasets/HASH.json              columns, transforms and labels of the dataset of some content

A dtype that safetensors lacks is there as its bytes. File names are made from model names, and
never taken from a file.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import blake3
import torch

from mmdb.errors import FileDamaged, FileExists, FileNotRead
from mmdb.store.files.atomic import replacing, sync_folder, writing
from mmdb.store.files.huggingface_format import read_json, write_json
from mmdb.store.files.lazy import LazyTensors
from mmdb.store.files.safetensors_format import open_safetensors, write_safetensors
from mmdb.store.tensors.state_entries import Entry, ModuleContents, view_of
from mmdb.store.tensors.tensor_bytes import DTYPES

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
) -> ModuleContents:
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
    return ModuleContents(
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


MANIFEST = "zoo.json"
FORMAT = 1
Version = tuple[str, int]  # a model's name and version


class ZooFolder:
    """The files of a zoo. Only one process writes to a folder at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._models, self._tensors = folder / "models", folder / "tensors"
        self._files: dict[Path, LazyTensors] = {}
        self._place: dict[str, Path] = {}  # hash -> file

    @classmethod
    def open(cls, folder: Path) -> ZooFolder:
        """Return a zoo that is there.

        Raises:
            FileNotRead, FileDamaged
        """
        if not (folder / MANIFEST).is_file():
            raise FileNotRead(
                f"{folder} holds no {MANIFEST}.",
                hint="Point to a folder that `mmdb export --all` wrote.",
            )
        zoo = cls(folder)
        zoo._scan()
        return zoo

    @classmethod
    def create(cls, folder: Path) -> ZooFolder:
        """Return a zoo to write into: one that is there, or a new or empty folder.

        Raises:
            FileExists: the folder holds other files.
            FileNotWritten, FileDamaged
        """
        if (folder / MANIFEST).is_file():
            return cls.open(folder)
        if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
            raise FileExists(
                f"{folder} is there already and is no zoo.", hint="Choose an empty or a new folder."
            )
        zoo = cls(folder)
        with writing(folder):
            for path in (folder, zoo._models, zoo._tensors):
                path.mkdir(exist_ok=True)
        write_json(folder / MANIFEST, {"format": FORMAT, "models": [], "aliases": []})
        return zoo

    # -- the manifest -----------------------------------------------------------

    def manifest(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the versions, as they were saved, and the aliases.

        Raises:
            FileDamaged
        """
        path = self.folder / MANIFEST
        found = read_json(path)
        if found.get("format") != FORMAT:
            raise FileDamaged(f"{path} is of a format that this version of mmdb does not know.")
        models, aliases = objects(found.get("models")), objects(found.get("aliases"))
        if models is None or aliases is None:
            raise FileDamaged(f"{path} does not list models and aliases.")
        for row in models:
            parent = row.get("parent")
            if not _is_version(row) or not (parent is None or _is_version(parent)):
                raise FileDamaged(f"{path} lists a model without name, version or weights_hash.")
        for row in aliases:
            if not (
                isinstance(row.get("model"), str)
                and isinstance(row.get("alias"), str)
                and type(row.get("version")) is int
            ):
                raise FileDamaged(f"{path} lists an alias without model, alias or version.")
        return models, aliases

    def write_manifest(
        self, models: Sequence[Mapping[str, Any]], aliases: Sequence[Mapping[str, Any]]
    ) -> None:
        """Replace the manifest; what it does not list does not belong to the zoo."""
        value = {"format": FORMAT, "models": list(models), "aliases": list(aliases)}
        write_json(self.folder / MANIFEST, value)

    # -- versions ---------------------------------------------------------------

    def version_file(self, version: Version) -> Path:
        """Return where the tensors of a version are listed."""
        return self._models / folder_name(version[0]) / f"{version[1]}.json"

    def write_version(
        self, version: Version, weights_hash: str, tensors: Sequence[HashedEntry]
    ) -> None:
        """List the tensors of a version."""
        path = self.version_file(version)
        with writing(path):
            path.parent.mkdir(exist_ok=True)
        listed = [tensor_json(tensor) for tensor in tensors]
        about = {"model": version[0], "version": version[1], "weights_hash": weights_hash}
        write_json(path, {**about, "tensors": listed})
        sync_folder(self._models)

    def weights_hash(self, version: Version) -> str | None:
        """Return what names the weights of a version, or None where its file is not there."""
        path = self.version_file(version)
        return str(read_json(path).get("weights_hash")) if path.is_file() else None

    def contents(self, version: Version) -> ModuleContents:
        """Return what there is to save of a version; its tensors are read as they are asked for.

        Raises:
            FileNotRead, FileDamaged
        """
        path = self.version_file(version)
        listed = objects(read_json(path).get("tensors"))
        if listed is None:
            raise FileDamaged(f"{path} does not list tensors.")
        return lazy_contents(path, parse_tensors(path, listed), self.read)

    # -- what rows become -------------------------------------------------------

    def put_form(self, form: Mapping[str, Any] | None) -> str | None:
        """Write the form of a dataset unless it is there; return its content hash."""
        if form is None:
            return None
        path = self.folder / "datasets" / f"{form['content_hash']}.json"
        with writing(path):
            path.parent.mkdir(exist_ok=True)
        if not path.is_file():
            write_json(path, form)
        return str(form["content_hash"])

    def form(self, content_hash: object) -> dict[str, Any] | None:
        """Return the form of a dataset by its content hash.

        Raises:
            FileDamaged, FileNotRead
        """
        if content_hash is None:
            return None
        if not isinstance(content_hash, str) or not _HASH.fullmatch(content_hash):
            raise FileDamaged(f"{self.folder} names no dataset by {content_hash!r}.")
        return read_json(self.folder / "datasets" / f"{content_hash}.json")

    # -- tensors ----------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Return whether a tensor is there, by its hash."""
        return name in self._place

    def add_tensors(self, tensors: LazyTensors) -> int:
        """Write tensors, named by their hashes, into a new file; return its bytes."""
        if not tensors:
            return 0
        name = blake3.blake3("".join(sorted(tensors)).encode()).hexdigest()[:32]
        path = self._tensors / f"{name}.safetensors"
        with replacing(path, overwrite=True) as file:
            written = write_safetensors(file, tensors)
        self._add(path)
        return written

    def read(self, name: str, entry: Entry) -> torch.Tensor:
        """Return a tensor by its hash; whether it is the right one is seen when it is stored.

        Raises:
            FileDamaged, FileNotRead
        """
        if name not in self._place:
            raise FileDamaged(f"{self._tensors} lacks tensor {name} ({entry.path!r}).")
        path = self._place[name]
        tensor, dtype = self._files[path][name], DTYPES[entry.dtype]
        if tensor.dtype == torch.uint8 != dtype and tensor.numel() == entry.byte_count:
            return tensor.view(dtype).reshape(entry.shape)
        if tensor.dtype != dtype or tuple(tensor.shape) != entry.shape:
            raise FileDamaged(f"Tensor {name} in {path} is not of the dtype and shape listed.")
        return tensor

    def _scan(self) -> None:
        for path in sorted(self._tensors.glob("*.safetensors")):
            self._add(path)

    def _add(self, path: Path) -> None:
        self._files[path] = open_safetensors(path)
        self._place |= {name: path for name in self._files[path]}


def folder_name(model: str) -> str:
    """Return a file name for a model of any name, on any file system; no two share one.

    >>> folder_name("a/b").rpartition("-")[0], folder_name("Netz 🦒").rpartition("-")[0]
    ('a%2Fb', 'Netz%20%F0%9F%A6%92')
    """
    readable = quote(model, safe="").replace(".", "%2E")[:80]
    return f"{readable}-{blake3.blake3(model.encode()).hexdigest()[:16]}"


def _is_version(row: object) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("name"), str)
        and type(row.get("version")) is int
        and 0 < row["version"] < 2**31
        and isinstance(row.get("weights_hash"), str)
        and bool(_HASH.fullmatch(row["weights_hash"]))
    )
