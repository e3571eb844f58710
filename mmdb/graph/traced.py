"""What modules are like, kept: a training loop saves the same module over and over."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Generic, TypeVar

import torch
from torch import nn

from mmdb.graph.layer_form import LayerForm, to_layer_graph
from mmdb.graph.structure import Structure
from mmdb.graph.trace import trace

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


def traced(module: nn.Module) -> Structure:
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
