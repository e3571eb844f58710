"""What imported tensors are: the network that their config.json, or the caller, names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from mmdb.data.dataset import StoredDataset, find_dataset
from mmdb.data.decoding import class_text
from mmdb.data.functions import find_factories, find_tokenizer
from mmdb.data.picture_config import compare_pictures, expected_pictures
from mmdb.data.tokenizer_json import TARGET, is_same, read_tokenizer
from mmdb.db.connection import Connection
from mmdb.db.owners import require_owner
from mmdb.db.queries import load
from mmdb.errors import (
    AlreadyExists,
    ArchitectureError,
    FactoryFailed,
    FunctionFailed,
    ImportMismatch,
    InvalidOption,
    ModelNotFound,
    ModuleMismatch,
    OutOfMemory,
)
from mmdb.graph.libraries import current_names
from mmdb.graph.spec.build import check_output
from mmdb.graph.spec.configuration import ConfiguredNetwork, configured
from mmdb.graph.spec.factory_call import Dtypes
from mmdb.graph.spec.parse import with_arguments
from mmdb.graph.trace.call_tracer import trace
from mmdb.graph.trace.stand_ins import on_meta
from mmdb.graph.trace.structure import NetworkGraph
from mmdb.store.files.adapter_exchange import open_adapter
from mmdb.store.files.exchange import (
    TAGS,
    Imported,
    import_model,
    known_files,
    open_model,
    state_dict,
)
from mmdb.store.files.formats import Format
from mmdb.store.files.lazy import LazyTensors
from mmdb.store.files.peft_format import is_peft
from mmdb.store.models.architectures import put_architecture
from mmdb.store.models.model_rows import ModelDefinition, add_definition, find_model
from mmdb.store.models.module import build_cheaply, build_filled, check_built
from mmdb.store.models.save import About
from mmdb.train.replay.model_facts import definition_asked


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """What the caller says of the tensors; None: what the file says."""

    architecture: str | Mapping[str, Any] | None = None
    input_shape: Sequence[int] | None = None
    outputs: int | None = None
    dataset: str | None = None

    @property
    def is_told(self) -> bool:
        """Whether what does not fit is an error, and not just a note."""
        return self.architecture is not None or self.dataset is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A model that has just been given its architecture or dataset."""

    model: str  # name@version
    notes: tuple[str, ...]


def import_source(
    connection: Connection,
    source: str | os.PathLike[str],
    name: str,
    wanted: ImportRequest,
    *,
    parent: str | None = None,
    approach: str = "auto",
    format: str = "auto",
    key: str | None = None,
    skip: bool = False,
) -> Imported:
    """Save a file or folder as the next version of a model; see `Database.import_model`."""
    folder = Path(source)
    is_adapter = format == "peft" or (format == "auto" and is_peft(folder))
    return import_model(
        connection,
        source,
        name,
        parent=parent,
        approach=approach,
        format=cast("Format", "huggingface" if format == "peft" else format),
        key=key,
        skip=skip,
        describe=lambda tensors: describe(connection, tensors, wanted),
        opened=open_adapter(connection, folder, parent) if is_adapter else None,
    )


def attach(connection: Connection, model: str, wanted: ImportRequest) -> Attached:
    """Give a model that has none its architecture, its dataset, or both; tensors stay as they are.

    Args:
        wanted: its architecture may be what the model has, or what its config.json says.
    Raises:
        AlreadyExists: it has one. InvalidOption: neither is given. ModelNotFound, RightsMissing
        ArchitectureError, ModuleMismatch, DatasetNotFound, ImportMismatch: they do not fit it.
    """
    with connection.transaction():
        found = find_model(connection, model)
        require_owner(connection, "model", found.reference, found.model_id)
        has = {"architecture": found.definition_id, "dataset": found.dataset_id}
        for what, number in has.items():
            if number is not None and getattr(wanted, what) is not None:
                raise AlreadyExists(
                    f"Model {found.reference} has its {what} already.",
                    hint="A version stays what it is: import or save it again for another one.",
                )
        if not wanted.is_told:
            raise InvalidOption(
                "Nothing is given to attach.", hint="Pass architecture, dataset, or both."
            )
        source = open_model(connection, found, None)
        tensors, definition = state_dict(source), found.definition
        tensors.metadata |= known_files(connection, found)
        if definition is not None:
            known = with_arguments(definition.architecture, definition.arguments)
            wanted = replace(wanted, architecture=known)
        tied, about, notes = describe(connection, tensors, wanted)
        lacking = [path for path in tied if path not in tensors]
        if lacking:
            raise ModuleMismatch(
                f"Model {found.reference} lacks {lacking[0]!r}, which the architecture ties.",
                hint="Import its file again with the architecture, which restores what is tied.",
            )
        assert about is not None and about.definition is not None
        structure = about.trace()
        attached = connection.rows(
            load("models").attach,
            model_id=found.model_id,
            definition_id=add_definition(connection, about.definition),
            architecture_id=None if structure is None else put_architecture(connection, structure),
            dataset_id=about.dataset_id or found.dataset_id,
        )
        if not attached:
            raise ModelNotFound(f"Model {found.reference} has just been dropped.")
    return Attached(model=found.reference, notes=notes)


