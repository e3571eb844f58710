"""Computes how norms change elements that are repeated and scaled.

A layer norm sees the same mean and variance if all elements are repeated equally often. Otherwise
some of the child's are the mean of the parent's, which the norm makes zero, and the others are
larger by what that takes from the variance (after LEMON, arXiv 2310.07999, section 4.2, where eps
changes in place of the elements). An RMS norm sees the same mean square if copies are scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from mmdb.graph.ops.op_graph import Operation, Value
from mmdb.graph.transfer import index_arrays
from mmdb.graph.transfer.index_arrays import MEAN, Factor, Index
from mmdb.graph.transfer.propagate import Handler, Propagation


def batch_norm(carry: Propagation, op: Operation) -> None:
    """Each channel by its own statistics: in evaluation, those that were learned."""
    weight, x = op.arguments.get("weight"), op.value("input")
    if not index_arrays.is_trivial(carry.given(x)) or carry.has_means(op, x):
        carry.fail(op, "its input is scaled")
    if op.ordinal in carry.counterparts.identities:
        eps = cast("float", op.arguments["eps"])
        numbers = {"weight": (1.0 + eps) ** 0.5, "bias": 0.0}
        numbers |= {"running_mean": 0.0, "running_var": 1.0}
        for name, number in numbers.items():
            if isinstance(value := op.arguments.get(name), Value):
                carry.constants[value] = number
        return
    for name in ("running_mean", "running_var"):
        if isinstance(value := op.arguments.get(name), Value):
            carry.images.settle(value, np.ones(1), 0)
    if isinstance(weight, Value):
        made = carry.demanded(op, Value(op.ordinal), 1)
        _settle(carry, op, made, made)
        carry.give(Value(op.ordinal), index_arrays.placed_at(made, 1, len(op.shape)))


def layer_norm(carry: Propagation, op: Operation) -> None:
    """(x - mean) / sqrt(variance + eps), over the last axes."""
    x = op.value("input")
    count = len(cast("tuple[int, ...]", op.arguments["normalized_shape"]))
    given = carry.along(op, x, -1)
    normal: Factor | None = None
    if count == 1:
        found = carry.index(op, x, -1)
        normal = None if found is None else _standardised(*found, given)
    elif index_arrays.is_trivial(carry.given(x)):
        several = [carry.index(op, x, axis) for axis in range(-count, 0)]
        if all(one is not None and _is_even(*one) for one in several):
            normal = np.ones(len(given))
    if normal is None:
        carry.fail(op, "its width is no multiple of the parent's")
        normal = np.ones(len(given))
    _affine(carry, op, normal)


def rms_norm(carry: Propagation, op: Operation) -> None:
    """x / sqrt(mean(x * x) + eps), over the last axis."""
    x = op.value("input")
    given = carry.along(op, x, -1)
    found = carry.index(op, x, -1)
    if len(cast("tuple[int, ...]", op.arguments["normalized_shape"])) != 1 or found is None:
        carry.fail(op, "its axes are not known")
    elif not _keeps_mean_square(*found, given):
        carry.fail(op, "its width is no multiple of the parent's")
    _affine(carry, op, given)


def group_norm(carry: Propagation, op: Operation) -> None:
    """A layer norm over the channels of a group, and over places."""
    x = op.value("input")
    groups = cast("int", op.arguments["num_groups"])
    other, found = carry.matched(op), carry.index(op, x, 1)
    if other is not None and found is not None:
        index, size = found
        width = size // cast("int", other.arguments["num_groups"])
        wide = index.reshape(groups, -1)
        is_even = all(
            (row >= 0).all() and len(set(row // width)) == 1 and _is_even(row % width, width)
            for row in wide
        )
        if not is_even or not index_arrays.is_trivial(carry.given(x)):
            carry.fail(op, "its groups are not the parent's")
    made = carry.demanded(op, Value(op.ordinal), 1)
    if isinstance(op.arguments.get("weight"), Value):
        _settle(carry, op, made, made)
        carry.give(Value(op.ordinal), index_arrays.placed_at(made, 1, len(op.shape)))


def _affine(carry: Propagation, op: Operation, normal: Factor) -> None:
    """Set gamma and beta after what is `normal` times the parent's."""
    out = Value(op.ordinal)
    if isinstance(op.arguments.get("weight"), Value):
        asked = carry.demanded(op, out, -1)
        made = np.where(normal == 0, 0.0, asked)
        gamma = np.where(normal == 0, 1.0, made / np.where(normal == 0, 1.0, normal))
        _settle(carry, op, gamma, made)
        normal = made
    carry.give(out, index_arrays.placed_at(normal, len(op.shape) - 1, len(op.shape)))


def _settle(carry: Propagation, op: Operation, gamma: Factor, beta: Factor) -> None:
    for name, factor in (("weight", gamma), ("bias", beta)):
        value = op.arguments.get(name)
        if not isinstance(value, Value):
            continue
        axis = len(carry.child[value]) - 1
        if value not in carry.images.parameters:
            if name == "bias" and carry.matched(op) is not None:
                carry.constants[value] = 0.0
            continue
        if not carry.images.settle(value, factor, axis):
            carry.fail(op, "its weights are used twice")
    other = carry.matched(op)
    if other is not None and isinstance(other.arguments.get("bias"), Value):
        if not isinstance(op.arguments.get("bias"), Value):
            carry.fail(op, "the parent's bias is left out")


def _standardised(index: Index, size: int, given: Factor) -> Factor | None:
    """Return what standardised elements are of the parent's; None if they are not."""
    if _is_even(index, size) and index_arrays.same(given, np.ones(1)):
        return np.ones(len(index))
    live = index >= 0
    is_rest = index == MEAN
    if not (live | is_rest).all() or not index_arrays.same(given, given[:1]):
        return None
    if not _is_even(index[live], size):
        return None
    variance = given[0] ** 2 * live.sum() / len(index)
    return np.where(live, given, 0.0) if abs(variance - 1) < 1e-9 else None


def _keeps_mean_square(index: Index, size: int, given: Factor) -> bool:
    if (given[index < 0] != 0).any():
        return False
    sums = np.bincount(index[index >= 0], given[index >= 0] ** 2, size)
    return index_arrays.same(sums * size / len(index), np.ones(1))


def _is_even(index: Index, size: int) -> bool:
    """Whether each of the parent's elements is repeated equally often."""
    counts = np.bincount(index[index >= 0], minlength=size)
    return bool((index >= 0).all() and (counts == counts[0]).all())


NORMS: Mapping[str, Handler] = {
    "batch_norm": batch_norm,
    "instance_norm": batch_norm,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "rms_norm": rms_norm,
}
