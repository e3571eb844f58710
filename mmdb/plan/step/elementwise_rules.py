"""The rules of functions of each element, and of normalisations."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Literal, NamedTuple

from mmdb.graph.ops.op_graph import Operation, Value
from mmdb.plan.step.counts import (
    Counted,
    KernelWork,
    OperationKind,
    Rule,
    gradient_sum,
    optional,
    output,
    read_bytes,
    tensor,
    with_gradient,
    written_bytes,
)
from mmdb.plan.step.tensor_sizes import TensorSizes

_Kept = Literal["input", "result", ""]


class _Unary(NamedTuple):
    forward: OperationKind
    kept: _Kept  # what the backward reads beside the gradient
    backward: OperationKind = "elementwise"


def _names(text: str, unary: _Unary) -> dict[str, _Unary]:
    return dict.fromkeys(text.split(), unary)


_CHEAP: OperationKind = "elementwise"
_DEAR: OperationKind = "transcendental"
UNARY: Mapping[str, _Unary] = {
    **_names("neg floor ceil round trunc sign positive nan_to_num", _Unary(_CHEAP, "")),
    **_names("relu sqrt rsqrt reciprocal", _Unary(_CHEAP, "result")),
    **_names(
        "abs square clamp clamp_min clamp_max hardtanh hardswish hardsigmoid leaky_relu threshold"
        " hardshrink softshrink relu6",
        _Unary(_CHEAP, "input"),
    ),
    **_names("exp tanh sigmoid expm1 tan exp2", _Unary(_DEAR, "result")),
    **_names("log log1p log2 log10 asin acos atan asinh acosh atanh", _Unary(_DEAR, "input")),
    **_names(
        "gelu silu mish softplus elu selu celu erf erfc erfinv sin cos sinc log_sigmoid softsign",
        _Unary(_DEAR, "input", _DEAR),
    ),
}
#: Where the gradient of each factor is the gradient itself.
_SUMS = frozenset({"add", "sub", "rsub", "add_n", "__radd__"})
_PRODUCTS = frozenset({"mul", "div", "true_divide", "maximum", "minimum", "atan2", "fmod"})
_MASKS = frozenset(
    """
    eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or
    bitwise_not bitwise_xor isnan isinf isfinite floor_divide remainder one_hot tril triu
    bitwise_left_shift bitwise_right_shift __and__ __or__ __lshift__ __rshift__
    """.split()
)


def unary(op: Operation, t: TensorSizes) -> Counted:
    """One function of each element."""
    kind, kept, backward = UNARY[op.op]
    x, y = next(iter(op.reads)), output(op)
    saves = {"input": (x,), "result": (y,), "": ()}[kept]
    back = KernelWork(
        kind=backward, flops=t.elements(x), read=t.bytes(y) + (t.bytes(x) if kept else 0),
        written=t.bytes(x),
    )  # fmt: skip
    return Counted(
        forward=(KernelWork(kind=kind, flops=t.elements(y), read=t.bytes(x), written=t.bytes(y)),),
        backward=(back,) if t.needs_gradient(x) and op.op not in _STEPS else (),
        saves=saves if t.needs_gradient(x) else (),
    )


_STEPS = frozenset({"floor", "ceil", "round", "trunc", "sign"})


def softmax(op: Operation, t: TensorSizes) -> Counted:
    """Exponentials, with their largest, their sum and a division: 5 operations an element."""
    x, y = next(iter(op.reads)), output(op)
    n, size = t.elements(y), t.bytes(y)
    return Counted(
        forward=(
            KernelWork(kind="transcendental", flops=5 * n, read=2 * t.bytes(x), written=size),
        ),
        backward=(KernelWork(kind="transcendental", flops=4 * n, read=2 * size, written=size),)
        if t.needs_gradient(x)
        else (),
        saves=(y,),
    )


def total(op: Operation, t: TensorSizes) -> Counted:
    """A sum or difference: its gradients are the result's, summed where a factor was repeated."""
    y = output(op)
    backward: list[KernelWork] = []
    for one in with_gradient(op.reads, t):
        backward += gradient_sum(one, y, t) or (KernelWork(kind="view"),)
    return Counted(forward=(_forward(op, t),), backward=tuple(backward))


