"""What a module is, apart from its weights: its op, its attributes, the tensors it owns."""

from __future__ import annotations

import enum
import functools
import inspect
import math
import re
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mmdb.graph import ops
from mmdb.graph.factories import Position
from mmdb.graph.structure import TensorSpec

# Modules of torch.nn that run others; their forward is followed.
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
# Ours that stand in a layer graph as one op, though their forward could not be followed.
_OWN_LEAVES = (ops.Embedding, ops.SelfAttention, Position)
# They say how a layer is computed or where it lies, not what it is.
_NOT_ATTRIBUTES = frozenset({"self", "args", "kwargs", "device", "dtype", "inplace"})
_SPELLINGS = (("PReLU", "Prelu"), ("RReLU", "Rrelu"), ("ReLU", "Relu"), ("SiLU", "Silu"))
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class NotPlain(ValueError):
    """A value that JSON cannot hold and that has no stable name."""


def is_leaf(module: nn.Module) -> bool:
    """Return whether the module is one operation: a layer of torch.nn, or of a layer graph."""
    if isinstance(module, torch.jit.ScriptModule) or type(module) in _OWN_LEAVES:
        return True
    if type(module) is nn.Module:
        return False
    return type(module).__module__.startswith(("torch.nn.", "torch.ao.nn.")) and not isinstance(
        module, _CONTAINERS
    )


def op_of(module: nn.Module) -> str:
    """Return the op of a leaf as torch.nn.functional would spell it, else the class's full name.

    >>> op_of(nn.BatchNorm2d(3)), op_of(nn.LeakyReLU()), op_of(nn.MultiheadAttention(2, 1))
    ('batch_norm2d', 'leaky_relu', 'multihead_attention')
    """
    if isinstance(module, torch.jit.ScriptModule):
        return f"script:{module.original_name}"
    cls = type(module)
    if not is_leaf(module):
        return f"{cls.__module__}.{cls.__qualname__}"
    if cls is ops.SelfAttention:
        return "self_attention"
    return _snake(cls.__name__)


def attributes_of(module: nn.Module) -> dict[str, object]:
    """Return what the module was constructed with, as JSON; its parts below 'children'.

    Only what its class declares is read: what a user hung on the module is no attribute.
    """
    found: dict[str, object] = {}
    if is_leaf(module) or type(module).__module__.startswith("torch."):
        for name in _declared(type(module)):  # type: ignore[arg-type]
            if name in (values := vars(module)):
                found[name] = _encode_or_type(values[name])
            elif name in module._parameters or name in module._buffers:
                found[name] = module._parameters.get(name, module._buffers.get(name)) is not None
    children = {
        name: {"op": op_of(child), **attributes_of(child)}
        for name, child in module._modules.items()
        if child is not None
    }
    return {**found, "children": children} if children else found


def tensors_of(
    module: nn.Module, *, below: bool = True, prefix: str = ""
) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield (name, tensor, whether it is a buffer) of the state dict, in its order.

    Args:
        below: whether to go into the module's parts.
    """
    if isinstance(module, torch.jit.ScriptModule):
        for name, tensor in module.state_dict(keep_vars=True).items():
            yield prefix + name, tensor, not isinstance(tensor, nn.Parameter)
        return
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield prefix + name, parameter, False
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in module._non_persistent_buffers_set:
            yield prefix + name, buffer, True
    if below:
        for name, child in module._modules.items():
            if child is not None:
                yield from tensors_of(child, prefix=f"{prefix}{name}.")


def spec_of(name: str, tensor: Tensor, is_buffer: bool) -> TensorSpec:
    """Return the tensor's shape and dtype; one whose shape is not known yet has shape ()."""
    shape = () if is_lazy(tensor) else tuple(tensor.shape)
    return TensorSpec(
        name=name,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=shape,
        byte_count=0 if is_lazy(tensor) else math.prod(shape) * tensor.dtype.itemsize,
        is_buffer=is_buffer,
    )


def encode(value: object) -> object:
    """Return a constant as JSON that tells it from any other.

    Raises:
        NotPlain: it is none of numbers, text, lists, dtypes, functions …
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, enum.Enum):
        return {"enum": f"{type(value).__qualname__}.{value.name}"}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {"object": [[encode(key), encode(item)] for key, item in value.items()]}
    return _encode_rare(value)


def _encode_or_type(value: object) -> object:
    try:
        return encode(value)
    except NotPlain:
        return {"type": _name(type(value))}


def _encode_rare(value: object) -> object:
    if isinstance(value, slice):
        return {"slice": [encode(value.start), encode(value.stop), encode(value.step)]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, complex):
        return {"complex": [encode(value.real), encode(value.imag)]}
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return {"torch": str(value)}
    if value is ...:
        return {"ellipsis": True}
    if isinstance(value, nn.Module):
        return {"module": op_of(value)}
    if callable(value) and hasattr(value, "__name__"):
        return {"function": f"{getattr(value, '__module__', '')}.{_name(value)}"}
    raise NotPlain(f"a {type(value).__name__} has no form in JSON")


def _name(value: object) -> str:
    return str(getattr(value, "__qualname__", getattr(value, "__name__", "")))


@functools.lru_cache(maxsize=1024)
def _declared(cls: type) -> tuple[str, ...]:
    names = dict.fromkeys(inspect.signature(cls).parameters)
    names |= dict.fromkeys(getattr(cls, "__constants__", ()))
    return tuple(sorted(set(names) - _NOT_ATTRIBUTES))


@functools.lru_cache(maxsize=1024)
def _snake(name: str) -> str:
    for spelling, plain in _SPELLINGS:
        name = name.replace(spelling, plain)
    return _WORD.sub("_", name).lower()
