"""The rules of reductions, of pooling, and of what moves numbers and computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import cast

from mmdb.graph.ops.op_graph import Operation, Value
from mmdb.plan.step.counts import (
    Counted,
    KernelWork,
    Rule,
    optional,
    output,
    read_bytes,
    tensor,
    with_gradient,
    written_bytes,
)
from mmdb.plan.step.tensor_sizes import TensorSizes

#: The gradient is repeated: a view.
_SUMS = frozenset({"sum", "trace"})
#: The gradient is repeated and scaled; nothing is kept.
_MEANS = frozenset({"mean"})
#: Operations an element forward, and what the backward reads.
_KEPT = {
    "var": (4, "input"), "std": (4, "both"), "var_mean": (4, "input"), "std_mean": (4, "both"),
    "norm": (2, "both"), "linalg_vector_norm": (2, "both"), "prod": (1, "both"),
    "logsumexp": (2, "both"), "amax": (1, "both"), "amin": (1, "both"), "cumprod": (1, "both"),
    "mse_loss": (3, "input"), "l1_loss": (2, "input"), "smooth_l1_loss": (4, "input"),
    "huber_loss": (4, "input"), "binary_cross_entropy": (6, "input"), "dist": (3, "both"),
    "binary_cross_entropy_with_logits": (8, "input"), "kl_div": (4, "input"),
    "cosine_similarity": (6, "both"),
}  # fmt: skip
#: Their backward puts the gradient to the places of the results, which are kept.
_PLACED = frozenset({"max", "min", "topk", "sort", "kthvalue", "median", "mode", "aminmax"})
_ORDERS = frozenset({"argmax", "argmin", "argsort", "any", "all", "nonzero", "count_nonzero"})


def reduction(op: Operation, t: TensorSizes) -> Counted:
    """A sum or mean: one addition for each element that is read."""
    x = next(iter(op.reads))
    y = output(op)
    backward: tuple[KernelWork, ...] = ()
    if t.needs_gradient(x) and op.op in _MEANS:
        n = t.elements(x)
        backward = (KernelWork(kind="elementwise", flops=n, read=t.bytes(y), written=t.bytes(x)),)
    elif t.needs_gradient(x):
        backward = (KernelWork(kind="view"),)
    return Counted(forward=(_forward(op, t, 1),), backward=backward)


def kept(op: Operation, t: TensorSizes) -> Counted:
    """A reduction whose backward reads its argument, and mostly its result."""
    flops, what = _KEPT[op.op]
    reads, y = list(op.reads), output(op)
    gradients = [one for one in reads if t.needs_gradient(one)]
    saves: tuple[Value, ...] = (*reads, y) if what == "both" else tuple(reads)
    read = sum(t.bytes(one) for one in saves) + t.bytes(y)
    backward = tuple(
        KernelWork(kind="elementwise", flops=2 * t.elements(one), read=read, written=t.bytes(one))
        for one in gradients
    )
    return Counted(
        forward=(_forward(op, t, flops),), backward=backward, saves=saves if gradients else ()
    )


def placed(op: Operation, t: TensorSizes) -> Counted:
    """The largest elements, or all in order: their places are kept."""
    reads = list(op.reads)
    if len(reads) > 1:  # the larger of two tensors, element by element
        return Counted(forward=(_forward(op, t, 1),))
    x, y = reads[0], output(op)
    places = output(op, 1) if len(op.shapes) > 1 else None
    if not t.needs_gradient(x):
        return Counted(forward=(_forward(op, t, 1),))
    read = t.bytes(y) + (0 if places is None else t.bytes(places))
    back = KernelWork(kind="copy", read=read, written=t.bytes(x) + t.bytes(y), calls=2)
    saves = (x, y) if places is None else (places,)
    return Counted(forward=(_forward(op, t, 1),), backward=(back,), saves=saves)


def order(op: Operation, t: TensorSizes) -> Counted:
    """Places of elements: no gradient."""
    return Counted(forward=(_forward(op, t, 1),))


def running(op: Operation, t: TensorSizes) -> Counted:
    """A running sum: its gradient is one from the other end."""
    x = next(iter(op.reads))
    n = t.elements(x)
    one = KernelWork(kind="reduction", flops=n, read=t.bytes(x), written=t.bytes(output(op)))
    turned = KernelWork(kind="copy", read=2 * t.bytes(x), written=2 * t.bytes(x), calls=2)
    return Counted(forward=(one,), backward=(turned, one) if t.needs_gradient(x) else ())


def negative_log_likelihood(op: Operation, t: TensorSizes) -> Counted:
    """The log-probability of each row's class, averaged."""
    x, y = next(iter(op.reads)), output(op)
    rows = t.elements(x) // max(1, t.shape(x)[1] if len(t.shape(x)) > 1 else 1)
    read = read_bytes(op, t)
    forward = KernelWork(kind="reduction", flops=rows, read=read, written=t.bytes(y))
    back = KernelWork(kind="elementwise", flops=rows, read=read, written=t.bytes(x))
    return Counted(
        forward=(forward,), backward=(back,) if t.needs_gradient(x) else (), saves=tuple(op.reads)
    )


