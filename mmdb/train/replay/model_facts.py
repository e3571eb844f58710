"""What is known of a model beside its tensors, from what the caller says and the module shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, TypeGuard

import torch
from torch import nn

from mmdb.data.dataset import find_dataset
from mmdb.data.functions import find_factories
from mmdb.db.connection import Connection
from mmdb.errors import ArchitectureError, InvalidOption
from mmdb.graph.spec.build import architecture_of, check_factories, parse
from mmdb.graph.spec.factory_call import Outputs, Shape, outputs_asked
from mmdb.graph.spec.layer_form import traced
from mmdb.graph.trace.call_tracer import trace
from mmdb.graph.trace.structure import NetworkGraph
from mmdb.messages import show
from mmdb.store.models.architectures import (
    Beginnings,
    architecture_id_of,
    beginnings,
    saved_architecture,
    stored_beginnings,
)
from mmdb.store.models.model_rows import ModelDefinition, find_model
from mmdb.store.models.module import build_empty, check_definition, definition_of
from mmdb.store.models.registry import checked_metric
from mmdb.store.models.save import About


def about_module(
    connection: Connection,
    module: nn.Module | Mapping[str, torch.Tensor],
    *,
    architecture: str | Mapping[str, Any] | None,
    input_shape: Sequence[int] | None,
    outputs: int | None,
    dataset: str | None,
    metrics: Mapping[str, float],
) -> About:
    """Return what to record of a module, or of a state dict; see `mmdb.api.Database.save`.

    Raises:
        ModuleMismatch: the architecture builds other tensors than the module has.
        ArchitectureError, DatasetNotFound, InvalidName
        InvalidOption: a metric is NaN or no number, or there is no module.
    """
    if not isinstance(module, nn.Module | Mapping):
        raise InvalidOption(
            f"A {type(module).__name__} is no model.", hint="Pass a module, or its tensors by path."
        )
    if not isinstance(metrics, Mapping):
        raise InvalidOption(f"metrics is {show(metrics)}.", hint="They are numbers by name.")
    found = find_dataset(connection, dataset) if dataset is not None else None
    definition = None
    if architecture is not None:
        definition = definition_asked(connection, architecture, input_shape, outputs, dataset)
        tensors = module.state_dict() if isinstance(module, nn.Module) else module
        check_definition(definition, find_factories(connection), tensors)
    return About(
        definition=definition,
        define=lambda: definition_of(module) if isinstance(module, nn.Module) else None,
        trace=lambda: _structure(connection, module, definition),
        dataset_id=found.dataset_id if found else None,
        metrics={name: checked_metric(name, value) for name, value in metrics.items()},
    )


def _structure(
    connection: Connection,
    module: nn.Module | Mapping[str, torch.Tensor],
    definition: ModelDefinition | None,
) -> NetworkGraph | None:
    if isinstance(module, nn.Module):
        return traced(module)
    return None if definition is None else _structure_of(connection, definition)


def _structure_of(connection: Connection, definition: ModelDefinition) -> NetworkGraph:
    if not definition.input_shape:
        return trace(build_empty(definition, {}))
    return architecture_of(
        definition.architecture,
        definition.arguments,
        definition.input_shape,
        definition.outputs,
        find_factories(connection),
    )


def beginnings_of(
    connection: Connection,
    architecture: nn.Module | str | Mapping[str, Any],
    *,
    input_shape: Sequence[int] | None = None,
    outputs: int | None = None,
    dataset: str | None = None,
) -> Beginnings:
    """Return the beginnings of a module, a model (`name@version`), a factory or a layer graph.

    Raises:
        ArchitectureError, DatasetNotFound, ModelNotFound, DefinitionMissing
    """
    if _names_model(architecture):
        model = find_model(connection, architecture)
        return stored_beginnings(connection, architecture_id_of(model))
    return beginnings(
        structure_asked(
            connection, architecture, input_shape=input_shape, outputs=outputs, dataset=dataset
        )
    )


def structure_asked(
    connection: Connection,
    architecture: nn.Module | str | Mapping[str, Any],
    *,
    input_shape: Sequence[int] | None = None,
    outputs: int | None = None,
    dataset: str | None = None,
) -> NetworkGraph:
    """Return the structure of a module, a model (`name@version`), a factory or a layer graph.

    Raises:
        ArchitectureError, DatasetNotFound, ModelNotFound, DefinitionMissing
    """
    if isinstance(architecture, nn.Module):
        return traced(architecture)
    if _names_model(architecture):
        return saved_architecture(connection, find_model(connection, architecture))
    definition = definition_asked(connection, architecture, input_shape, outputs, dataset)
    return _structure_of(connection, definition)


def _names_model(architecture: object) -> TypeGuard[str]:
    return isinstance(architecture, str) and "@" in architecture.partition("(")[0]


def definition_asked(
    connection: Connection,
    architecture: str | Mapping[str, Any],
    input_shape: Sequence[int] | Shape | None,
    outputs: Outputs | None,
    dataset: str | None,
) -> ModelDefinition:
    """Return how to build an architecture for an input's shape, or for a dataset.

    Raises:
        ArchitectureError, DatasetNotFound
    """
    if dataset is not None and (input_shape is None or outputs is None):
        found = find_dataset(connection, dataset)
        input_shape = input_shape or found.input_shape
        outputs = outputs or outputs_asked(found.targets)
    parsed = parse(architecture)
    if not input_shape or not outputs:
        check_factories(parsed, find_factories(connection))
        raise ArchitectureError(
            "The shape of the architecture's input, or the number of its outputs, is not known.",
            hint="Pass input_shape and outputs, or dataset.",
        )
    return ModelDefinition(
        architecture=parsed,
        arguments={},
        input_shape=_sizes("input_shape", input_shape),
        outputs=outputs if isinstance(outputs, dict) else _sizes("outputs", [outputs])[0],
    )


def _sizes(name: str, given: Any) -> Any:
    """Return sizes as Python's own numbers; those by name are checked where they are built."""
    try:
        return given if isinstance(given, dict) else tuple(map(index, given))
    except TypeError as error:
        hint = "input_shape is the sizes of a row, such as (3, 32, 32); outputs is a whole number."
        raise InvalidOption(f"{name} is {show(given)}.", hint=hint) from error
