"""Which kind of layer an operation on weights is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mmdb.graph.flow.flow import Flow, Operation, Value

#: Elementwise operations of a layer that is a bare parameter.
SCALES, SHIFTS = frozenset({"mul", "div", "pow"}), frozenset({"add", "sub", "rsub"})
NORMS = frozenset({"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"})
#: Kinds through which a projection is still seen.
THIN = NORMS | {"scale", "bias"}
_TABLES = frozenset({"embedding", "embedding_bag", "index", "index_select", "gather", "take"})
_PRODUCTS = frozenset({"matmul", "addmm", "baddbmm", "_grouped_mm", "einsum"})
_NAMED = frozenset({"convolution", "linear", "lstm", "gru", "rnn_tanh", "rnn_relu", "prelu"})
_ABSORBING = SCALES | SHIFTS | NORMS | _TABLES | _PRODUCTS | _NAMED
#: Arguments that are a layer's tensors under their own names.
_ROLES = frozenset({"weight", "bias", "running_mean", "running_var"})
_RENAMED = {("addmm", "self"): "bias", ("addmm", "mat2"): "weight"}
_BACK = 24  # operations that a norm by hand has at most


def is_layer(op: Operation, weights: Sequence[Value], dynamic: Sequence[Value]) -> bool:
    """Whether the operation and the weights that it reads are a layer.

    Args:
        weights: those of its arguments that follow from parameters alone.
        dynamic: its other arguments.
    """
    if op.op in SCALES | SHIFTS:
        return len(dynamic) == 1 == len(weights)
    if op.op in _TABLES:
        return any(op.arguments.get(name) in weights for name in ("weight", "self"))
    return op.op in _ABSORBING


def kind_of(
    op: Operation, weights: Sequence[Value], flow: Flow, is_dynamic: Callable[[int], bool]
) -> str:
    """Return the kind of a layer, of one that `is_layer`."""
    shape = flow.shape_of(weights[0])
    if op.op == "convolution":
        return _convolution(op, flow)
    if op.op in _TABLES:
        return "embedding"
    if op.op in SCALES:
        return _norm_by_hand(op, flow, is_dynamic) if _dims(shape) == 1 else "scale"
    if op.op in SHIFTS:
        return "embedding" if _dims(shape) > 1 else "bias"
    if op.op in ("matmul", "addmm", "baddbmm", "_grouped_mm"):
        return _product(op, weights, flow)
    return op.op


def weight_of(op: Operation, weights: Sequence[Value]) -> Value | None:
    """Return the argument whose shape is the layer's."""
    if op.op in NORMS:
        found = op.arguments.get("weight")
    else:
        found = op.arguments.get("weight", op.arguments.get("mat2"))
    if isinstance(found, Value):
        return found
    return None if op.op in NORMS else weights[0]


def role_of(op: Operation, argument: str, path: str) -> str:
    """Return the role of the tensor at `path` that is an argument itself."""
    if op.op in SCALES:
        return "weight"
    if op.op in SHIFTS:
        return "bias"
    if op.op in _TABLES and argument == "self":
        return "weight"
    argument = _RENAMED.get((op.op, argument), argument)
    return argument if argument in _ROLES else path.rpartition(".")[2]


def _convolution(op: Operation, flow: Flow) -> str:
    weight, x, groups = (op.arguments[name] for name in ("weight", "input", "groups"))
    assert isinstance(weight, Value) and isinstance(x, Value)
    n = len(flow.shape_of(weight)) - 2
    if op.arguments["transposed"]:
        return f"conv_transpose{n}d"
    channels = flow.shape_of(x)[1]
    return f"depthwise{n}d" if groups == channels and channels > 1 else f"conv{n}d"


def _product(op: Operation, weights: Sequence[Value], flow: Flow) -> str:
    weight = op.arguments.get("mat2") or op.arguments.get("batch2") or op.arguments.get("other")
    if weight not in weights:
        return "matmul_left"
    assert isinstance(weight, Value)
    return "linear_transposed" if len(flow.shape_of(weight)) < 3 else "batched_linear"


def _norm_by_hand(op: Operation, flow: Flow, is_dynamic: Callable[[int], bool]) -> str:
    """Return the norm that the scaling ends, "scale" if it ends none.

    A norm by hand divides by a root, in the same module; one that subtracts is a layer_norm.
    """
    waiting = [value.operation for value in op.reads if is_dynamic(value.operation)]
    seen: set[int] = set()
    ops: set[str] = set()
    while waiting and len(seen) < _BACK:
        number = waiting.pop()
        found = flow.operations[number]
        if number in seen or found.path != op.path or found.op in _ABSORBING - SCALES - SHIFTS:
            continue
        seen.add(number)
        ops.add(found.op)
        waiting += [value.operation for value in found.reads if is_dynamic(value.operation)]
    if not ops & {"rsqrt", "sqrt", "std"}:
        return "scale"
    return "layer_norm" if ops & {"sub", "var_mean", "std"} else "rms_norm"


def _dims(shape: Sequence[int]) -> int:
    """Return over how many dimensions a weight differs."""
    return sum(length != 1 for length in shape)
