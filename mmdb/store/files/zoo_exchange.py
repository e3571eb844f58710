"""A whole zoo out of a database into a folder, and back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import torch

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import AlreadyExists, FileDamaged, FileExists, ImportMismatch, ModelNotFound
from mmdb.store.files.description import Description
from mmdb.store.files.exchange import ExportSource, Replay, open_model
from mmdb.store.files.lazy import LazyTensors, Spec
from mmdb.store.files.safetensors_format import can_hold
from mmdb.store.files.zoo_folder import HashedEntry, Version, ZooFolder
from mmdb.store.models.model_rows import SavedModel, add_origin, model_of, of_file
from mmdb.store.models.registry import set_alias
from mmdb.store.models.save import save_model
from mmdb.store.tensors.state_entries import Entry
from mmdb.store.tensors.tensor_bytes import DTYPES, raw_bytes

_Q = load("exchange")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooExported:
    """A zoo in a folder."""

    folder: str
    added: tuple[str, ...]  # versions, as name@version
    kept: int  # versions that were there
    bytes: int  # of tensors written


@dataclass(slots=True, kw_only=True)
class ZooImported:
    """A zoo out of a folder."""

    added: list[str] = field(default_factory=list)  # versions, as name@version
    kept: int = 0  # versions that were there
    stored_bytes: int = 0
    notes: list[str] = field(default_factory=list)


# -- out of the database --------------------------------------------------------


def export_zoo(
    connection: Connection,
    folder: str | os.PathLike[str],
    names: Sequence[str] | None = None,
    *,
    replay: Replay | None = None,
) -> ZooExported:
    """Write all versions of all models, or of those named, to a folder; see `zoo_folder`.

    A version or a tensor that the folder has is not written again, so that a second call adds
    what is new, and an interrupted one is called again. What is said of models is as of now.

    Args:
        replay: what makes a model of which only the recipe is kept.
    Raises:
        ModelNotFound, NotReplayable, CorruptTensor
        FileExists: the folder is no zoo, or has other weights under a version's name.
        FileNotWritten, FileDamaged
    """
    models = _models(connection, names)
    zoo = ZooFolder.create(Path(folder))
    listed, aliases = zoo.manifest()
    rows = {_key(row): row for row in listed}
    added, written = [], 0
    for model in models:
        version = (model.name, model.version)
        there = zoo.weights_hash(version)
        if there is None:
            written += _write_version(zoo, open_model(connection, model, replay))
            added.append(model.reference)
        elif there != model.weights_hash.hex():
            raise FileExists(
                f"{folder} holds another {model.reference}.", hint="Choose another folder."
            )
        rows[version] = _row(connection, model)
        rows[version]["dataset"] = zoo.put_form(rows[version]["dataset"])
    exported = {model.name for model in models}
    moved = [dict(row) for row in connection.rows(_Q.list_aliases) if row["model"] in exported]
    others = [row for row in aliases if row["model"] not in exported]
    zoo.write_manifest(list(rows.values()), others + moved)
    return ZooExported(
        folder=str(folder), added=tuple(added), kept=len(models) - len(added), bytes=written
    )


def _models(connection: Connection, names: Sequence[str] | None) -> list[SavedModel]:
    found = connection.rows(_Q.list_models, every=names is None, names=list(names or []))
    models = [model_of(connection, row["model_id"]) for row in found]
    missing = set(names or []) - {model.name for model in models}
    if missing:
        raise ModelNotFound(f"There is no model {min(missing)!r}.")
    return models


def _key(row: Mapping[str, Any]) -> Version:
    return row["name"], row["version"]


def _row(connection: Connection, model: SavedModel) -> dict[str, Any]:
    """Return a version's row of the manifest."""
    parents = [
        {**row, "weights_hash": bytes(row["weights_hash"]).hex()}
        for row in connection.rows(_Q.find_parent, model_id=model.model_id)
    ]
    return {
        "name": model.name,
        "version": model.version,
        "weights_hash": model.weights_hash.hex(),
        "parent": parents[0] if parents else None,
        **Description.of(connection, model).json(),
    }


def _write_version(zoo: ZooFolder, source: ExportSource) -> int:
    """Write the tensors that the folder lacks, then the version's list; return their bytes."""
    listed = [HashedEntry(e, source.hashes[e.ordinal].hex()) for e in source.entries]
    wanted = {t.hash: t.entry for t in listed if t.entry.layout is None and not zoo.has(t.hash)}
    written = zoo.add_tensors(_by_hash(source, wanted))
    version = (source.model.name, source.model.version)
    zoo.write_version(version, source.model.weights_hash.hex(), listed)
    return written


def _by_hash(source: ExportSource, wanted: Mapping[str, Entry]) -> LazyTensors:
    """Return tensors by their hash; those that safetensors cannot hold as their bytes."""
    views = {e.layout["storage"]: e for e in reversed(source.entries) if e.layout is not None}

    def read(names: Sequence[str]) -> dict[str, torch.Tensor]:
        paths = {n: _path(wanted[n], views) for n in names}
        tensors = source.read(list(dict.fromkeys(paths.values())))
        return {n: _plain(wanted[n], tensors[path]) for n, path in paths.items()}

    return LazyTensors({name: _spec(entry) for name, entry in wanted.items()}, read)


def _path(entry: Entry, views: Mapping[int, Entry]) -> str:
    """Return the path by which an entry is read: a storage by one of its views."""
    return views[entry.ordinal].path if entry.kind == "storage" else entry.path


