"""What tensors out of a file are: the network that its config.json, or the caller, names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from mmdb.data.dataset import find_dataset
from mmdb.data.decoding import class_text
from mmdb.data.functions import find_factories, find_tokenizer
from mmdb.data.tokenizer_json import TARGET, is_same, read_tokenizer
from mmdb.db.connection import Connection
from mmdb.errors import ArchitectureError, FunctionFailed, ImportMismatch, ModuleMismatch
from mmdb.graph.spec.build import check_output
from mmdb.graph.spec.configuration import ConfiguredNetwork, configured
from mmdb.graph.spec.factory_call import Dtypes
from mmdb.store.files.lazy import LazyTensors
from mmdb.store.models.module import build_empty, build_filled
from mmdb.store.models.save import About
from mmdb.train.replay.model_facts import about_module, definition_asked


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


def describe(
    connection: Connection, tensors: LazyTensors, wanted: ImportRequest
) -> tuple[LazyTensors, About | None, tuple[str, ...]]:
    """Return the tensors, those that the network ties among them, what they are, and notes.

    Raises:
        ArchitectureError, ModuleMismatch, DatasetNotFound, ImportMismatch: what the caller says
            does not fit. What the file says is but noted then.
    """
    network = tensors.metadata.get("network")  # of a base whose adapter it is
    named = network or configured(tensors.metadata.get("config") or {})
    if named is None and not wanted.is_told:
        return tensors, None, ()
    try:
        found, about, notes = _described(connection, tensors, wanted, named)
        if about.dataset_id is None:
            about = replace(about, dataset_id=tensors.metadata.get("dataset_id"))
        return found, about, notes
    except (ArchitectureError, ModuleMismatch) as error:
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
    notes: tuple[str, ...] = ()
    if architecture is None:
        if named is None:
            raise ArchitectureError(
                "The file does not say what network its tensors are of.", hint="Pass architecture."
            )
        architecture = named.architecture
        if wanted.dataset is None:
            shape, outputs = shape or named.input_shape, outputs or named.outputs
        else:
            notes = _compare_classes(connection, wanted.dataset, named)
    hollow = {
        path: torch.empty(spec.shape, dtype=spec.dtype, device="meta")
        for path, spec in tensors.specs.items()
    }
    text = tensors.metadata.get("tokenizer")
    if text is not None and wanted.dataset is not None:
        _check_tokenizer(connection, wanted.dataset, text)
    definition = definition_asked(connection, architecture, shape, outputs, wanted.dataset)
    factories = find_factories(connection)
    if wanted.dataset is not None:
        decoding = find_dataset(connection, wanted.dataset).decoding
        drawn = build_filled(definition, factories, seed=0)  # without numbers few networks run
        check_output(
            drawn,
            definition.input_shape,
            definition.outputs,
            cast("Dtypes", decoding.input_dtype),
            per_token=decoding.task == "next_token",
        )
    empty = build_empty(definition, factories)
    _check_vocabulary(connection, empty, wanted.dataset, text)
    tied = _tied(empty, hollow)
    hollow |= {path: hollow[first] for path, first in tied.items()}
    about = about_module(
        connection,
        hollow,
        architecture=architecture,
        input_shape=shape,
        outputs=outputs,
        dataset=wanted.dataset,
        metrics={},
    )
    return _with_tied(tensors, tied), about, notes


def _check_tokenizer(connection: Connection, dataset: str, text: str) -> None:
    """Refuse a tokenizer.json that is not what a dataset's texts became tokens by.

    Raises:
        ImportMismatch
    """
    for one in find_dataset(connection, dataset).decoding.tokenizers.values():
        is_json = (one.target or "").startswith(TARGET)
        if not is_json or not is_same(text, find_tokenizer(connection, one.function)[0]):
            raise ImportMismatch(
                f"The folder's tokenizer.json is not tokenizer {one.function!r} of dataset "
                f"{dataset!r}: the network knows its tokens by other ids.",
                hint="Register the folder's own, and create the dataset with it.",
            )


def _check_vocabulary(
    connection: Connection, module: torch.nn.Module, dataset: str | None, text: str | None
) -> None:
    """Refuse tokens that a network of transformers has no embedding of.

    Raises:
        ImportMismatch
    """
    own = getattr(module, "get_input_embeddings", lambda: None)()
    if not isinstance(own, torch.nn.Embedding):
        return
    sizes = {}
    if dataset is not None:
        known = find_dataset(connection, dataset).decoding.tokenizers.values()
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


def _tied(module: torch.nn.Module, given: Mapping[str, torch.Tensor]) -> dict[str, str]:
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


def _compare_classes(
    connection: Connection, dataset: str, named: ConfiguredNetwork
) -> tuple[str, ...]:
    """Return a note where a dataset's classes have other names.

    Raises:
        ImportMismatch: they are the same in another order, so that answers would be wrong.
    """
    labels = find_dataset(connection, dataset).decoding.labels
    own = [class_text(one) for one in labels[0].classes or ()] if len(labels) == 1 else []
    if not named.classes or not own or list(named.classes) == own:
        return ()
    both = f"{', '.join(named.classes[:5])}; of dataset {dataset!r}: {', '.join(own[:5])}"
    if sorted(named.classes) == sorted(own):
        raise ImportMismatch(
            f"The classes of config.json are in another order than the dataset's: {both}.",
            hint="Make the label a whole number by the order of config.json's id2label.",
        )
    return (f"classes of config.json: {both}",)
