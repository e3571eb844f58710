"""Models from files of other programs, and back into them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import blake3
import torch
from torch import nn

from mmdb.data.functions import find_tokenizer, keep_tokenizer
from mmdb.data.names import check_name
from mmdb.data.tokenizer_json import read_tokenizer
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import FunctionFailed, FunctionNotFound, ImportMismatch, NotReplayable
from mmdb.store.files.description import Description
from mmdb.store.files.formats import Format, format_of_source, open_tensors, write_tensors
from mmdb.store.files.huggingface_format import SHARD_BYTES
from mmdb.store.files.lazy import LazyTensors, Spec
from mmdb.store.files.safetensors_format import OWN_KEY
from mmdb.store.models.model_rows import (
    SavedModel,
    add_origin,
    find_entries,
    find_model,
    model_of,
    of_file,
)
from mmdb.store.models.recover import ModelReader
from mmdb.store.models.registry import TAG_BYTES
from mmdb.store.models.save import About, save_model
from mmdb.store.tensors.state_entries import Entry, ModuleContents, contents_of
from mmdb.store.tensors.tensor_bytes import DTYPES, hash_of

_Q = load("exchange")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair, which is no text
#: Tag under which the config.json of an imported folder is kept.
CONFIG_TAG = "huggingface.config"
#: Tag that names the tokenizer that came with an imported folder.
TOKENIZER_TAG = "huggingface.tokenizer"
#: Tags under which JSON files of an imported folder are kept, by the files' keys in its metadata.
TAGS = {"config": CONFIG_TAG, "preprocessor": "huggingface.preprocessor_config"}

#: Returns what tensors of a file are, with those that their network ties, and notes on it.
Describe = Callable[[LazyTensors], tuple[LazyTensors, About | None, tuple[str, ...]]]
#: Makes the tensors of a model of which only the recipe is kept.
Replay = Callable[[Connection, SavedModel], nn.Module | Mapping[str, torch.Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A model out of a file."""

    model: str  # name@version
    approach: str
    tensors: int
    stored_bytes: int
    seconds: float
    notes: tuple[str, ...]  # what was decided on the way, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A model in a file."""

    model: str  # name@version
    target: str
    format: str
    tensors: int
    bytes: int
    notes: tuple[str, ...]


# -- into the database --------------------------------------------------------


def import_model(
    connection: Connection,
    source: str | os.PathLike[str],
    name: str,
    *,
    parent: str | None = None,
    approach: str = "auto",
    format: Format | Literal["auto"] = "auto",
    key: str | None = None,
    skip: bool = False,
    describe: Describe | None = None,
    opened: LazyTensors | None = None,
) -> Imported:
    """Save the tensors of a file or folder as the next version of a model.

    What `export_model` wrote beside them comes back too: definition, metrics, tags and notes; and
    the tensors are compared with those that were exported. Nothing of the source is run.

    Args:
        parent, approach: see `save_model`.
        format, key, skip: see `open_tensors`.
        opened: the source's tensors, where it does not hold all of them.
        describe: says what the tensors are, where the file does not say it in mmdb's own words.
    Raises:
        FileNotRead, FileDamaged, UnsafeFile, UnsupportedContent, ImportMismatch
        InvalidName, InvalidOption, ModelNotFound, NoParent
    """
    check_name(name)
    tensors = opened or open_tensors(source, format=format, key=key, skip=skip)
    own: Mapping[str, Any] = tensors.metadata.get(OWN_KEY, {})
    description = Description.parse(own, source)
    known = None
    if describe is not None and description.definition is None:
        tensors, known, more = describe(tensors)
        tensors.notes += more
    notes = list(tensors.notes)
    for kept, tag in TAGS.items():
        value = tensors.metadata.get(kept)
        if value and tag not in description.tags:
            text = json.dumps(value, ensure_ascii=False)
            is_text = "\\u0000" not in text and not _SURROGATE.search(text)
            if is_text and len(text.encode()) <= TAG_BYTES:
                description = replace(description, tags={**description.tags, tag: text})
            elif known is None:  # else what builds the model holds it
                notes.append(f"{tag.split('.')[1]}.json was not kept: it is too long, or has a NUL")
    origin = of_file(source, format_of_source(Path(source)) if format == "auto" else format)
    tokenizer_json: str | None = tensors.metadata.get("tokenizer")
    if tokenizer_json is not None:
        try:
            read_tokenizer(name, tokenizer_json)
        except FunctionFailed as error:  # texts become tokens elsewhere, or not at all
            notes.append(f"tokenizer.json was not kept: {error.message}")
            tokenizer_json = None
    with connection.transaction():
        if tokenizer_json is not None:
            tokenizer = keep_tokenizer(connection, name, tokenizer_json)
            description = replace(description, tags={**description.tags, TOKENIZER_TAG: tokenizer})
        saved = save_model(
            connection,
            name,
            _contents(tensors, own),
            parent=parent,
            approach=approach,
            about=_about(description.about(connection), known),
        )
        model = model_of(connection, saved.model_id)
        entries = find_entries(connection, saved.model_id)
        found = state_hash((e, e.tensor_hash) for e in entries)
        if own.get("state_hash", found.hex()) != found.hex():
            raise ImportMismatch(f"The tensors of {source} are not those of {own.get('model')!r}.")
        description.add_to(connection, model)
        add_origin(connection, saved.model_id, origin)
    return Imported(
        model=model.reference,
        approach=saved.approach,
        tensors=len(tensors),
        stored_bytes=saved.stored_bytes,
        seconds=saved.seconds,
        notes=tuple(notes),
    )


