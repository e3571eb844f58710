"""A module as a layer graph that computes the same bits, where the vocabulary has all it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mmdb.errors import InvalidLayerGraph
from mmdb.graph import ops
from mmdb.graph.calls import Call, reached
from mmdb.graph.describe import is_leaf, tensors_of
from mmdb.graph.layer_module import LayerGraph
from mmdb.graph.layer_writer import FRESH, Json, LayerWriter, NotALayerGraph, is_size
from mmdb.graph.layers import build_sized_layers
from mmdb.graph.meta import on_meta
from mmdb.graph.recorder import Recorder
from mmdb.messages import show

# A class that has its own of these is more than its forward says.
_OWN_WAYS = (
    "__call__",
    "__getattr__",
    "train",
    "eval",
    "state_dict",
    "load_state_dict",
    "_save_to_state_dict",
    "_load_from_state_dict",
    "get_extra_state",
    "set_extra_state",
)

_STANDS_FOR: dict[type[nn.Module], type[nn.Module]] = {
    ops.Embedding: nn.Embedding,
    ops.SelfAttention: nn.MultiheadAttention,
}
_NOT_COMPARED = frozenset({"training", "inplace", "_parameters", "_buffers", "_modules"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerForm:
    """A layer graph for `build_sized_layers`, or why there is none.

    The module built from it has the same state dict (paths, shapes and order) and,
    with the same weights, the same results to the bit, in training too. It does not
    say dtypes, the mode, or which parameters are frozen: build it on the meta device and
    load the tensors with `assign=True`.
    """

    graph: Json | None
    reason: str = ""


def to_layer_graph(module: nn.Module) -> LayerForm:
    """Return the module as a layer graph, from which it can be built again without its code."""
    try:
        _check_module(module)
        calls = _recorded(module)
        graph = LayerWriter(module, calls).graph()
        rebuilt = _built(graph)
        _check_layers(module, rebuilt, graph)
        _check_tensors(module, rebuilt)
    except NotALayerGraph as exc:
        return LayerForm(graph=None, reason=str(exc))
    return LayerForm(graph=graph)


# -- what a graph could not say -----------------------------------------------


def _check_module(module: nn.Module) -> None:
    for path, part in module.named_modules():
        where = f"{path or 'the module'} ({type(part).__name__})"
        if any(hooks for name, hooks in vars(part).items() if "_hooks" in name):
            raise NotALayerGraph(f"{where} has hooks")
        if isinstance(part, torch.jit.ScriptModule):
            raise NotALayerGraph(f"{where} is a script")
        ways = () if is_leaf(part) else _OWN_WAYS
        if own := [way for way in ways if getattr(type(part), way) is not getattr(nn.Module, way)]:
            raise NotALayerGraph(f"{where} has its own {own[0]}")
    owners: dict[int, str] = {}
    for path, part in module.named_modules():
        for name, tensor, _ in tensors_of(part, below=False):
            full = f"{path}.{name}" if path else name
            _check_tensor(full, tensor)
            if owners.setdefault(id(tensor), full) != full:
                raise NotALayerGraph(f"{owners[id(tensor)]} and {full} are one tensor")


def _check_tensor(path: str, tensor: Tensor) -> None:
    if is_lazy(tensor):
        raise NotALayerGraph(f"{path} has no shape yet")
    if type(tensor) not in (Tensor, nn.Parameter):
        raise NotALayerGraph(f"{path} is a {type(tensor).__name__}")
    if tensor._backward_hooks:
        raise NotALayerGraph(f"{path} has hooks")


def _recorded(module: nn.Module) -> list[Call]:
    """Return the calls that lead to the output, the same in training and out of it."""
    recorders = [Recorder(module, training=mode) for mode in (False, True)]
    for recorder in recorders:
        recorder.run()
        if recorder.failures:
            raise NotALayerGraph(f"its forward cannot be followed: {recorder.failures[0]}")
        if recorder.is_random:
            raise NotALayerGraph("its forward depends on Python's random numbers")
    evaluated, trained = (_needed(recorder.calls) for recorder in recorders)
    if _comparable(evaluated) != _comparable(trained):
        raise NotALayerGraph("its forward is another one in training")
    for call, in_training in zip(evaluated, trained, strict=True):
        _check_call(call, in_training)
    _check_rewriting(evaluated)
    return evaluated


def _needed(calls: Sequence[Call]) -> list[Call]:
    needed = reached(calls, [call for call in calls if call.op in ("input", "output")])
    return [call for call in calls if id(call) in needed]


def _comparable(calls: Sequence[Call]) -> list[object]:
    numbers = {id(call): number for number, call in enumerate(calls)}
    return [
        (c.op, c.path, c.attributes, [numbers[id(i)] for i in c.inputs], c.rewrites is None)
        for c in calls
    ]


def _check_call(call: Call, in_training: Call) -> None:
    if not (call.is_plain and in_training.is_plain):
        raise NotALayerGraph(f"{call.op} runs without gradients, or under autocast")
    if call.op in ("dropout", "dropout2d"):
        by_mode = (call.follows_training, in_training.follows_training) == (False, True)
        if call.module is None and not by_mode:
            raise NotALayerGraph(f"{call.op} does not follow the module's training mode")
        if call.rewrites is not None:  # on a GPU it draws other numbers
            raise NotALayerGraph(f"{call.op} works in place")


def _check_rewriting(calls: Sequence[Call]) -> None:
    """Raise if a call changes in place what may have another name that is not known."""
    shared: set[Call] = set()
    for call in calls:
        changed = call.rewrites
        if changed is not None and (changed.op not in FRESH or changed in shared):
            raise NotALayerGraph(f"{call.op} changes in place what other results may share")
        if call.op not in FRESH and not is_size(call):
            shared.update(call.inputs)


# -- proving ------------------------------------------------------------------


def _built(graph: Json) -> LayerGraph:
    try:
        with on_meta():
            return cast("LayerGraph", build_sized_layers(graph))
    except InvalidLayerGraph as exc:
        raise NotALayerGraph(exc.message) from exc


def _check_tensors(module: nn.Module, rebuilt: nn.Module) -> None:
    """Raise unless both state dicts have the same paths and shapes in the same order."""
    sides = [
        [(name, tuple(tensor.shape), is_buffer) for name, tensor, is_buffer in tensors_of(side)]
        for side in (module, rebuilt)
    ]
    if sides[0] != sides[1]:
        there = {name for name, *_ in sides[1]}
        missing = [f"{name} is reached by no layer" for name, *_ in sides[0] if name not in there]
        raise NotALayerGraph((missing or ["its state dict is in another order"])[0])


def _check_layers(module: nn.Module, rebuilt: LayerGraph, graph: Json) -> None:
    """Raise unless every layer that was a module is one that computes the same."""
    for path, _ in cast("list[list[str]]", graph["paths"]):
        original, made = module.get_submodule(path), rebuilt.get_submodule(path)
        if difference := _difference(original, made):
            raise NotALayerGraph(f"{path} ({type(original).__name__}): {difference}")


def _difference(original: nn.Module, made: nn.Module) -> str:
    if type(original) not in (type(made), _STANDS_FOR.get(type(made))):
        return f"a {type(made).__name__} is not the same"
    theirs = vars(original)
    for name, value in vars(made).items():
        if name in _NOT_COMPARED or "_hooks" in name:
            continue
        if name not in theirs or not _equal(theirs[name], value):
            return f"its {name} is {show(theirs.get(name))}"
    if original._modules.keys() != made._modules.keys():
        return "it has other parts"
    for name, part in made._modules.items():
        if part is not None and (found := _difference(original.get_submodule(name), part)):
            return f"its {name}: {found}"
    return ""


def _equal(a: object, b: object) -> bool:
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)
