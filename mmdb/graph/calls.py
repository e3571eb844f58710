"""One call of a forward pass, in a form that does not depend on how the call was written.

`nn.ReLU()`, `F.relu`, `torch.relu` and `x.relu_()` are the same op with the same attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from mmdb.graph.describe import encode

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
class Call:
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
    inputs: list[Call] = field(default_factory=list)
    attributes: dict[str, object] = field(default_factory=dict)
    tensors: list[tuple[str, Tensor, bool]] = field(default_factory=list)
    module: nn.Module | None = None
    follows_training: object = None
    rewrites: Call | None = None
    is_plain: bool = True

    @property
    def name(self) -> str:
        """What torch.fx shows of it."""
        return self.op


def name_of(target: str) -> tuple[str, bool]:
    """Return the op that a function or method is, and whether it works in place.

    >>> name_of("relu_"), name_of("iadd"), name_of("concat"), name_of("__getitem__")
    (('relu', True), ('add', True), ('cat', False), ('__getitem__', False))
    """
    in_place = target in _IN_PLACE_OPERATORS or (target[-1] == "_" and target[-2:] != "__")
    name = _IN_PLACE_OPERATORS.get(target, target.rstrip("_") if in_place else target)
    return _SYNONYMS.get(name, name), in_place


def of_function(target: str, args: Sequence[object], kwargs: Mapping[str, object]) -> Call:
    """Return the call of a function or method; calls stand for tensors among the arguments.

    Raises:
        NotPlain: an argument has no form in JSON.
    """
    op, in_place = name_of(target)
    kwargs = dict(kwargs)
    in_place = bool(kwargs.pop("inplace", False)) or in_place
    first = args[0] if args else None
    rewrites = first if in_place and isinstance(first, Call) else None
    call = _binary(op, args, kwargs) or _known(op, args, kwargs) or _any(op, args, kwargs)
    call.rewrites = rewrites
    return call


def of_module(
    op: str,
    attributes: Mapping[str, object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> Call:
    """Return the call of a leaf; how it was called is an attribute unless by tensors alone."""
    call = _any(op, args, kwargs)
    plain = {"call": call.attributes} if call.attributes else {}
    call.attributes = {**attributes, **plain}
    return call


def _binary(op: str, args: Sequence[object], kwargs: Mapping[str, object]) -> Call | None:
    """Return a sum or product of two, whichever stands first."""
    if op not in ("add", "mul") or len(args) != 2 or kwargs:
        return None
    calls = [arg for arg in args if isinstance(arg, Call)]
    constants = [arg for arg in args if isinstance(arg, int | float)]
    if len(calls) == 2:
        return Call(op=op, inputs=calls)
    if len(calls) == len(constants) == 1:
        return Call(op=op, inputs=calls, attributes={"other": encode(constants[0])})
    return None


def _known(op: str, args: Sequence[object], kwargs: Mapping[str, object]) -> Call | None:
    """Return the call with every argument by its name, or None if it is of another form."""
    if op not in _ARGUMENTS or not args:
        return None
    first = list(args[0]) if op == "cat" and isinstance(args[0], list | tuple) else [args[0]]
    if not first or not all(isinstance(item, Call) for item in first):
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
    inputs = [item for item in first if isinstance(item, Call)]
    return Call(op=op, inputs=inputs, attributes=attributes, follows_training=follows)


def _any(op: str, args: Sequence[object], kwargs: Mapping[str, object]) -> Call:
    """Return the call with its arguments as they are, {"input": k} in place of each tensor."""
    inputs: list[Call] = []
    written = [_template(arg, inputs) for arg in args]
    named = {name: _template(value, inputs) for name, value in sorted(kwargs.items())}
    if not named and all(isinstance(arg, Call) for arg in args):
        return Call(op=op, inputs=inputs)
    attributes: dict[str, object] = {"args": written}
    if named:
        attributes["kwargs"] = named
    return Call(op=op, inputs=inputs, attributes=attributes)


def _template(value: object, inputs: list[Call]) -> object:
    if isinstance(value, Call):
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
    return isinstance(value, Call)


def reached(calls: Iterable[Call], ends: Iterable[Call]) -> set[int]:
    """Return the ids of the calls that any of `ends` depends on; `calls` are in order."""
    needed = {id(call) for call in ends}
    for call in reversed(list(calls)):
        if id(call) in needed:
            needed.update(id(source) for source in call.inputs)
    return needed
