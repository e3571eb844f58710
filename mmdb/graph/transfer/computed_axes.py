"""Which axes of results are which of the arguments': functions of elements, products, norms.

`axes_of` infers the spaces of all axes of an op graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from mmdb.graph.ops.op_graph import BUFFER, CONSTANT, INPUT, PARAMETER, Operation, OpGraph, Value
from mmdb.graph.transfer import op_kinds
from mmdb.graph.transfer.axis_terms import (
    FIXED,
    ONE,
    OUTPUT,
    PLACE,
    TABLE,
    AxisSpace,
    atom,
    concatenation,
    factor,
    find,
    join,
    mark,
    product,
    split,
)
from mmdb.graph.transfer.rearranged_axes import ARRANGEMENTS
from mmdb.graph.transfer.tensor_axes import Axes, Rule, Spaces, pin, reduced_dims


def _input(axes: Axes, op: Operation) -> list[Spaces]:
    return [tuple(atom(size, FIXED) for size in op.shape)]


def _constant(axes: Axes, op: Operation) -> list[Spaces]:
    if "uniform" in op.arguments:  # one number throughout: any of its elements is any other
        return [tuple(atom(size) for size in op.shape)]
    return _input(axes, op)


def _weights(axes: Axes, op: Operation) -> list[Spaces]:
    return [tuple(atom(size) for size in op.shape)]


def _elementwise(axes: Axes, op: Operation) -> list[Spaces]:
    found = axes.broadcast([axes[value] for value in op.reads], op.shape)
    return [found for _ in op.shapes]


def _prelu(axes: Axes, op: Operation) -> list[Spaces]:
    x, weight = axes.of(op, "self"), axes.of(op, "weight")
    if weight and weight[0].size > 1:
        join(x[1], weight[0])
    return [x]


def _glu(axes: Axes, op: Operation) -> list[Spaces]:
    x, dim = axes.of(op, "self"), cast("int", op.arguments["dim"])
    one, other = split(x[dim], x[dim].size // 2)
    join(one, other)
    dim %= len(x)
    return [(*x[:dim], one, *x[dim + 1 :])]


# -- products -------------------------------------------------------------------


def _linear(axes: Axes, op: Operation) -> list[Spaces]:
    x, (out, width) = axes.of(op, "input"), axes.of(op, "weight")
    join(x[-1], width)
    for space in axes.of(op, "bias"):
        join(out, space)
    return [(*x[:-1], out)]


def _matmul(axes: Axes, op: Operation) -> list[Spaces]:
    a, b = axes.of(op, "self"), axes.of(op, "other")
    join(a[-1], b[-2] if len(b) > 1 else b[0])
    rows = a[-2:-1]
    columns = b[-1:] if len(b) > 1 else ()
    ends = len(rows) + len(columns)
    shape = op.shape[: len(op.shape) - ends]
    return [(*axes.broadcast([a[:-2], b[:-2]], shape), *rows, *columns)]


def _addmm(axes: Axes, op: Operation) -> list[Spaces]:
    names = ("mat1", "mat2") if op.op == "addmm" else ("batch1", "batch2")
    a, b = (axes.of(op, name) for name in names)
    join(a[-1], b[-2])
    for one, other in zip(a[:-2], b[:-2], strict=True):
        join(one, other)
    return [axes.broadcast([(*a[:-1], b[-1]), axes.of(op, "self")], op.shape)]


def _einsum(axes: Axes, op: Operation) -> list[Spaces]:
    equation = cast("str", op.arguments["equation"]).replace(" ", "")
    left, _, right = equation.partition("->")
    known: dict[str, AxisSpace] = {}
    for letters, value in zip(left.split(","), op.reads, strict=True):
        for letter, space in zip(letters, axes[value], strict=True):
            join(known.setdefault(letter, space), space)
    return [tuple(known[letter] for letter in right)]


def _attention(axes: Axes, op: Operation) -> list[Spaces]:
    q, k, v = (axes.of(op, name) for name in ("query", "key", "value"))
    join(q[-1], k[-1])
    join(k[-2], v[-2])
    for one, other, third in zip(q[:-2], k[:-2], v[:-2], strict=True):
        if one.size != other.size and op.arguments.get("enable_gqa"):
            one, _ = factor(one, one.size // other.size)
        join(one, other)
        join(other, third)
    out = (*q[:-1], v[-1])
    if mask := axes.of(op, "attn_mask"):
        scores = (*q[:-1], k[-2])
        axes.broadcast([scores, mask], [space.size for space in scores])
    return [out]


def _convolution(axes: Axes, op: Operation) -> list[Spaces]:
    x, weight = axes.of(op, "input"), axes.of(op, "weight")
    groups = cast("int", op.arguments["groups"])
    transposed = bool(op.arguments["transposed"])
    for space in weight[2:]:
        mark(space, FIXED)
    axes.kernels.add(cast("Value", op.arguments["weight"]))
    taken, made = (weight[0], weight[1]) if transposed else (weight[1], weight[0])
    channels = x[1]
    if groups > 1:
        # The weight holds all groups in its first axis, and one of them in its second.
        group, width = factor(channels, channels.size // groups)
        other, rest = factor(weight[0], weight[0].size // groups)
        join(group, other)
        join(width, rest if transposed else taken)
        made = product((group, made)) if transposed else weight[0]
    else:
        join(channels, taken)
    for space in axes.of(op, "bias"):
        join(made, space)
    return [(x[0], made, *(atom(size, PLACE) for size in op.shape[2:]))]


def _embedding(axes: Axes, op: Operation) -> list[Spaces]:
    rows, width = axes.of(op, "weight")
    indices = op.arguments["indices"]
    assert isinstance(indices, Value)
    mark(rows, FIXED if indices.operation in axes.from_inputs else TABLE)
    return [(*axes[indices], width)]


def _recurrent(axes: Axes, op: Operation) -> list[Spaces]:
    x = axes.of(op, "input")
    states = op.arguments["hx"]
    states = states if isinstance(states, tuple) else (states,)
    hidden: list[AxisSpace] = []
    below = x[-1]
    for layer in recurrent_layers(op):
        made = []
        for weights in layer:
            own = atom(axes[weights[1]][1].size)
            gates = product((atom(axes[weights[0]][0].size // own.size, FIXED), own))
            join(axes[weights[0]][1], below)
            join(axes[weights[1]][1], own)
            for value in weights:
                join(axes[value][0], gates)
            made.append(find(own))
        hidden += made
        below = concatenation(made)
    read = [value for value in states if axes.flow.operations[value.operation].op != CONSTANT]
    last = [Value(op.ordinal, 1), Value(op.ordinal, 2)]
    if read or any(axes.readers[value] or value in axes.outputs for value in last):
        for space in (*hidden, *(axes[value][-1] for value in read)):
            join(hidden[0], space)
    ends = (atom(len(hidden), FIXED), *(x[:1] if op.arguments["batch_first"] else x[1:2]))
    return [(*x[:-1], below), (*ends, hidden[0]), (*ends, hidden[0])]


def recurrent_layers(op: Operation) -> list[list[tuple[Value, ...]]]:
    """Return the weights of each layer's directions: input, hidden and, if there are, two biases.

    Raises:
        ValueError: the layers have projections, or the input is packed.
    """
    params = cast("tuple[Value, ...]", op.arguments["params"])
    count = 4 if op.arguments["has_biases"] else 2
    directions = 2 if op.arguments["bidirectional"] else 1
    layers = cast("int", op.arguments["num_layers"])
    if len(params) != layers * directions * count:
        raise ValueError("weights of another kind")
    cells = [params[start : start + count] for start in range(0, len(params), count)]
    return [cells[start : start + directions] for start in range(0, len(cells), directions)]


# -- norms, pools, reductions -----------------------------------------------------


def _norm(axes: Axes, op: Operation) -> list[Spaces]:
    x = axes.of(op, "input")
    if op.op in ("layer_norm", "rms_norm"):
        count = len(cast("tuple[int, ...]", op.arguments["normalized_shape"]))
        for name in ("weight", "bias"):
            for one, other in zip(x[-count:], axes.of(op, name), strict=False):
                join(one, other)
        return [x]
    if op.op == "group_norm":
        factor(x[1], x[1].size // cast("int", op.arguments["num_groups"]))
    for name in ("weight", "bias", "running_mean", "running_var"):
        for space in axes.of(op, name):
            join(x[1], space)
    return [x]


def _per_channel(axes: Axes, op: Operation) -> list[Spaces]:
    x = axes[op.reads[0]]
    found = (*x[:2], *(atom(size, PLACE) for size in op.shape[2:]))
    return [found for _ in op.shapes]


def _reduction(axes: Axes, op: Operation) -> list[Spaces]:
    x = axes[op.reads[0]]
    gone = reduced_dims(op, len(x))
    if len(op.shape) == len(x):
        kept = tuple(ONE if dim in gone else space for dim, space in enumerate(x))
    else:
        kept = tuple(space for dim, space in enumerate(x) if dim not in gone)
    return [kept for _ in op.shapes]


def _along(axes: Axes, op: Operation) -> list[Spaces]:
    x = axes.of(op, "self")
    dims = op.arguments.get("dim", op.arguments.get("dims"))
    for dim in dims if isinstance(dims, tuple) else (dims,):
        pin(x[cast("int", dim)])
    return [x for _ in op.shapes]


def _triangle(axes: Axes, op: Operation) -> list[Spaces]:
    x = axes.of(op, "self")
    pin(x[-1])
    pin(x[-2])
    return [x]


def _like(axes: Axes, op: Operation) -> list[Spaces]:
    if op.op.endswith("_like") or op.op in ("fill", "zero"):
        return [axes[op.reads[0]]]
    return [tuple(atom(size) for size in op.shape)]


PRODUCTS: Mapping[str, Rule] = {
    **dict.fromkeys(op_kinds.ELEMENTWISE, _elementwise),
    **dict.fromkeys(("_weight_norm", "_weight_norm_interface"), _elementwise),
    **dict.fromkeys(op_kinds.STANDARDISING, _norm),
    **dict.fromkeys(op_kinds.PER_CHANNEL, _per_channel),
    **dict.fromkeys(op_kinds.REDUCTIONS, _reduction),
    **dict.fromkeys(op_kinds.ALONG, _along),
    **dict.fromkeys(op_kinds.FILLS, _like),
    **dict.fromkeys(op_kinds.RECURRENT, _recurrent),
    **dict.fromkeys(("triu", "tril"), _triangle),
    **dict.fromkeys(("addmm", "baddbmm"), _addmm),
    **dict.fromkeys((PARAMETER, BUFFER), _weights),
    INPUT: _input,
    CONSTANT: _constant,
    "prelu": _prelu,
    "glu": _glu,
    "linear": _linear,
    "matmul": _matmul,
    "einsum": _einsum,
    "scaled_dot_product_attention": _attention,
    "convolution": _convolution,
    "embedding": _embedding,
}


#: What a rule may raise for an operation in a form that it does not know.
_NOT_UNDERSTOOD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_RULES: Mapping[str, Rule] = {**PRODUCTS, **ARRANGEMENTS}


def axes_of(flow: OpGraph) -> Axes:
    """Return the spaces of all axes of an op graph, whatever is in it."""
    axes = Axes(flow)
    for op in flow.operations:
        rule = _RULES.get(op.op)
        try:
            axes.keep(op, rule(axes, op) if rule else None)
        except _NOT_UNDERSTOOD:
            axes.keep(op, None)
    for op in flow.operations:
        axes.mark(op)
    for value in flow.outputs:
        for space in axes[value]:
            mark(space, OUTPUT)
    return axes
