"""What computes nothing: views, copies, selections by index, tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from mmdb.graph.ops.op_graph import Operation
from mmdb.plan.work.counts import Counted, Part
from mmdb.plan.work.rules.parts import (
    Rule,
    optional,
    output,
    read_bytes,
    tensor,
    with_gradient,
    written_bytes,
)
from mmdb.plan.work.tensors import Tensors

#: Views whose gradient is a view.
_VIEWS = frozenset(
    """
    view permute squeeze unsqueeze view_as_real view_as_complex real imag diagonal as_strided
    unfold_view alias
    """.split()
)
#: Views of a part: the gradient is one of the whole, zero elsewhere.
_PARTS = frozenset({"slice", "select", "narrow"})
_SPLITS = frozenset({"split_with_sizes", "unbind", "chunk"})
_COPIES = frozenset(
    """
    _to_copy to roll flip repeat repeat_interleave pixel_shuffle pixel_unshuffle channel_shuffle
    constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d rot90 unfold im2col col2im diag_embed tile
    """.split()
)
_JOINS = frozenset({"cat", "stack"})
_PICKS = frozenset({"index", "index_select", "gather", "take", "take_along_dim", "masked_select"})
_PUTS = frozenset(
    """
    slice_scatter select_scatter as_strided_scatter index_put scatter scatter_add index_add
    masked_scatter index_copy scatter_reduce index_fill
    """.split()
)
_FILLS = frozenset(
    """
    zeros ones full arange eye zeros_like ones_like full_like empty_like new_zeros new_ones fill
    zero rand randn rand_like randn_like randint uniform normal linspace scalar_tensor
    """.split()
)


def view(op: Operation, t: Tensors) -> Counted:
    """Nothing moves, unless no strides describe the view: then all of it does."""
    x, y = next(iter(op.reads)), output(op)
    part = Part(kind="view")
    if op.op == "view" and t.storage(x) != t.storage(y):
        part = Part(kind="copy", read=t.bytes(x), written=t.bytes(y))
    return Counted(forward=(part,), backward=(part,) if t.needs_gradient(x) else ())


def part_of(op: Operation, t: Tensors) -> Counted:
    """A view of a part. Backward: zeros of the whole, and the gradient's copy into them."""
    x, y = next(iter(op.reads)), output(op)
    back = Part(kind="copy", read=t.bytes(y), written=t.bytes(x) + t.bytes(y), calls=2)
    needed = t.needs_gradient(x)
    return Counted(forward=(Part(kind="view"),), backward=(back,) if needed else ())


def split(op: Operation, t: Tensors) -> Counted:
    """Views of all parts. Backward: their gradients are joined."""
    x = next(iter(op.reads))
    back = Part(kind="copy", read=t.bytes(x), written=t.bytes(x))
    needed = t.needs_gradient(x)
    return Counted(forward=(Part(kind="view"),), backward=(back,) if needed else ())


def expand(op: Operation, t: Tensors) -> Counted:
    """A view that repeats. Backward: a sum over what was repeated."""
    x, y = next(iter(op.reads)), output(op)
    back = Part(kind="reduction", flops=t.elements(y), read=t.bytes(y), written=t.bytes(x))
    if t.elements(y) == t.elements(x):
        back = Part(kind="view")
    needed = t.needs_gradient(x)
    return Counted(forward=(Part(kind="view"),), backward=(back,) if needed else ())


def copy(op: Operation, t: Tensors) -> Counted:
    """Elements laid out anew, some of them several times."""
    x, y = next(iter(op.reads)), output(op)
    forward = Part(kind="copy", read=min(t.bytes(x), t.bytes(y)), written=t.bytes(y))
    back = Part(kind="copy", read=t.bytes(y), written=t.bytes(x))
    if op.op == "constant_pad_nd" and not any(cast("tuple[int, ...]", op.arguments["pad"])):
        back = Part(kind="view")  # see `record_training`: a copy
    return Counted(forward=(forward,), backward=(back,) if t.needs_gradient(x) else ())


def join(op: Operation, t: Tensors) -> Counted:
    """Tensors laid one behind the other. Backward: views of their parts."""
    forward = Part(kind="copy", read=read_bytes(op, t), written=t.bytes(output(op)))
    gradients = with_gradient(op.reads, t)
    return Counted(forward=(forward,), backward=tuple(Part(kind="view") for _ in gradients))


def pick(op: Operation, t: Tensors) -> Counted:
    """Elements by their index. Backward: zeros of the whole, and additions at the indices."""
    x, *indices = op.reads
    y = output(op)
    small = sum(t.bytes(one) for one in indices)
    forward = Part(kind="embedding", read=t.bytes(y) + small, written=t.bytes(y))
    back = Part(
        kind="embedding", flops=t.elements(y), read=2 * t.bytes(y) + small,
        written=t.bytes(x) + t.bytes(y), calls=2,
    )  # fmt: skip
    needed = t.needs_gradient(x)
    return Counted(
        forward=(forward,),
        backward=(back,) if needed else (),
        saves=tuple(indices) if needed else (),
    )


def put(op: Operation, t: Tensors) -> Counted:
    """A tensor with a part of it overwritten or added to."""
    y, reads = output(op), list(op.reads)
    changed = sum(t.bytes(one) for one in reads[1:])
    forward = Part(kind="copy", read=t.bytes(y) + changed, written=t.bytes(y) + changed, calls=2)
    gradients = with_gradient(reads, t)
    backward = tuple(Part(kind="copy", read=t.bytes(y), written=t.bytes(one)) for one in gradients)
    indices = tuple(one for one in reads[1:] if t.width(one) in (1, 8))
    return Counted(forward=(forward,), backward=backward, saves=indices if gradients else ())


def fill(op: Operation, t: Tensors) -> Counted:
    """A new tensor of numbers that depend on nothing."""
    return Counted(forward=(Part(kind="copy", written=written_bytes(op, t)),))


def table(op: Operation, t: Tensors) -> Counted:
    """A row of the weight for each index. Backward: zeros of the whole table, rows added to it."""
    weight, indices, y = tensor(op, "weight"), tensor(op, "indices"), output(op)
    rows = t.elements(indices) * t.shape(weight)[-1] * t.width(weight)
    summed = t.elements(indices) * t.shape(weight)[-1] if op.op == "embedding_bag" else 0
    small = t.bytes(indices)
    forward = Part(kind="embedding", flops=summed, read=rows + small, written=t.bytes(y))
    back = Part(
        kind="embedding", flops=rows // t.width(weight), read=t.bytes(y) + rows + small,
        written=t.bytes(weight) + rows, calls=2,
    )  # fmt: skip
    needed = t.needs_gradient(weight)
    offsets = optional(op, "offsets")
    saves = (indices, *((offsets,) if offsets else ()))
    return Counted(
        forward=(forward,), backward=(back,) if needed else (), saves=saves if needed else ()
    )


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_VIEWS, view),
    **dict.fromkeys(_PARTS, part_of),
    **dict.fromkeys(_SPLITS, split),
    **dict.fromkeys(_COPIES, copy),
    **dict.fromkeys(_JOINS, join),
    **dict.fromkeys(_PICKS, pick),
    **dict.fromkeys(_PUTS, put),
    **dict.fromkeys(_FILLS, fill),
    **dict.fromkeys(("embedding", "embedding_bag"), table),
    "expand": expand,
}
