"""Layers that the child has and its parent has not: which give zero, which what they get.

A new branch beside an old path gives zero at first, by its last weights (zero gamma, zero
projection); layers before them keep their own initialisation, so that gradients flow. A new
layer in a path hands on what it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from mmdb.graph.flow.flow import PARAMETER, Operation, Value
from mmdb.graph.transfer.axes import kinds
from mmdb.graph.transfer.axes.axes import Axes
from mmdb.graph.transfer.axes.spaces import Space, leaves
from mmdb.graph.transfer.counterparts.correspondence import Correspondence
from mmdb.graph.transfer.counterparts.operations import centre_of, keeps_zero

_FURTHEST: Final = 64  # operations that are looked at ahead


@dataclass(slots=True)
class Branches:
    """New branches of the child.

    Attributes:
        ends: ordinals of operations whose weights are to be zero, or of the weight itself.
        zeros: paths of these weights.
        within: ordinals of operations of which nothing but such branches is computed.
    """

    ends: set[int] = field(default_factory=set)
    zeros: set[str] = field(default_factory=set)
    within: set[int] = field(default_factory=set)


def new_branches(axes: Axes, paired: Collection[Value]) -> Branches:
    """Return the branches that are added to something else, and have new weights at their end.

    Args:
        paired: parameters that have a counterpart.
    """
    found = Branches()
    for op in axes.flow.operations:
        operands = op.reads
        if op.op != "add" or len(operands) != 2:
            continue
        one, other = (_ends(axes, value, paired) for value in operands)
        if (one is None) == (other is None):
            continue
        for end in one or other or ():
            found.ends.add(end.ordinal)
            for value in _weights(end):
                found.zeros.add(axes.flow.operations[value.operation].path)
    found.within = _within(axes, found.ends)
    return found


def _ends(axes: Axes, value: Value, paired: Collection[Value]) -> list[Operation] | None:
    """Return the operations that make a value zero once their weights are, if all are new."""
    op = axes.flow.operations[value.operation]
    if op.op == PARAMETER:
        is_free = len(axes.readers[value]) == 1 and value not in paired
        return [op] if is_free else None
    if op.op in kinds.WEIGHTED:
        weights = _weights(op)
        own = [v for v in weights if v not in paired and len(axes.readers[v]) == 1]
        is_own = weights and all(
            axes.flow.operations[v.operation].op == PARAMETER and v in own for v in weights
        )
        return [op] if is_own else None
    if op.op == "mul":
        several = [_ends(axes, read, paired) for read in dict.fromkeys(op.reads)]
        ends = [one for one in several if one is not None]
        bare = [one for one in ends if one[0].op == PARAMETER]
        first = bare or ends
        return first[0] if first else None
    if op.op == "cat" or (op.op == "add" and len(op.reads) == 2):
        several = [_ends(axes, read, paired) for read in dict.fromkeys(op.reads)]
        if any(one is None for one in several) or not several:
            return None
        return [end for one in several for end in one or ()]
    if (keeps_zero(op) or op.op == "div") and op.reads:
        return _ends(axes, op.reads[0], paired)
    return None


def _weights(op: Operation) -> list[Value]:
    """Return the parameters without which an operation gives zero: weight and bias."""
    if op.op == PARAMETER:
        return [Value(op.ordinal)]
    names = ("mat2", "self") if op.op == "addmm" else ("weight", "bias")
    given = [op.arguments.get(name) for name in names]
    if not isinstance(given[0], Value):
        return []
    return [value for value in given if isinstance(value, Value)]


def _within(axes: Axes, ends: Collection[int]) -> set[int]:
    within: set[int] = set()
    for op in reversed(axes.flow.operations):
        values = [Value(op.ordinal, number) for number in range(len(op.shapes))]
        readers = [reader.ordinal for value in values for reader in axes.readers[value]]
        is_returned = any(value in axes.outputs for value in values)
        if op.ordinal in ends or (
            readers and not is_returned and all(reader in within for reader in readers)
        ):
            within.add(op.ordinal)
    return within


def can_hand_on(
    op: Operation,
    source: Value,
    axes: Axes,
    spaces: Correspondence,
    is_new: Callable[[Value], bool],
) -> bool:
    """Whether a new layer can give what it reads, and what follows expects that.

    The space of what it gives learns which of the parent's it stands for.
    """
    one, other = axes[source], axes[Value(op.ordinal)]
    if op.op == "batch_norm":
        return op.arguments["training"] is False
    if op.op == "mul":
        return True
    if op.op == "convolution" and not op.arguments["transposed"]:
        axis = 1
        is_still = axes.flow.shape_of(source)[2:] == op.shape[2:]
        if not is_still or centre_of(op, axes) is None:
            return False
    elif op.op == "linear":
        axis = -1
    else:
        return False
    if not any(spaces.of(leaf) for leaf in leaves(other[axis])):
        image = spaces.image_of(one[axis])
        if image is None or _expected(op, axis, axes, spaces, is_new) is not image:
            return False
    return spaces.same(one[axis], other[axis])


def _expected(
    op: Operation, axis: int, axes: Axes, spaces: Correspondence, is_new: Callable[[Value], bool]
) -> Space | None:
    """Return the parent's space of what further new layers after this one give."""
    waiting, seen = [Value(op.ordinal)], {Value(op.ordinal)}
    while waiting and len(seen) < _FURTHEST:
        for reader in axes.readers[waiting.pop()]:
            out = Value(reader.ordinal)
            weight = reader.arguments.get("weight")
            if reader.op in ("linear", "convolution"):
                if not isinstance(weight, Value) or not is_new(weight):
                    continue
                image = spaces.image_of(axes[out][axis])
                if image is not None:
                    return image
            elif reader.op in ("add", "cat", "mul"):
                continue
            if out not in seen:
                seen.add(out)
                waiting.append(out)
    return None