def _about(said: About, known: About | None) -> About:
    if known is None:
        return said
    dataset_id = known.dataset_id or said.dataset_id  # of the base, where an adapter came in
    return replace(said, definition=known.definition, trace=known.trace, dataset_id=dataset_id)


def state_hash(entries: Iterable[tuple[Entry, bytes]]) -> bytes:
    """Return BLAKE3-256 over path and hash of each entry of the state dict, in order.

    Unlike the model's weights_hash it leaves out what a file of tensors cannot say: kinds, shared
    memory and transient buffers.
    """
    hasher = blake3.blake3()
    for entry, name in entries:
        if entry.kind in ("parameter", "buffer"):
            hasher.update(json.dumps(entry.path).encode() + name)
    return hasher.digest()


def _contents(tensors: LazyTensors, own: Mapping[str, Any]) -> ModuleContents:
    """Return what there is to save; tensors of a file are read one by one, later."""
    if tensors.is_mapped:
        return contents_of(tensors.all())
    hollow = {
        path: torch.empty(spec.shape, dtype=spec.dtype, device="meta")
        for path, spec in tensors.specs.items()
    }
    entries = contents_of(hollow).entries
    place = {entry.path: entry.ordinal for entry in entries}
    buffers, frozen = _paths(own, "buffers"), _paths(own, "frozen") or frozenset()
    return ModuleContents(
        [
            replace(
                entry,
                kind=_kind(entry, buffers),
                trainable=_kind(entry, buffers) == "parameter" and entry.path not in frozen,
                tied_to=place.get(tensors.tied.get(entry.path, "")),
            )
            for entry in entries
        ],
        tensors,
    )


def _paths(own: Mapping[str, Any], key: str) -> frozenset[str] | None:
    found = own.get(key)
    return frozenset(map(str, found)) if isinstance(found, list) else None


def _kind(entry: Entry, buffers: frozenset[str] | None) -> str:
    if buffers is None:
        return entry.kind
    return "buffer" if entry.path in buffers else "parameter"


# -- out of the database ------------------------------------------------------


def export_model(
    connection: Connection,
    reference: str,
    target: str | os.PathLike[str],
    *,
    format: Format | Literal["auto"] = "auto",
    overwrite: bool = False,
    max_shard_bytes: int = SHARD_BYTES,
    replay: Replay | None = None,
) -> Exported:
    """Write a model's state dict to a file or folder, verified while it is read.

    Args:
        format: told by the target's suffix if "auto"; a name without one is a folder for
            Hugging Face's libraries.
        overwrite: take the place of what is there.
        max_shard_bytes: of a file of such a folder; a larger tensor is a file by itself.
        replay: what makes a model of which only the recipe is kept.
    Raises:
        ModelNotFound, NotReplayable, CorruptTensor
        FileExists, FileNotWritten, UnsupportedContent, InvalidOption
    """
    model = find_model(connection, reference)
    source = open_model(connection, model, replay)
    description = Description.of(connection, model)
    left_out = [entry.path for entry in source.entries if entry.kind == "transient"]
    tensors = state_dict(source)
    written = write_tensors(
        target,
        tensors,
        own=_own(source, description),
        config=known_files(connection, model)["config"],
        tokenizer=_tokenizer(connection, description),
        format=format,
        overwrite=overwrite,
        max_shard_bytes=max_shard_bytes,
    )
    return Exported(
        model=model.reference,
        target=str(written.target),
        format=written.format,
        tensors=len(tensors),
        bytes=written.bytes,
        notes=(f"left out {len(left_out)} buffers that no state dict holds",) if left_out else (),
    )


