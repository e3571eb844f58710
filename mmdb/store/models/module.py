"""From a module to what is known of it, and from a model's tensors back to a module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import nn

from mmdb.errors import ArchitectureError, DefinitionMissing, ModuleMismatch
from mmdb.graph.spec.build import build, initial_module
from mmdb.graph.spec.layer_form import layer_form
from mmdb.graph.spec.layer_graph import build_sized_layers, empty_like
from mmdb.graph.trace.stand_ins import on_meta
from mmdb.store.models.model_rows import ModelDefinition

Factories = Mapping[str, str]  # registered name -> package.module:callable
Tensors = Mapping[str, torch.Tensor]

#: Layer graphs whose modules are kept to be copied: a network's takes 50 ms to build.
_KEPT_GRAPHS = 16


def definition_of(module: nn.Module) -> ModelDefinition | None:
    """Return the module as a layer graph, from which it is built again without its code.

    None where the graph's vocabulary does not hold it.
    """
    graph = layer_form(module).graph
    if graph is None:
        return None
    return ModelDefinition(architecture=dict(graph), arguments={}, input_shape=(), outputs=0)


def build_empty(definition: ModelDefinition, factories: Factories) -> nn.Module:
    """Return the definition's module on the meta device: no memory, no random numbers.

    Raises:
        ArchitectureError
    """
    if not definition.input_shape:
        return empty_like(_like(json.dumps(definition.architecture)))
    with on_meta():
        return _build(definition, factories)


@lru_cache(maxsize=_KEPT_GRAPHS)
def _like(graph: str) -> nn.Module:
    """Return the module of a layer graph in JSON, on the meta device; nobody may change it."""
    with on_meta():
        return build_sized_layers(json.loads(graph))


def _build(definition: ModelDefinition, factories: Factories) -> nn.Module:
    if not definition.input_shape:  # a graph in which every size is written
        return build_sized_layers(definition.architecture)
    return build(
        definition.architecture,
        definition.arguments,
        definition.input_shape,
        definition.outputs,
        factories,
    )


def build_filled(definition: ModelDefinition, factories: Factories, *, seed: int) -> nn.Module:
    """Return the definition's module with weights drawn from a seed.

    Raises:
        ArchitectureError
    """
    if not definition.input_shape:
        return build_sized_layers(definition.architecture)
    return initial_module(
        definition.architecture,
        definition.arguments,
        definition.input_shape,
        definition.outputs,
        factories,
        seed=seed,
    )


def check_definition(definition: ModelDefinition, factories: Factories, tensors: Tensors) -> None:
    """Check that a definition builds a module with these tensors.

    Raises:
        ModuleMismatch, ArchitectureError
    """
    check_built(build_cheaply(definition, factories), tensors)


def build_cheaply(definition: ModelDefinition, factories: Factories) -> nn.Module:
    """Return the definition's module, on the meta device unless its factory cannot work there.

    Raises:
        ArchitectureError
    """
    try:
        return build_empty(definition, factories)
    except ArchitectureError:  # a factory that cannot work without memory
        return build_filled(definition, factories, seed=0)


def check_built(module: nn.Module, tensors: Tensors) -> None:
    """Check that an architecture's module has these tensors; their dtypes may differ.

    Raises:
        ModuleMismatch: names the first tensor that does not fit, and both shapes.
    """
    _check_alike(module.state_dict(), tensors, "the architecture", "the module", dtypes=False)


def assemble(
    definition: ModelDefinition | None,
    factories: Factories,
    tensors: Tensors,
    *,
    trainable: Mapping[str, bool],
    reference: str,
    device: str | None = None,
) -> nn.Module:
    """Return a model's module, in evaluation mode, whose parameters are `tensors` themselves.

    Args:
        tensors: by path, transient buffers too; what is tied shares its memory.
        trainable: which parameters take gradients; those not named do.
        reference: of the model, for messages.
        device: where the tensors go, by copies that run beside each other.
    Raises:
        DefinitionMissing, ModuleMismatch, ArchitectureError
    """
    if definition is None:
        raise DefinitionMissing(f"How to build the module of model {reference} is not known.")
    try:
        module = build_empty(definition, factories)
        fill(module, _moved(tensors, device), trainable, reference)
        is_whole = not any(t.is_meta for t in (*module.parameters(), *module.buffers()))
    except ArchitectureError:  # a factory that cannot work without memory
        is_whole = False
    if not is_whole:  # transient buffers that were not saved, too, are the factory's to make
        module = build_filled(definition, factories, seed=0).to(device)
        fill(module, _moved(tensors, device), trainable, reference)
    return module.eval()


def _moved(tensors: Tensors, device: str | None) -> dict[str, torch.Tensor]:
    """Return the tensors on a device; those that are the same stay the same."""
    moved: dict[tuple[object, ...], torch.Tensor] = {}
    found = {}
    for path, tensor in tensors.items():
        key = (tensor.data_ptr() or id(tensor), tensor.dtype, tensor.shape, tensor.stride())
        if key not in moved:
            moved[key] = tensor if device is None else tensor.to(device, non_blocking=True)
        found[path] = moved[key]
    return found


def fill(
    module: nn.Module, tensors: Tensors, trainable: Mapping[str, bool], reference: str
) -> None:
    """Put tensors in the places of a module's own; the same tensor becomes one parameter.

    Args: as of `assemble`.
    Raises:
        ModuleMismatch
    """
    own = module.state_dict()
    transients = {path for path, _ in module.named_buffers() if path not in own}
    given = {path: tensor for path, tensor in tensors.items() if path not in transients}
    _check_alike(own, given, "the module", f"model {reference}", dtypes=False)
    made: dict[int, nn.Parameter] = {}
    modules = dict(module.named_modules(remove_duplicate=False))
    for path, tensor in tensors.items():
        owner_path, _, name = path.rpartition(".")
        owner = modules.get(owner_path)
        if owner is not None and name in owner._parameters:
            if id(tensor) not in made:
                can = tensor.is_floating_point() or tensor.is_complex()
                made[id(tensor)] = nn.Parameter(tensor, can and trainable.get(path, True))
            owner._parameters[name] = made[id(tensor)]
        elif owner is not None and name in owner._buffers:
            owner._buffers[name] = tensor
        else:  # a state dict of its own making
            module.load_state_dict(given, assign=True)
            return


def fill_given(module: nn.Module, tensors: Tensors, *, reference: str) -> nn.Module:
    """Copy a model's tensors into a module of the caller's, and return it; its mode stays.

    Args:
        tensors: by path; transient buffers are copied where the module has them.
    Raises:
        ModuleMismatch: a path, shape or dtype differs; nothing is copied then.
    """
    own = module.state_dict()
    transients = {p: b for p, b in module.named_buffers() if p not in own}
    given = {path: tensor for path, tensor in tensors.items() if path not in transients}
    _check_alike(own, given, "the module", f"model {reference}", dtypes=True)
    with torch.no_grad():
        module.load_state_dict(given)
        for path, buffer in transients.items():
            if path in tensors:
                buffer.copy_(tensors[path])
    return module


def _check_alike(a: Tensors, b: Tensors, first: str, second: str, *, dtypes: bool) -> None:
    for path in (*a, *b):
        if path not in a or path not in b:
            has, lacks = (first, second) if path in a else (second, first)
            raise ModuleMismatch(f"{has} has a tensor {path!r} that {lacks} does not have.")
        if a[path].shape != b[path].shape:
            raise ModuleMismatch(
                f"{path!r} is {tuple(a[path].shape)} in {first} and "
                f"{tuple(b[path].shape)} in {second}."
            )
        if dtypes and a[path].dtype != b[path].dtype:
            raise ModuleMismatch(
                f"{path!r} is {a[path].dtype} in {first} and {b[path].dtype} in {second}.",
                hint="Convert the module first: module.to(dtype).",
            )