def describe(
    connection: Connection, tensors: LazyTensors, wanted: ImportRequest
) -> tuple[LazyTensors, About | None, tuple[str, ...]]:
    """Return the tensors, those that the network ties among them, what they are, and notes.

    Raises:
        ArchitectureError, ModuleMismatch, DatasetNotFound, ImportMismatch: what the caller says
            does not fit. What the file says is but noted then.
    """
    network = tensors.metadata.get("network")  # of a base whose adapter it is
    config = tensors.metadata.get("config") or {}
    try:
        named = network or configured(config)
        if named is None and not wanted.is_told:
            return tensors, None, ()
        found, about, notes = _described(connection, tensors, wanted, named)
        if about.dataset_id is None:
            about = replace(about, dataset_id=tensors.metadata.get("dataset_id"))
        return found, about, notes
    except (ArchitectureError, ModuleMismatch, OutOfMemory) as error:
        if wanted.is_told or network is not None:
            raise
        return tensors, None, (f"config.json is kept as data alone: {error.message}",)


def _described(
    connection: Connection,
    tensors: LazyTensors,
    wanted: ImportRequest,
    named: ConfiguredNetwork | None,
) -> tuple[LazyTensors, About, tuple[str, ...]]:
    architecture, shape, outputs = wanted.architecture, wanted.input_shape, wanted.outputs
    dataset = None if wanted.dataset is None else find_dataset(connection, wanted.dataset)
    config, preprocessor = (tensors.metadata.get(key) or {} for key in TAGS)
    columns = () if dataset is None else dataset.decoding.features
    notes = compare_pictures(columns, expected_pictures(config, preprocessor))
    if named is not None and dataset is not None:
        notes += _compare_classes(dataset, named)
    if architecture is None:
        if named is None:
            raise ArchitectureError(
                "The file does not say what network its tensors are of.", hint="Pass architecture."
            )
        architecture = named.architecture
        if wanted.dataset is None:
            shape, outputs = shape or named.input_shape, outputs or named.outputs
    definition = definition_asked(connection, architecture, shape, outputs, wanted.dataset)
    factories = find_factories(connection)
    module = build_cheaply(definition, factories)
    tensors = tensors.renamed(current_names(module, tensors.specs))
    hollow = {
        path: torch.empty(spec.shape, dtype=spec.dtype, device="meta")
        for path, spec in tensors.specs.items()
    }
    text = tensors.metadata.get("tokenizer")
    if text is not None and dataset is not None:
        _check_tokenizer(connection, dataset, text)
    _check_vocabulary(module, dataset, text)
    tied = _tied(module, hollow)
    try:
        check_built(module, hollow | {path: hollow[first] for path, first in tied.items()})
    except ModuleMismatch as error:
        raise ModuleMismatch(error.message, hint="; ".join(notes) or error.hint) from error
    if dataset is not None:
        _check_rows(module, definition, factories, dataset)
    about = About(
        definition=definition,
        trace=lambda: _traced(module),
        dataset_id=None if dataset is None else dataset.dataset_id,
    )
    return _with_tied(tensors, tied), about, notes


