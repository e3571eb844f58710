"""Numbers per element of a tensor, carried through operations that only arrange elements.

An array has an axis for each axis of its tensor, of length 1 where the numbers do not depend on it.
NaN stands for elements of which nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import numpy as np

from mmdb.graph.flow.flow import Operation
from mmdb.graph.transfer.axes.arrangements import view_groups
from mmdb.graph.transfer.counterparts.indices import Factor

_TOLERANCE: Final = 1e-9


def forward(op: Operation, array: Factor, shape: Sequence[int], output: int = 0) -> Factor:
    """Return the numbers of an output from those of the argument, whose shape is given."""
    arguments = op.arguments
    dim = cast("int", arguments.get("dim", 0))
    match op.op:
        case "view":
            return _reshaped(array, shape, op.shape)
        case "permute":
            return array.transpose(cast("tuple[int, ...]", arguments["dims"]))
        case "expand":
            return array.reshape((1,) * (len(op.shape) - array.ndim) + array.shape)
        case "unsqueeze":
            return np.expand_dims(array, dim)
        case "squeeze":
            return array.squeeze(cast("tuple[int, ...]", arguments["dims"]))
        case "select" | "unbind":
            index = cast("int", arguments["index"]) if op.op == "select" else output
            return np.asarray(array.take(index if array.shape[dim] > 1 else 0, axis=dim))
        case "slice" | "split_with_sizes":
            if array.shape[dim] == 1:
                return array
            return array.take(range(*_range(op, output)), axis=dim)
        case _:
            return array


def backward(op: Operation, array: Factor, shape: Sequence[int], output: int = 0) -> Factor:
    """Return the numbers of the argument, whose shape is given, from those of an output."""
    arguments = op.arguments
    dim = cast("int", arguments.get("dim", 0))
    match op.op:
        case "view":
            return _reshaped(array, op.shape, shape)
        case "permute":
            return array.transpose(np.argsort(cast("tuple[int, ...]", arguments["dims"])))
        case "expand":
            return reduced_to(array, shape)
        case "unsqueeze":
            return array.squeeze(dim)
        case "squeeze":
            for gone in cast("tuple[int, ...]", arguments["dims"]):
                array = np.expand_dims(array, gone)
            return array
        case "select" | "unbind":
            index = cast("int", arguments["index"]) if op.op == "select" else output
            return _placed(np.expand_dims(array, dim), dim, shape[dim], (index, index + 1, 1))
        case "slice" | "split_with_sizes":
            return _placed(array, dim, shape[dim], _range(op, output))
        case _:
            return array


def reduced_to(array: Factor, shape: Sequence[int]) -> Factor:
    """Return the numbers of a tensor that is broadcast; the first, where they differ."""
    array = array.reshape(array.shape[array.ndim - len(shape) :]) if _is_padded(array, shape) else (
        array[(0,) * (array.ndim - len(shape))]
    )  # fmt: skip
    for dim, size in enumerate(shape):
        if size == 1 and array.shape[dim] > 1:
            array = array.take([0], axis=dim)
    return array


def merged(one: Factor | None, other: Factor) -> Factor:
    """Return the numbers of `one`, where it has none those of `other`."""
    if one is None:
        return other
    return np.where(np.isnan(one), other, one)


def along(array: Factor | None, axis: int, size: int) -> Factor:
    """Return the numbers along one axis; the first of the others."""
    if array is None:
        return np.ones(size)
    kept = tuple(slice(None) if dim == axis % array.ndim else 0 for dim in range(array.ndim))
    return np.broadcast_to(array[kept], (size,))


def depends_on(array: Factor | None, axes: Sequence[int]) -> bool:
    """Whether the numbers depend on other axes than these."""
    if array is None:
        return False
    own = {axis % array.ndim for axis in axes}
    rest = tuple(dim for dim in range(array.ndim) if dim not in own)
    return not same(
        array, array[tuple(slice(0, 1) if d in rest else slice(None) for d in range(array.ndim))]
    )


def placed_at(vector: Factor, axis: int, ndim: int) -> Factor:
    """Return numbers along one axis of a tensor."""
    shape = [1] * ndim
    shape[axis] = -1
    return vector.reshape(shape)


def same(one: Factor, other: Factor) -> bool:
    """Whether numbers agree, but for rounding; NaN agrees with NaN."""
    near = np.abs(one - other) <= _TOLERANCE * np.abs(other)
    return bool(near.all() or (near | (np.isnan(one) & np.isnan(other))).all())


def is_trivial(array: Factor | None) -> bool:
    """Whether all numbers are 1."""
    return array is None or same(array, np.ones(1))


def _reshaped(array: Factor, shape: Sequence[int], new: Sequence[int]) -> Factor:
    before, after = list(array.shape), [1] * len(new)
    for one, other in view_groups(shape, new):
        if any(array.shape[dim] > 1 for dim in one):
            for dim in one:
                before[dim] = shape[dim]
            for dim in other:
                after[dim] = new[dim]
    return np.broadcast_to(array, before).reshape(after)


def _range(op: Operation, output: int) -> tuple[int, int, int]:
    if op.op == "slice":
        start, end, step = (cast("int", op.arguments[name]) for name in ("start", "end", "step"))
        return start, end, step
    sizes = cast("tuple[int, ...]", op.arguments["split_sizes"])
    return sum(sizes[:output]), sum(sizes[: output + 1]), 1


def _placed(array: Factor, dim: int, size: int, places: tuple[int, int, int]) -> Factor:
    shape = list(array.shape)
    shape[dim] = size
    whole = np.full(shape, np.nan)
    chosen = [slice(None)] * array.ndim
    chosen[dim] = slice(*places)
    whole[tuple(chosen)] = array
    return whole


def _is_padded(array: Factor, shape: Sequence[int]) -> bool:
    return all(size == 1 for size in array.shape[: array.ndim - len(shape)])