def _forward(op: Operation, t: TensorSizes, each: int) -> KernelWork:
    n = sum(t.elements(one) for one in op.reads)
    return KernelWork(
        kind="reduction", flops=each * n, read=read_bytes(op, t), written=written_bytes(op, t)
    )


REDUCTION_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_SUMS | _MEANS, reduction),
    **dict.fromkeys(_KEPT, kept),
    **dict.fromkeys(_PLACED, placed),
    **dict.fromkeys(_ORDERS, order),
    **dict.fromkeys(("cumsum", "logcumsumexp"), running),
    **dict.fromkeys(
        ("nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward"), negative_log_likelihood
    ),
}


_INDEX = 8
#: Places that a result is mixed from, and operations for it.
_UPSAMPLED = {"nearest": (1, 0), "linear": (2, 3), "bilinear": (4, 8), "trilinear": (8, 18),
              "bicubic": (16, 40), "grid": (4, 20)}  # fmt: skip


def pooled(op: Operation, t: TensorSizes) -> Counted:
    """The mean or the largest of a window: one operation for each of its elements.

    Of the largest the place is kept. The backward writes the whole gradient, then adds into it.
    """
    x, y = next(iter(op.reads)), output(op)
    axes = int(op.op[-2]) if op.op[-1] == "d" else 2
    is_max = "max" in op.op
    if "adaptive" in op.op:
        flops = t.elements(x)
    else:
        kernel = op.arguments.get("kernel_size")
        sides = [int(one) for one in kernel] if isinstance(kernel, tuple) else [2]
        window = prod(sides) if len(sides) == axes else sides[0] ** axes
        flops = t.elements(y) * window
    places = t.elements(y) * _INDEX if is_max else 0
    size, result = t.bytes(x), t.bytes(y)
    windows = (t.elements(y), flops // max(1, t.elements(y)), 0)
    forward = KernelWork(
        kind="pooling", flops=flops, read=size, written=result + places, sides=windows
    )
    read = result + places + (0 if is_max else result)
    back = KernelWork(
        kind="pooling", flops=t.elements(y) if is_max else flops, read=read, written=size + result,
        sides=windows,
    )  # fmt: skip
    needed = t.needs_gradient(x)
    return Counted(
        forward=(forward,),
        backward=(back,) if needed else (),
        saves=(x,) if needed else (),
        saved_bytes=places if needed else 0,
    )


def resized(op: Operation, t: TensorSizes) -> Counted:
    """Each place of the result mixed from some of the argument's."""
    x, y = next(iter(op.reads)), output(op)
    mixed, each = next(
        (found for name, found in reversed(_UPSAMPLED.items()) if name in op.op), (4, 8)
    )
    n, size, result = t.elements(y), t.bytes(x), t.bytes(y)
    forward = KernelWork(
        kind="pooling" if each else "copy", flops=each * n, read=mixed * result, written=result
    )
    back = KernelWork(
        kind="pooling", flops=(each + mixed) * n, read=result, written=size + mixed * result
    )
    is_grid = op.op.startswith("grid")
    return Counted(
        forward=(forward,),
        backward=(back,) if t.needs_gradient(x) else (),
        saves=(x, tensor(op, "grid")) if is_grid else (),
    )


_WINDOWS = [
    f"{adaptive}{kind}_pool{axes}d"
    for adaptive in ("", "adaptive_")
    for kind in ("max", "avg")
    for axes in (1, 2, 3)
]
_SIZES = """
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
    upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
    grid_sampler grid_sampler_2d grid_sampler_3d
"""
POOLING_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_WINDOWS, pooled),
    **dict.fromkeys(_SIZES.split(), resized),
}


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


def view(op: Operation, t: TensorSizes) -> Counted:
    """Nothing moves, unless no strides describe the view: then all of it does."""
    x, y = next(iter(op.reads)), output(op)
    part = KernelWork(kind="view")
    if op.op == "view" and t.storage(x) != t.storage(y):
        part = KernelWork(kind="copy", read=t.bytes(x), written=t.bytes(y))
    return Counted(forward=(part,), backward=(part,) if t.needs_gradient(x) else ())


def part_of(op: Operation, t: TensorSizes) -> Counted:
    """A view of a part. Backward: zeros of the whole, and the gradient's copy into them."""
    x, y = next(iter(op.reads)), output(op)
    back = KernelWork(kind="copy", read=t.bytes(y), written=t.bytes(x) + t.bytes(y), calls=2)
    needed = t.needs_gradient(x)
    return Counted(forward=(KernelWork(kind="view"),), backward=(back,) if needed else ())