def _check_tokenizer(connection: Connection, dataset: StoredDataset, text: str) -> None:
    """Refuse a tokenizer.json that is not what a dataset's texts became tokens by.

    Raises:
        ImportMismatch
    """
    for one in dataset.decoding.tokenizers.values():
        is_json = (one.target or "").startswith(TARGET)
        if not is_json or not is_same(text, find_tokenizer(connection, one.function)[0]):
            raise ImportMismatch(
                f"The folder's tokenizer.json is not tokenizer {one.function!r} of dataset "
                f"{dataset.name!r}: the network knows its tokens by other ids.",
                hint="Register the folder's own, and create the dataset with it.",
            )


def _check_vocabulary(module: nn.Module, dataset: StoredDataset | None, text: str | None) -> None:
    """Refuse tokens that a network of transformers has no embedding of.

    Raises:
        ImportMismatch
    """
    try:
        own = getattr(module, "get_input_embeddings", lambda: None)()
    except NotImplementedError:  # one that reads no tokens
        return
    if not isinstance(own, nn.Embedding):
        return
    sizes = {}
    if dataset is not None:
        known = dataset.decoding.tokenizers.values()
        sizes = {f"tokenizer {one.function!r}": one.vocabulary or 0 for one in known}
    if text is not None:
        with suppress(FunctionFailed):  # it is not kept, then
            sizes["the folder's tokenizer.json"] = read_tokenizer("tokenizer.json", text).vocabulary
    for name, size in sizes.items():
        if size > own.num_embeddings:
            raise ImportMismatch(
                f"The network has an embedding of {own.num_embeddings} tokens; {name} has {size}.",
                hint="Import the tokenizer that the network was trained with.",
            )


def _check_rows(
    module: nn.Module,
    definition: ModelDefinition,
    factories: Mapping[str, str],
    dataset: StoredDataset,
) -> None:
    """Check that a network takes rows of a dataset and answers for its labels.

    Raises:
        ArchitectureError
    """
    decoding = dataset.decoding
    given = (definition.input_shape, definition.outputs, cast("Dtypes", decoding.input_dtype))
    is_of_tokens = decoding.task == "next_token"
    try:
        check_output(module, *given, per_token=is_of_tokens)
    except FactoryFailed:
        if not any(tensor.is_meta for tensor in module.state_dict().values()):
            raise
        # a forward that looks at numbers, which a hollow network has not
        drawn = build_filled(definition, factories, seed=0)
        check_output(drawn, *given, per_token=is_of_tokens)


def _traced(module: nn.Module) -> NetworkGraph:
    if any(tensor.is_meta for tensor in module.state_dict().values()):
        with on_meta():
            return trace(module)
    return trace(module)


def _tied(module: nn.Module, given: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Return the tensors that a module shares with some that are given, and that are missing."""
    first: dict[int, str] = {}
    own = module.state_dict(keep_vars=True)
    for path, tensor in own.items():
        if path in given:
            first.setdefault(id(tensor), path)
    return {
        path: first[id(tensor)]
        for path, tensor in own.items()
        if path not in given and id(tensor) in first
    }


def _with_tied(tensors: LazyTensors, tied: Mapping[str, str]) -> LazyTensors:
    return LazyTensors(
        {**tensors.specs, **{path: tensors.specs[first] for path, first in tied.items()}},
        tensors.read_many,
        tied={**tensors.tied, **{p: tensors.tied.get(first, first) for p, first in tied.items()}},
        metadata=tensors.metadata,
        notes=[note for note in tensors.notes if "ties the output layer" not in note],
        is_mapped=tensors.is_mapped,
    )


def _compare_classes(dataset: StoredDataset, named: ConfiguredNetwork) -> tuple[str, ...]:
    """Return a note where a dataset's classes have other names.

    Raises:
        ImportMismatch: they are the same in another order, so that answers would be wrong.
    """
    labels = dataset.decoding.labels
    own = [class_text(one) for one in labels[0].classes or ()] if len(labels) == 1 else []
    if not named.classes or not own or list(named.classes) == own:
        return ()
    both = f"{', '.join(named.classes[:5])}; of dataset {dataset.name!r}: {', '.join(own[:5])}"
    if sorted(named.classes) == sorted(own):
        raise ImportMismatch(
            f"The classes of config.json are in another order than the dataset's: {both}.",
            hint="Make the label a whole number by the order of config.json's id2label.",
        )
    return (f"classes of config.json: {both}",)
