"""Structures of modules, kept: a training loop saves the same module over and over."""

from __future__ import annotations

import threading
from collections import OrderedDict
from types import BuiltinFunctionType, FunctionType

import torch
from torch import nn

from mmdb.graph.structure import Structure
from mmdb.graph.trace import trace

#: Structures that a process keeps; the least recently used one goes first.
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

_kept: OrderedDict[object, Structure] = OrderedDict()
_lock = threading.Lock()


class _NotPlain(Exception):
    """An attribute could hold anything, so that the module may change behind it."""


def traced(module: nn.Module) -> Structure:
    """Return `trace(module)`, from memory where a module of the same form has been traced.

    Form is all that tracing can see: classes, plain attributes, and the names, shapes, dtypes and
    ties of tensors. A module with any other attribute is traced each time.
    """
    try:
        key = _form(module)
    except _NotPlain:
        return trace(module)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    found = trace(module)
    with _lock:
        _kept[key] = found
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return found


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