def split(op: Operation, t: TensorSizes) -> Counted:
    """Views of all parts. Backward: their gradients are joined."""
    x = next(iter(op.reads))
    back = KernelWork(kind="copy", read=t.bytes(x), written=t.bytes(x))
    needed = t.needs_gradient(x)
    return Counted(forward=(KernelWork(kind="view"),), backward=(back,) if needed else ())


def expand(op: Operation, t: TensorSizes) -> Counted:
    """A view that repeats. Backward: a sum over what was repeated."""
    x, y = next(iter(op.reads)), output(op)
    back = KernelWork(kind="reduction", flops=t.elements(y), read=t.bytes(y), written=t.bytes(x))
    if t.elements(y) == t.elements(x):
        back = KernelWork(kind="view")
    needed = t.needs_gradient(x)
    return Counted(forward=(KernelWork(kind="view"),), backward=(back,) if needed else ())


def copy(op: Operation, t: TensorSizes) -> Counted:
    """Elements laid out anew, some of them several times."""
    x, y = next(iter(op.reads)), output(op)
    forward = KernelWork(kind="copy", read=min(t.bytes(x), t.bytes(y)), written=t.bytes(y))
    back = KernelWork(kind="copy", read=t.bytes(y), written=t.bytes(x))
    if op.op == "constant_pad_nd" and not any(cast("tuple[int, ...]", op.arguments["pad"])):
        back = KernelWork(kind="view")  # see `record_training`: a copy
    return Counted(forward=(forward,), backward=(back,) if t.needs_gradient(x) else ())


def join(op: Operation, t: TensorSizes) -> Counted:
    """Tensors laid one behind the other. Backward: views of their parts."""
    forward = KernelWork(kind="copy", read=read_bytes(op, t), written=t.bytes(output(op)))
    gradients = with_gradient(op.reads, t)
    return Counted(forward=(forward,), backward=tuple(KernelWork(kind="view") for _ in gradients))


def pick(op: Operation, t: TensorSizes) -> Counted:
    """Elements by their index. Backward: zeros of the whole, and additions at the indices."""
    x, *indices = op.reads
    y = output(op)
    small = sum(t.bytes(one) for one in indices)
    forward = KernelWork(kind="embedding", read=t.bytes(y) + small, written=t.bytes(y))
    back = KernelWork(
        kind="embedding", flops=t.elements(y), read=2 * t.bytes(y) + small,
        written=t.bytes(x) + t.bytes(y), calls=2,
    )  # fmt: skip
    needed = t.needs_gradient(x)
    return Counted(
        forward=(forward,),
        backward=(back,) if needed else (),
        saves=tuple(indices) if needed else (),
    )


def put(op: Operation, t: TensorSizes) -> Counted:
    """A tensor with a part of it overwritten or added to."""
    y, reads = output(op), list(op.reads)
    changed = sum(t.bytes(one) for one in reads[1:])
    forward = KernelWork(
        kind="copy", read=t.bytes(y) + changed, written=t.bytes(y) + changed, calls=2
    )
    gradients = with_gradient(reads, t)
    backward = tuple(
        KernelWork(kind="copy", read=t.bytes(y), written=t.bytes(one)) for one in gradients
    )
    indices = tuple(one for one in reads[1:] if t.width(one) in (1, 8))
    return Counted(forward=(forward,), backward=backward, saves=indices if gradients else ())


def fill(op: Operation, t: TensorSizes) -> Counted:
    """A new tensor of numbers that depend on nothing."""
    return Counted(forward=(KernelWork(kind="copy", written=written_bytes(op, t)),))


def table(op: Operation, t: TensorSizes) -> Counted:
    """A row of the weight for each index. Backward: zeros of the whole table, rows added to it."""
    weight, indices, y = tensor(op, "weight"), tensor(op, "indices"), output(op)
    rows = t.elements(indices) * t.shape(weight)[-1] * t.width(weight)
    summed = t.elements(indices) * t.shape(weight)[-1] if op.op == "embedding_bag" else 0
    small = t.bytes(indices)
    forward = KernelWork(kind="embedding", flops=summed, read=rows + small, written=t.bytes(y))
    back = KernelWork(
        kind="embedding", flops=rows // t.width(weight), read=t.bytes(y) + rows + small,
        written=t.bytes(weight) + rows, calls=2,
    )  # fmt: skip
    needed = t.needs_gradient(weight)
    offsets = optional(op, "offsets")
    saves = (indices, *((offsets,) if offsets else ()))
    return Counted(
        forward=(forward,), backward=(back,) if needed else (), saves=saves if needed else ()
    )


MOVE_RULES: Mapping[str, Rule] = {
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
