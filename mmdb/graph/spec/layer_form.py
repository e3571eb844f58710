"""Writes a module as a layer graph that computes the same bits, where the vocabulary can.

What modules trace to is kept: a training loop saves the same module over and over.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Generic, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mmdb.errors import InvalidLayerGraph
from mmdb.graph import vocabulary
from mmdb.graph.spec.layer_graph import LayerGraph, build_sized_layers
from mmdb.graph.spec.layer_writer import FRESH, Json, LayerWriter, NotALayerGraph, is_size
from mmdb.graph.trace.call_forms import ForwardCall, is_leaf, tensors_of
from mmdb.graph.trace.call_tracer import CallTracer, reached, trace
from mmdb.graph.trace.stand_ins import on_meta
from mmdb.graph.trace.structure import NetworkGraph
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
    vocabulary.Embedding: nn.Embedding,
    vocabulary.SelfAttention: nn.MultiheadAttention,
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


def _recorded(module: nn.Module) -> list[ForwardCall]:
    """Return the calls that lead to the output, the same in training and out of it."""
    recorders = [CallTracer(module, training=mode) for mode in (False, True)]
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


def _needed(calls: Sequence[ForwardCall]) -> list[ForwardCall]:
    needed = reached(calls, [call for call in calls if call.op in ("input", "output")])
    return [call for call in calls if id(call) in needed]


def _comparable(calls: Sequence[ForwardCall]) -> list[object]:
    numbers = {id(call): number for number, call in enumerate(calls)}
    return [
        (c.op, c.path, c.attributes, [numbers[id(i)] for i in c.inputs], c.rewrites is None)
        for c in calls
    ]


def _check_call(call: ForwardCall, in_training: ForwardCall) -> None:
    if not (call.is_plain and in_training.is_plain):
        raise NotALayerGraph(f"{call.op} runs without gradients, or under autocast")
    if call.op in ("dropout", "dropout2d"):
        by_mode = (call.follows_training, in_training.follows_training) == (False, True)
        if call.module is None and not by_mode:
            raise NotALayerGraph(f"{call.op} does not follow the module's training mode")
        if call.rewrites is not None:  # on a GPU it draws other numbers
            raise NotALayerGraph(f"{call.op} works in place")


def _check_rewriting(calls: Sequence[ForwardCall]) -> None:
    """Raise if a call changes in place what may have another name that is not known."""
    shared: set[ForwardCall] = set()
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


#: Results that a process keeps of each kind; the least recently used one goes first.
_KEPT = 32
#: What torch itself keeps in every module, and what is looked at by itself.
_SKIPPED = frozenset({"training", "_parameters", "_buffers", "_modules"})
_PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type,
    FunctionType,
    BuiltinFunctionType,
    torch.dtype,
    torch.device,
)


class _NotPlain(Exception):
    """An attribute could hold anything, so that the module may change behind it."""


_Result = TypeVar("_Result")


class _ByForm(Generic[_Result]):
    """A function of modules that looks at their form alone, with its last results."""

    def __init__(self, function: Callable[[nn.Module], _Result]) -> None:
        self._function = function
        self._kept: OrderedDict[object, _Result] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, module: nn.Module) -> _Result:
        try:
            key = _form(module)
        except _NotPlain:
            return self._function(module)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = self._function(module)
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found


_structures = _ByForm(trace)
_layer_forms = _ByForm(to_layer_graph)


def traced(module: nn.Module) -> NetworkGraph:
    """Return `trace(module)`, from memory where a module of the same form has been traced.

    Form is all that tracing can see: classes, plain attributes, and the names, shapes, dtypes and
    ties of tensors. A module with any other attribute is traced each time.
    """
    return _structures(module)


def layer_form(module: nn.Module) -> LayerForm:
    """Return `to_layer_graph(module)`, from memory likewise."""
    return _layer_forms(module)


def _form(module: nn.Module) -> object:
    numbers: dict[int, int] = {}  # tensors and modules by their first place: ties are form
    form: list[object] = []
    for path, part in module.named_modules(remove_duplicate=False):
        form.append((path, type(part), numbers.setdefault(id(part), len(numbers))))
        for name, value in vars(part).items():
            if name not in _SKIPPED:
                form.append((name, _plain(value)))
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                form.append((name, _tensor(tensor, numbers)))
    return tuple(form)


def _tensor(tensor: torch.Tensor | None, numbers: dict[int, int]) -> object:
    if tensor is None:
        return None
    if tensor._backward_hooks:
        raise _NotPlain
    place = numbers.setdefault(id(tensor), len(numbers))
    return type(tensor), tensor.dtype, tuple(tensor.shape), place


def _plain(value: object) -> object:
    if isinstance(value, _PLAIN):
        return type(value), value  # 1, 1.0 and True are equal
    if isinstance(value, (list, tuple)):
        return type(value), tuple(_plain(item) for item in value)
    if isinstance(value, (dict, set, frozenset)):
        if not value:  # as the hooks of nearly every module are
            return type(value)
        if isinstance(value, dict):
            return type(value), tuple((_plain(k), _plain(v)) for k, v in value.items())
        return type(value), frozenset(_plain(item) for item in value)
    raise _NotPlain
