"""The form of one call of a forward, and of the module that it calls.

A call's form does not depend on how it was written: `nn.ReLU()`, `F.relu`, `torch.relu` and
`x.relu_()` are the same op with the same attributes. A module's form is its op, its attributes and
the tensors it owns.
"""

from __future__ import annotations

import enum
import functools
import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mmdb.graph import vocabulary
from mmdb.graph.factories import Position
from mmdb.graph.trace.structure import TensorSpec

# Modules of torch.nn that run others; their forward is followed.
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
# Ours that stand in a layer graph as one op, though their forward could not be followed.
_OWN_LEAVES = (vocabulary.Embedding, vocabulary.SelfAttention, Position)
# They say how a layer is computed or where it lies, not what it is.
_NOT_ATTRIBUTES = frozenset({"self", "args", "kwargs", "device", "dtype", "inplace"})
_SPELLINGS = (("PReLU", "Prelu"), ("RReLU", "Rrelu"), ("ReLU", "Relu"), ("SiLU", "Silu"))
# Modules that have moved, by the names that hashes know.
_HASHED_AS = {
    "mmdb.graph.vocabulary": "mmdb.graph.ops",
    "mmdb.graph.spec.layer_graph": "mmdb.graph.layer_module",
    "mmdb.graph.spec.head": "mmdb.graph.cut.head",
}
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
        return f"{_HASHED_AS.get(cls.__module__, cls.__module__)}.{cls.__qualname__}"
    if cls is vocabulary.SelfAttention:
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


# Other names of one operation.
_SYNONYMS = {
    "concat": "cat",
    "concatenate": "cat",
    "multiply": "mul",
    "subtract": "sub",
    "truediv": "div",
    "true_divide": "div",
    "divide": "div",
    "negative": "neg",
    "absolute": "abs",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "reshape_as": "view_as",
}
_IN_PLACE_OPERATORS = {
    f"i{name}": name for name in ("add", "sub", "mul", "truediv", "pow", "matmul")
}
_REQUIRED = object()
# Arguments after the tensor, with torch's defaults; they become attributes by name.
_ARGUMENTS: dict[str, dict[str, object]] = {
    "relu": {},
    "relu6": {},
    "silu": {},
    "tanh": {},
    "sigmoid": {},
    "hardswish": {},
    "hardsigmoid": {},
    "gelu": {"approximate": "none"},
    "leaky_relu": {"negative_slope": 0.01},
    "elu": {"alpha": 1.0},
    "softmax": {"dim": _REQUIRED},
    "log_softmax": {"dim": _REQUIRED},
    "dropout": {"p": 0.5},
    "dropout2d": {"p": 0.5},
    "flatten": {"start_dim": 0, "end_dim": -1},
    "unflatten": {"dim": _REQUIRED, "unflattened_size": _REQUIRED},
    "mean": {"dim": None, "keepdim": False},
    "transpose": {"dim0": _REQUIRED, "dim1": _REQUIRED},
    "cat": {"dim": 0},
    "adaptive_avg_pool1d": {"output_size": _REQUIRED},
    "adaptive_avg_pool2d": {"output_size": _REQUIRED},
    "max_pool1d": {"kernel_size": _REQUIRED, "stride": None, "padding": 0, "dilation": 1,
                   "ceil_mode": False, "return_indices": False},
    "max_pool2d": {"kernel_size": _REQUIRED, "stride": None, "padding": 0, "dilation": 1,
                   "ceil_mode": False, "return_indices": False},
    "avg_pool1d": {"kernel_size": _REQUIRED, "stride": None, "padding": 0, "ceil_mode": False,
                   "count_include_pad": True},
    "avg_pool2d": {"kernel_size": _REQUIRED, "stride": None, "padding": 0, "ceil_mode": False,
                   "count_include_pad": True, "divisor_override": None},
}  # fmt: skip
# What may stand in a call at these values and says nothing.
_NEUTRAL: dict[str, object] = {"dtype": None, "out": None, "_stacklevel": 3}
_SPELLED: dict[str, str] = {"sizes": "unflattened_size", "axis": "dim"}


@dataclass(eq=False, slots=True, kw_only=True)
class ForwardCall:
    """A node before it has a number.

    Args:
        inputs: the calls whose results it reads, in the order of its arguments.
        tensors: name, tensor and whether it is a buffer, of what it owns or reads.
        module: the leaf that was called, if it was one.
        follows_training: the `training` argument of a functional dropout.
        rewrites: the call whose result it changes in place.
        is_plain: False if gradients were off, or autocast on, for this call alone.
    """

    op: str
    path: str = ""
    inputs: list[ForwardCall] = field(default_factory=list)
    attributes: dict[str, object] = field(default_factory=dict)
    tensors: list[tuple[str, Tensor, bool]] = field(default_factory=list)
    module: nn.Module | None = None
    follows_training: object = None
    rewrites: ForwardCall | None = None
    is_plain: bool = True

    @property
    def name(self) -> str:
        """The name that torch.fx shows."""
        return self.op


