"""Pooling, and changes of an image's size."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mmdb.graph.ops.op_graph import Operation
from mmdb.plan.work.counts import Counted, Part
from mmdb.plan.work.rules.parts import Rule, output, tensor
from mmdb.plan.work.tensors import Tensors

_INDEX = 8
#: Places that a result is mixed from, and operations for it.
_UPSAMPLED = {"nearest": (1, 0), "linear": (2, 3), "bilinear": (4, 8), "trilinear": (8, 18),
              "bicubic": (16, 40), "grid": (4, 20)}  # fmt: skip


def pooled(op: Operation, t: Tensors) -> Counted:
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
    forward = Part(kind="pooling", flops=flops, read=size, written=result + places, sides=windows)
    read = result + places + (0 if is_max else result)
    back = Part(
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


def resized(op: Operation, t: Tensors) -> Counted:
    """Each place of the result mixed from some of the argument's."""
    x, y = next(iter(op.reads)), output(op)
    mixed, each = next(
        (found for name, found in reversed(_UPSAMPLED.items()) if name in op.op), (4, 8)
    )
    n, size, result = t.elements(y), t.bytes(x), t.bytes(y)
    forward = Part(
        kind="pooling" if each else "copy", flops=each * n, read=mixed * result, written=result
    )
    back = Part(
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
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_WINDOWS, pooled),
    **dict.fromkeys(_SIZES.split(), resized),
}