def _tokenizer(connection: Connection, description: Description) -> str | None:
    """Return the text of the tokenizer.json that came with a model."""
    name = description.tags.get(TOKENIZER_TAG)
    if name is None:
        return None
    try:
        return find_tokenizer(connection, name)[0]
    except (FunctionFailed, FunctionNotFound):  # it came here from another database
        return None


def known_files(connection: Connection, model: SavedModel) -> dict[str, dict[str, Any]]:
    """Return the JSON files of the folder that a model came from, by key of `TAGS`; else empty.

    A config.json too long for a tag is what builds a network of transformers.
    """
    tags = Description.of(connection, model).tags
    found = {key: json.loads(tags.get(tag, "{}")) for key, tag in TAGS.items()}
    if not found["config"] and model.definition is not None:
        arguments = model.definition.architecture.get("arguments")
        given = arguments.get("config") if isinstance(arguments, Mapping) else None
        found["config"] = dict(given) if isinstance(given, Mapping) else {}
    return found


@dataclass(frozen=True, slots=True)
class ExportSource:
    """A model's entries, and what reads their tensors."""

    model: SavedModel
    entries: Sequence[Entry]
    hashes: Mapping[int, bytes]  # by ordinal
    read: Callable[[Sequence[str]], Mapping[str, torch.Tensor]]


def open_model(connection: Connection, model: SavedModel, replay: Replay | None) -> ExportSource:
    """Return a model's entries; tensors are read from the database as they are asked for.

    Raises:
        NotReplayable: only its recipe is kept, and nothing to follow it was given.
    """
    if model.manifest_id is not None:
        reader = ModelReader(connection)
        stored = find_entries(connection, model.model_id)
        hashes = {entry.ordinal: entry.tensor_hash for entry in stored}
        return ExportSource(model, stored, hashes, lambda paths: reader.tensors(model, paths))
    if replay is None:
        raise NotReplayable(
            f"Of model {model.reference} the recipe is kept, not its tensors.",
            hint="Export it with Database.export_model, which follows the recipe first.",
        )
    contents = contents_of(replay(connection, model))
    by_path = {e.path: e for e in contents.entries if e.kind != "storage"}
    return ExportSource(
        model,
        contents.entries,
        {e.ordinal: hash_of(contents.tensor(e)) for e in contents.entries},
        lambda paths: {path: contents.tensor(by_path[path]) for path in paths},
    )


def state_dict(source: ExportSource) -> LazyTensors:
    """Return a model's parameters and persistent buffers; tied ones are read once."""
    entries = [entry for entry in source.entries if entry.kind in ("parameter", "buffer")]
    return LazyTensors(
        {entry.path: Spec(DTYPES[entry.dtype], tuple(entry.shape)) for entry in entries},
        source.read,
        tied={
            entry.path: source.entries[entry.tied_to].path
            for entry in entries
            if entry.tied_to is not None
        },
    )


def _own(source: ExportSource, description: Description) -> dict[str, Any]:
    """Return what goes into the metadata of a file, for `import_model`."""
    model = source.model
    return {
        "format": 1,
        "model": model.name,
        "version": model.version,
        "weights_hash": model.weights_hash.hex(),
        "state_hash": state_hash((e, source.hashes[e.ordinal]) for e in source.entries).hex(),
        **description.json(),
        "buffers": [entry.path for entry in source.entries if entry.kind == "buffer"],
        "frozen": [e.path for e in source.entries if e.kind == "parameter" and not e.trainable],
    }