def _spec(entry: Entry) -> Spec:
    spec = Spec(DTYPES[entry.dtype], tuple(entry.shape))
    return spec if can_hold(spec) else Spec(torch.uint8, (entry.byte_count,))


def _plain(entry: Entry, tensor: torch.Tensor) -> torch.Tensor:
    if entry.kind == "storage":
        memory = torch.empty(0, dtype=torch.uint8)
        return memory.set_(tensor.untyped_storage(), 0, (entry.byte_count,), (1,))
    spec = Spec.of(tensor)
    return tensor if can_hold(spec) else torch.from_numpy(raw_bytes(tensor))


# -- into the database ----------------------------------------------------------


def import_zoo(connection: Connection, folder: str | os.PathLike[str]) -> ZooImported:
    """Save every version of a zoo's folder under its own name and number, parents first.

    Each version is one transaction, verified by its hash. A version that the database has is left
    as it is, but for tags, metrics and notes that it lacks, and so are aliases: a second call
    changes nothing, and an interrupted one is called again.

    Raises:
        FileNotRead, FileDamaged, ImportMismatch
        AlreadyExists: a version has other weights here; nothing is stored then.
    """
    zoo = ZooFolder.open(Path(folder))
    listed, aliases = zoo.manifest()
    rows = {_key(row): row for row in listed}
    states = {version: _state(connection, row) for version, row in rows.items()}
    imported = ZooImported()
    for version in _in_order(Path(folder), rows):
        reference = f"{version[0]}@{version[1]}"
        row = {**rows[version], "dataset": zoo.form(rows[version].get("dataset"))}
        description = Description.parse(row, f"{folder} ({reference})")
        if states[version] == "dropped":
            imported.notes.append(f"{reference} was dropped here and stays dropped")
        elif states[version] == "there":
            imported.kept += 1
            with connection.transaction():
                description.add_to(connection, _find(connection, version))
        else:
            _add(connection, zoo, rows[version], description, imported)
    imported.notes += _place_aliases(connection, aliases)
    return imported


def _state(connection: Connection, row: Mapping[str, Any]) -> str:
    """Return whether a version is "there", was "dropped", or is "new".

    Raises:
        AlreadyExists
    """
    found = _rows_of(connection, _key(row))
    if not found:
        return "new"
    if found[0]["is_dropped"]:
        return "dropped"
    if bytes(found[0]["weights_hash"]).hex() != row["weights_hash"]:
        raise AlreadyExists(
            f"Model {row['name']}@{row['version']} is here with other weights.",
            hint="Import the folder into another database.",
        )
    return "there"


def _rows_of(connection: Connection, version: Version) -> Sequence[Mapping[str, Any]]:
    return connection.rows(_Q.find_any_version, name=version[0], version=version[1])


def _find(connection: Connection, version: Version) -> SavedModel:
    return model_of(connection, _rows_of(connection, version)[0]["model_id"])


def _in_order(folder: Path, rows: Mapping[Version, Mapping[str, Any]]) -> Iterator[Version]:
    """Yield the versions, each after its parent.

    Raises:
        FileDamaged: a model descends from itself.
    """
    order: TopologicalSorter[Version] = TopologicalSorter()
    for version, row in rows.items():
        parent = row.get("parent")
        order.add(version, *([_key(parent)] if parent and _key(parent) in rows else []))
    try:
        yield from order.static_order()
    except CycleError as error:
        name, number = error.args[1][0]
        raise FileDamaged(f"In {folder}, {name}@{number} descends from itself.") from error


def _add(
    connection: Connection,
    zoo: ZooFolder,
    row: Mapping[str, Any],
    description: Description,
    imported: ZooImported,
) -> None:
    version = _key(row)
    parent = _parent(connection, row, imported)
    with connection.transaction():
        saved = save_model(
            connection,
            version[0],
            zoo.contents(version),
            parent=parent,
            about=description.about(connection),
            version=version[1],
        )
        model = model_of(connection, saved.model_id)
        if model.weights_hash.hex() != row["weights_hash"]:
            raise ImportMismatch(f"The tensors of {saved.reference} in {zoo.folder} have changed.")
        description.add_to(connection, model)
        add_origin(connection, saved.model_id, of_file(zoo.folder, "zoo"))
    imported.added.append(saved.reference)
    imported.stored_bytes += saved.stored_bytes


def _parent(connection: Connection, row: Mapping[str, Any], imported: ZooImported) -> str | None:
    """Return the parent as name@version, if it is here with the weights that it had."""
    parent = row.get("parent")
    if parent is None:
        return None
    found = _rows_of(connection, _key(parent))
    reference = f"{parent['name']}@{parent['version']}"
    if found and not found[0]["is_dropped"]:
        if bytes(found[0]["weights_hash"]).hex() == parent["weights_hash"]:
            return reference
    imported.notes.append(f"{row['name']}@{row['version']} is here without its parent {reference}")
    return None


def _place_aliases(connection: Connection, aliases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Set the aliases that are nowhere yet; return a note for each that is elsewhere."""
    known = connection.rows(_Q.list_aliases)
    there = {(row["model"], row["alias"]): row["version"] for row in known}
    notes = []
    for row in aliases:
        model, alias, version = row["model"], row["alias"], row["version"]
        at = there.get((model, alias))
        found = _rows_of(connection, (model, version))
        if at is None and found and not found[0]["is_dropped"]:
            set_alias(connection, model, version, alias)
        elif at is not None and at != version:
            notes.append(f"{model}@{alias} stays at version {at}; the folder has it at {version}")
    return notes