def binary(op: Operation, t: TensorSizes) -> Counted:
    """A product, quotient or choice: each gradient takes the other factor."""
    reads, y = list(op.reads), output(op)
    gradients = with_gradient(reads, t)
    backward: list[KernelWork] = []
    for one in gradients:
        others = sum(t.bytes(other) for other in reads if other is not one)
        read = t.bytes(y) + others
        backward.append(
            KernelWork(kind="elementwise", flops=t.elements(y), read=read, written=t.bytes(y))
        )
        backward += gradient_sum(one, y, t)
    kept: list[Value] = []
    if op.op == "mul":
        kept = [one for one in reads if any(other is not one for other in gradients)]
        kept += [one for one in gradients if reads.count(one) > 1]
    elif op.op in ("div", "true_divide"):
        divisor = reads[-1] if isinstance(op.arguments.get("other"), Value) else None
        if divisor is not None and t.needs_gradient(divisor):
            kept = reads
        elif divisor is not None and gradients:
            kept = [divisor]
    elif gradients:
        kept = reads
    return Counted(forward=(_forward(op, t),), backward=tuple(backward), saves=tuple(kept))


def power(op: Operation, t: TensorSizes) -> Counted:
    """A power: by 2 or 0.5 cheap, by others a logarithm and an exponential."""
    exponent = op.arguments.get("exponent")
    kind: OperationKind = (
        "elementwise" if exponent in (2, 3, 0.5, -0.5, -1, 1) else "transcendental"
    )
    found = binary(op, t)
    forward = _forward(op, t)
    return Counted(
        forward=(
            KernelWork(kind=kind, flops=forward.flops, read=forward.read, written=forward.written),
        ),
        backward=found.backward,
        saves=found.saves,
    )


def choice(op: Operation, t: TensorSizes) -> Counted:
    """Where a mask is set one tensor, elsewhere another: the mask is kept."""
    mask = tensor(op, "condition" if op.op == "where" else "mask")
    y = output(op)
    gradients = with_gradient((one for one in op.reads if one != mask), t)
    backward: list[KernelWork] = []
    for one in gradients:
        backward.append(
            KernelWork(
                kind="elementwise", flops=t.elements(y), read=t.bytes(y) + t.bytes(mask),
                written=t.bytes(y),
            )
        )  # fmt: skip
        backward += gradient_sum(one, y, t)
    saves = (mask,) if gradients else ()
    return Counted(forward=(_forward(op, t),), backward=tuple(backward), saves=saves)


def fused(op: Operation, t: TensorSizes) -> Counted:
    """self + value x one x other, or its quotient, or an interpolation: two or three at once."""
    found, forward = binary(op, t), _forward(op, t)
    twice = KernelWork(
        kind="elementwise", flops=2 * forward.flops, read=forward.read, written=forward.written
    )
    return Counted(forward=(twice,), backward=found.backward, saves=found.saves)


def mask(op: Operation, t: TensorSizes) -> Counted:
    """A comparison, or an operation on integers: no gradient."""
    return Counted(forward=(_forward(op, t),))


def dropout(op: Operation, t: TensorSizes) -> Counted:
    """Noise is drawn and scaled, the product with it taken; the noise is kept, one float each."""
    x, y = next(iter(op.reads)), output(op)
    n, size = t.elements(x), t.bytes(x)
    drawn = KernelWork(kind="random", flops=n, written=size)
    scaled = KernelWork(kind="elementwise", flops=n, read=size, written=size)
    taken = KernelWork(kind="elementwise", flops=n, read=2 * size, written=t.bytes(y))
    needed = t.needs_gradient(x)
    return Counted(
        forward=(drawn, scaled, taken),
        backward=(taken,) if needed else (),
        saved_bytes=size if needed else 0,
        workspace=size,
    )


def prelu(op: Operation, t: TensorSizes) -> Counted:
    """A slope below zero that is learned, of all or of each channel."""
    x, weight, y = *list(op.reads)[:2], output(op)
    size = t.bytes(y)
    read = size + t.bytes(x) + t.bytes(weight)
    back = KernelWork(kind="elementwise", flops=2 * t.elements(y), read=read, written=2 * size)
    backward = (back, *gradient_sum(weight, y, t)) if with_gradient((x, weight), t) else ()
    return Counted(forward=(_forward(op, t),), backward=backward, saves=(x, weight))


def glu(op: Operation, t: TensorSizes) -> Counted:
    """One half of a tensor times the sigmoid of the other."""
    x, y = next(iter(op.reads)), output(op)
    n = t.elements(y)
    forward = KernelWork(kind="transcendental", flops=2 * n, read=t.bytes(x), written=t.bytes(y))
    back = KernelWork(
        kind="transcendental", flops=4 * n, read=t.bytes(x) + t.bytes(y), written=t.bytes(x)
    )
    needed = t.needs_gradient(x)
    return Counted(
        forward=(forward,), backward=(back,) if needed else (), saves=(x,) if needed else ()
    )