def name_of(target: str) -> tuple[str, bool]:
    """Return the op that a function or method is, and whether it works in place.

    >>> name_of("relu_"), name_of("iadd"), name_of("concat"), name_of("__getitem__")
    (('relu', True), ('add', True), ('cat', False), ('__getitem__', False))
    """
    in_place = target in _IN_PLACE_OPERATORS or (target[-1] == "_" and target[-2:] != "__")
    name = _IN_PLACE_OPERATORS.get(target, target.rstrip("_") if in_place else target)
    return _SYNONYMS.get(name, name), in_place


def of_function(target: str, args: Sequence[object], kwargs: Mapping[str, object]) -> ForwardCall:
    """Return the call of a function or method; calls stand for tensors among the arguments.

    Raises:
        NotPlain: an argument has no form in JSON.
    """
    op, in_place = name_of(target)
    kwargs = dict(kwargs)
    in_place = bool(kwargs.pop("inplace", False)) or in_place
    first = args[0] if args else None
    rewrites = first if in_place and isinstance(first, ForwardCall) else None
    call = _binary(op, args, kwargs) or _known(op, args, kwargs) or _any(op, args, kwargs)
    call.rewrites = rewrites
    return call


def of_module(
    op: str,
    attributes: Mapping[str, object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> ForwardCall:
    """Return the call of a leaf; how it was called is an attribute unless by tensors alone."""
    call = _any(op, args, kwargs)
    plain = {"call": call.attributes} if call.attributes else {}
    call.attributes = {**attributes, **plain}
    return call


def _binary(op: str, args: Sequence[object], kwargs: Mapping[str, object]) -> ForwardCall | None:
    """Return a sum or product of two, whichever stands first."""
    if op not in ("add", "mul") or len(args) != 2 or kwargs:
        return None
    calls = [arg for arg in args if isinstance(arg, ForwardCall)]
    constants = [arg for arg in args if isinstance(arg, int | float)]
    if len(calls) == 2:
        return ForwardCall(op=op, inputs=calls)
    if len(calls) == len(constants) == 1:
        return ForwardCall(op=op, inputs=calls, attributes={"other": encode(constants[0])})
    return None


def _known(op: str, args: Sequence[object], kwargs: Mapping[str, object]) -> ForwardCall | None:
    """Return the call with every argument by its name, or None if it is of another form."""
    if op not in _ARGUMENTS or not args:
        return None
    first = list(args[0]) if op == "cat" and isinstance(args[0], list | tuple) else [args[0]]
    if not first or not all(isinstance(item, ForwardCall) for item in first):
        return None
    names = list(_ARGUMENTS[op])
    given = {_SPELLED.get(name, name): value for name, value in kwargs.items()}
    follows = given.pop("training", None)
    rest = list(args[1:])
    if op in ("dropout", "dropout2d") and len(rest) == 2:
        follows = rest.pop()
    if op == "mean" and len(rest) > 2:
        return None
    if len(rest) > len(names) or any(name in given for name in names[: len(rest)]):
        return None
    given.update(zip(names, rest, strict=False))
    for name, neutral in _NEUTRAL.items():
        if name in given and given[name] == neutral:
            del given[name]
    values = {**_ARGUMENTS[op], **given}
    if values.keys() != set(names) or any(_holds_call(value) for value in values.values()):
        return None
    if _REQUIRED in values.values():
        return None
    if op == "mean" and isinstance(values["dim"], int):
        values["dim"] = [values["dim"]]
    if values.get("stride", 0) is None:
        values["stride"] = values["kernel_size"]
    attributes = {name: encode(value) for name, value in values.items()}
    inputs = [item for item in first if isinstance(item, ForwardCall)]
    return ForwardCall(op=op, inputs=inputs, attributes=attributes, follows_training=follows)


def _any(op: str, args: Sequence[object], kwargs: Mapping[str, object]) -> ForwardCall:
    """Return the call with its arguments as they are, {"input": k} in place of each tensor."""
    inputs: list[ForwardCall] = []
    written = [_template(arg, inputs) for arg in args]
    named = {name: _template(value, inputs) for name, value in sorted(kwargs.items())}
    if not named and all(isinstance(arg, ForwardCall) for arg in args):
        return ForwardCall(op=op, inputs=inputs)
    attributes: dict[str, object] = {"args": written}
    if named:
        attributes["kwargs"] = named
    return ForwardCall(op=op, inputs=inputs, attributes=attributes)


def _template(value: object, inputs: list[ForwardCall]) -> object:
    if isinstance(value, ForwardCall):
        inputs.append(value)
        return {"input": len(inputs) - 1}
    if isinstance(value, list | tuple):
        return [_template(item, inputs) for item in value]
    if isinstance(value, dict):
        items = [[encode(key), _template(item, inputs)] for key, item in value.items()]
        return {"object": items}
    if isinstance(value, slice):
        ends = (value.start, value.stop, value.step)
        return {"slice": [_template(end, inputs) for end in ends]}
    return encode(value)


def _holds_call(value: object) -> bool:
    if isinstance(value, dict):
        return _holds_call(list(value.values()))
    if isinstance(value, list | tuple):
        return any(_holds_call(item) for item in value)
    return isinstance(value, ForwardCall)
