"""Normalisations: a mean, a variance, then a scale and a shift.

Operations an element, by convention: a mean 1, a variance 3, a subtraction with a division 2, a
learned scale and shift 2, a root of mean squares 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mmdb.graph.ops.op_graph import Operation, Value
from mmdb.plan.work.counts import Counted, Part
from mmdb.plan.work.rules.parts import Rule, optional, output, tensor, with_gradient
from mmdb.plan.work.tensors import Tensors

_FLOAT = 4


def batch_norm(op: Operation, t: Tensors) -> Counted:
    """Over batch and space; without statistics of the batch it is a scale and a shift."""
    x = tensor(op, "input")
    channels = t.shape(x)[1] if len(t.shape(x)) > 1 else 1
    space = prod(t.shape(x)[2:])
    if not op.arguments["training"]:
        return _norm(
            op, t, forward=2, backward=4, passes=1, rows=channels, statistics=0, window=space
        )
    return _norm(op, t, forward=6, backward=9, passes=2, rows=channels, statistics=2, window=space)


def layer_norm(op: Operation, t: Tensors) -> Counted:
    """Over the last axes."""
    x = tensor(op, "input")
    shape = op.arguments["normalized_shape"]
    assert isinstance(shape, tuple)
    rows = t.elements(x) // max(1, prod(int(size) for size in shape))
    affine = 2 if optional(op, "weight") is not None else 0
    return _norm(op, t, forward=6 + affine, backward=11, passes=2, rows=rows, statistics=2)


def group_norm(op: Operation, t: Tensors) -> Counted:
    """Over space and the channels of a group, of each row."""
    x = tensor(op, "input")
    groups = op.arguments.get("num_groups")
    count = int(groups) if isinstance(groups, int) else t.shape(x)[1]
    affine = 2 if optional(op, "weight") is not None else 0
    rows = t.shape(x)[0] * count
    return _norm(op, t, forward=6 + affine, backward=11, passes=2, rows=rows, statistics=2)


def rms_norm(op: Operation, t: Tensors) -> Counted:
    """Over the last axes, without a mean."""
    x = tensor(op, "input")
    width = t.shape(x)[-1] if t.shape(x) else 1
    affine = 1 if optional(op, "weight") is not None else 0
    rows = t.elements(x) // max(1, width)
    return _norm(op, t, forward=3 + affine, backward=8, passes=2, rows=rows, statistics=1)


def _norm(
    op: Operation,
    t: Tensors,
    *,
    forward: int,
    backward: int,
    passes: int,
    rows: int,
    statistics: int,
    window: int = 0,
) -> Counted:
    """Count operations an element of `rows` norms, each of which keeps some statistics."""
    x, y = tensor(op, "input"), output(op)
    learned = [optional(op, "weight"), optional(op, "bias")]
    small = sum(t.bytes(one) for one in learned if one is not None)
    n, size = t.elements(x), t.bytes(x)
    kept = statistics * rows * _FLOAT
    sides = (rows, n // max(1, rows), 0)
    parts = (
        Part(
            kind="normalisation", flops=forward * n, read=passes * size + small,
            written=t.bytes(y) + kept, sides=sides,
            window=window,
        ),
    )  # fmt: skip
    gradients = with_gradient((x, *learned), t)
    weight: tuple[Value, ...] = tuple(one for one in learned[:1] if one is not None)
    back = Part(
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


RULES: Mapping[str, Rule] = {
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "instance_norm": group_norm,
    "rms_norm": rms_norm,
}
