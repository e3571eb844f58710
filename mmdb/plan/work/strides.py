"""Where the elements of a view lie: torch's rules, so that copies behind views are seen."""

from __future__ import annotations

from math import prod
from typing import Any, TypeAlias, cast

from mmdb.graph.ops.op_graph import Operation

Shape: TypeAlias = tuple[int, ...]
Strides: TypeAlias = tuple[int, ...]


def contiguous(shape: Shape) -> Strides:
    """Return the strides of row-major order.

    >>> contiguous((2, 3, 4))
    (12, 4, 1)
    """
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= max(1, size)
    return tuple(reversed(found))


def dense(shape: Shape, strides: Strides) -> Strides:
    """Return the strides without gaps in which axes lie in the order that given ones have.

    >>> dense((2, 3, 4), (4, 24, 1))
    (4, 8, 1)
    """
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
    steps = contiguous(tuple(shape[axis] for axis in order))
    found = dict(zip(order, steps, strict=True))
    return tuple(found[axis] for axis in range(len(shape)))


def viewed(op: Operation, shape: Shape, strides: Strides) -> list[Strides] | None:
    """Return the strides of each output of a view; None if the operation makes a new tensor.

    Args:
        shape, strides: of the operation's first tensor.
    """
    arguments = cast("dict[str, Any]", op.arguments)
    outputs = [one or () for one in op.shapes]
    match op.op:
        case "view":
            found = reshaped(shape, strides, outputs[0])
            return None if found is None else [found]
        case "permute":
            return [tuple(strides[dim] for dim in arguments["dims"])]
        case "expand":
            return [_expanded(shape, strides, outputs[0])]
        case "squeeze":
            return [tuple(s for i, s in enumerate(strides) if i not in arguments["dims"])]
        case "unsqueeze":
            dim = arguments["dim"]
            step = shape[dim] * strides[dim] if dim < len(shape) else 1
            return [(*strides[:dim], step, *strides[dim:])]
        case "select":
            dim = arguments["dim"]
            return [(*strides[:dim], *strides[dim + 1 :])]
        case "unbind":
            dim = arguments["dim"]
            return [(*strides[:dim], *strides[dim + 1 :])] * len(outputs)
        case "slice":
            dim, step = arguments["dim"], arguments["step"]
            return [(*strides[:dim], strides[dim] * step, *strides[dim + 1 :])]
        case "split_with_sizes" | "narrow" | "chunk":
            return [strides] * len(outputs)
    return None


def reshaped(shape: Shape, strides: Strides, size: Shape) -> Strides | None:
    """Return the strides of a view of another shape, None where there is none.

    >>> reshaped((2, 3, 4), (12, 4, 1), (6, 4))
    (4, 1)
    >>> reshaped((3, 2), (1, 3), (6,)) is None
    True
    """
    if not prod(shape):
        return contiguous(size)
    found: list[int] = []
    left = list(size)
    runs = _runs(shape, strides)
    while runs:
        count, step = runs.pop()  # a run of elements at equal steps is split at will
        here = 1
        while left and (here < count or left[-1] == 1):
            found.append(step * here)
            here *= left.pop()
        if here != count:
            return None
    found.extend(1 for _ in left)
    return tuple(reversed(found))


def _runs(shape: Shape, strides: Strides) -> list[tuple[int, int]]:
    """Return axes as (elements, step), neighbours joined where they lie one behind the other."""
    runs: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == stride * size:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    return runs or [(1, 1)]


def _expanded(shape: Shape, strides: Strides, size: Shape) -> Strides:
    new = len(size) - len(shape)
    kept = (
        stride if one == other else 0
        for one, other, stride in zip(shape, size[new:], strides, strict=True)
    )
    return (*(0,) * new, *kept)
