"""Adapters from and to folders of peft; an adapter comes in beside the model that it is for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from mmdb.db.connection import Connection
from mmdb.errors import (
    DefinitionMissing,
    ImportMismatch,
    InvalidOption,
    NoParent,
    UnsupportedContent,
)
from mmdb.graph.spec.configuration import ConfiguredNetwork
from mmdb.graph.spec.parse import is_adapter, with_arguments
from mmdb.store.files.atomic import new_folder
from mmdb.store.files.exchange import (
    Exported,
    ExportSource,
    Replay,
    open_model,
    state_dict,
    state_hash,
)
from mmdb.store.files.lazy import LazyTensors
from mmdb.store.files.peft_format import open_peft, write_peft
from mmdb.store.files.safetensors_format import OWN_KEY
from mmdb.store.models.model_rows import SavedModel, find_model

#: In a file's own metadata, the hash of the frozen tensors that an adapter was trained on.
_BASE = "base_hash"


def open_adapter(connection: Connection, folder: Path, base: str | None) -> LazyTensors:
    """Return the tensors of a base with those of a peft folder's adapter, and what builds them.

    Raises:
        NoParent: no base is named. ModelNotFound
        FileNotRead, FileDamaged, UnsupportedContent: as `open_peft`.
        ImportMismatch: mmdb wrote the adapter, for a base with other weights.
        DefinitionMissing: how to build the base is not known. InvalidOption: it has an adapter.
    """
    if base is None:
        raise NoParent(
            f"{folder} holds an adapter.", hint="Name the model that it is for: parent (--parent)."
        )
    model = find_model(connection, base)
    definition = model.definition
    if definition is None or not definition.input_shape:
        raise DefinitionMissing(f"How to build the module of model {model.reference} is not known.")
    if "adapted" in definition.architecture:
        raise InvalidOption(
            f"Model {model.reference} has an adapter already.", hint="Name its own base as parent."
        )
    adapter, own = open_peft(folder)
    source = open_model(connection, model, None)
    _check_base(source, own, folder)
    # in memory: while a model is saved, its session cannot read another one
    tensors = {**state_dict(source).all(), **own.all()}
    trained = {path for path in own if not is_adapter(path)}
    metadata = {
        OWN_KEY: {
            "frozen": [path for path in tensors if path not in own],
            "buffers": [entry.path for entry in source.entries if entry.kind == "buffer"],
        },
        "dataset_id": None if trained else model.dataset_id,
        "network": ConfiguredNetwork(
            architecture={
                "adapted": with_arguments(definition.architecture, definition.arguments),
                "adapter": adapter,
            },
            input_shape=cast("tuple[int, ...]", definition.input_shape),
            outputs=cast("int", definition.outputs),
        ),
    }
    return LazyTensors.holding(tensors, metadata=metadata)


def _check_base(source: ExportSource, own: LazyTensors, folder: Path) -> None:
    said: Mapping[str, Any] = own.metadata.get(OWN_KEY, {})
    wanted = said.get(_BASE)
    found = _frozen_hash(source, set(own))
    if wanted is not None and wanted != found:
        raise ImportMismatch(
            f"The adapter in {folder} is for a base with hash {str(wanted)[:16]}; "
            f"{source.model.reference} has {found[:16]}.",
            hint="Name the model that it was trained on as parent.",
        )


def _frozen_hash(source: ExportSource, without: set[str]) -> str:
    kept = [entry for entry in source.entries if entry.path not in without]
    return state_hash((entry, source.hashes[entry.ordinal]) for entry in kept).hex()


def export_adapter(
    connection: Connection,
    reference: str,
    target: str | os.PathLike[str],
    *,
    replay: Replay | None = None,
) -> Exported:
    """Write a model's adapter, and the modules that trained beside it, to a new folder of peft.

    Raises:
        ModelNotFound, CorruptTensor, FileExists, FileNotWritten
        UnsupportedContent: the model has no adapter.
    """
    model = find_model(connection, reference)
    adapter = _adapter_of(model)
    source = open_model(connection, model, replay)
    tensors = state_dict(source)
    frozen = {e.path for e in source.entries if e.kind != "parameter" or not e.trainable}
    own = {"format": 1, "model": model.name, "version": model.version}
    own[_BASE] = _frozen_hash(source, set(tensors) - frozen)
    with new_folder(Path(target)) as folder:
        count = write_peft(folder, tensors, adapter, own)
    return Exported(
        model=model.reference,
        target=str(target),
        format="peft",
        tensors=len(set(tensors) - frozen),
        bytes=count,
        notes=(),
    )


def _adapter_of(model: SavedModel) -> Mapping[str, Any]:
    definition = model.definition
    whole = with_arguments(definition.architecture, definition.arguments) if definition else {}
    if "adapted" not in whole:
        raise UnsupportedContent(
            f"Model {model.reference} has no adapter.",
            hint="Export it as a folder of Hugging Face: format 'huggingface'.",
        )
    return cast("Mapping[str, Any]", whole["adapter"])