def _forward(op: Operation, t: TensorSizes) -> KernelWork:
    return KernelWork(
        kind="elementwise", flops=t.elements(output(op)), read=read_bytes(op, t),
        written=written_bytes(op, t),
    )  # fmt: skip


POINTWISE_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(UNARY, unary),
    **dict.fromkeys(_SUMS, total),
    **dict.fromkeys(_PRODUCTS, binary),
    **dict.fromkeys(_MASKS, mask),
    **dict.fromkeys(("softmax", "log_softmax"), softmax),
    **dict.fromkeys(("where", "masked_fill"), choice),
    **dict.fromkeys(("addcmul", "addcdiv", "lerp"), fused),
    "pow": power,
    "bernoulli": dropout,
    "prelu": prelu,
    "glu": glu,
}


_FLOAT = 4


def batch_norm(op: Operation, t: TensorSizes) -> Counted:
    """Over batch and space; without statistics of the batch it is a scale and a shift."""
    x = tensor(op, "input")
    channels = t.shape(x)[1] if len(t.shape(x)) > 1 else 1
    space = prod(t.shape(x)[2:])
    if not op.arguments["training"]:
        return _norm(
            op, t, forward=2, backward=4, passes=1, rows=channels, statistics=0, window=space
        )
    return _norm(op, t, forward=6, backward=9, passes=2, rows=channels, statistics=2, window=space)


def layer_norm(op: Operation, t: TensorSizes) -> Counted:
    """Over the last axes."""
    x = tensor(op, "input")
    shape = op.arguments["normalized_shape"]
    assert isinstance(shape, tuple)
    rows = t.elements(x) // max(1, prod(int(size) for size in shape))
    affine = 2 if optional(op, "weight") is not None else 0
    return _norm(op, t, forward=6 + affine, backward=11, passes=2, rows=rows, statistics=2)


def group_norm(op: Operation, t: TensorSizes) -> Counted:
    """Over space and the channels of a group, of each row."""
    x = tensor(op, "input")
    groups = op.arguments.get("num_groups")
    count = int(groups) if isinstance(groups, int) else t.shape(x)[1]
    affine = 2 if optional(op, "weight") is not None else 0
    rows = t.shape(x)[0] * count
    return _norm(op, t, forward=6 + affine, backward=11, passes=2, rows=rows, statistics=2)


def rms_norm(op: Operation, t: TensorSizes) -> Counted:
    """Over the last axes, without a mean."""
    x = tensor(op, "input")
    width = t.shape(x)[-1] if t.shape(x) else 1
    affine = 1 if optional(op, "weight") is not None else 0
    rows = t.elements(x) // max(1, width)
    return _norm(op, t, forward=3 + affine, backward=8, passes=2, rows=rows, statistics=1)


def _norm(
    op: Operation,
    t: TensorSizes,
    *,
    forward: int,
    backward: int,
    passes: int,
    rows: int,
    statistics: int,
    window: int = 0,
) -> Counted:
    """Count operations an element of `rows` norms, each of which keeps some statistics.

    Operations an element, by convention: a mean 1, a variance 3, a subtraction with a division 2, a
    learned scale and shift 2, a root of mean squares 2.
    """
    x, y = tensor(op, "input"), output(op)
    learned = [optional(op, "weight"), optional(op, "bias")]
    small = sum(t.bytes(one) for one in learned if one is not None)
    n, size = t.elements(x), t.bytes(x)
    kept = statistics * rows * _FLOAT
    sides = (rows, n // max(1, rows), 0)
    parts = (
        KernelWork(
            kind="normalisation", flops=forward * n, read=passes * size + small,
            written=t.bytes(y) + kept, sides=sides,
            window=window,
        ),
    )  # fmt: skip
    gradients = with_gradient((x, *learned), t)
    weight: tuple[Value, ...] = tuple(one for one in learned[:1] if one is not None)
    back = KernelWork(
        kind="normalisation", flops=backward * n, read=passes * (size + t.bytes(y)) + small + kept,
        written=sum(t.bytes(one) for one in gradients), sides=sides,
        window=window,
    )  # fmt: skip
    return Counted(
        forward=parts,
        backward=(back,) if gradients else (),
        saves=(x, *weight) if gradients else (),
        saved_bytes=kept if gradients else 0,
    )


NORM_RULES: Mapping[str, Rule] = {
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "instance_norm": group_norm,
    "rms_norm": rms_norm,
}
