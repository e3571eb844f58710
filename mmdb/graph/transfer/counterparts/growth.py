"""New layers in a path of the child that hand on what they get, exactly or nearly."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from mmdb.graph.flow.flow import BUFFER, PARAMETER, Operation, Value
from mmdb.graph.transfer.axes import kinds
from mmdb.graph.transfer.axes.axes import Axes
from mmdb.graph.transfer.axes.spaces import Space, leaves
from mmdb.graph.transfer.counterparts.correspondence import Correspondence
from mmdb.graph.transfer.counterparts.operations import centre_of

_FURTHEST: Final = 64  # operations that are looked at ahead


def can_hand_on(
    op: Operation,
    source: Value,
    axes: Axes,
    spaces: Correspondence,
    is_new: Callable[[Value], bool],
    ways: Collection[int],
) -> bool:
    """Whether a new layer can give what it reads, and what follows expects that.

    The space of what it gives learns which of the parent's it stands for.

    Args:
        ways: ordinals of sums that give what one of their operands is, and others.
    """
    one, other = axes[source], axes[Value(op.ordinal)]
    if op.op == "batch_norm":
        return op.arguments["training"] is False and _is_owned(op, axes)
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
        if image is None or _expected(op, axis, axes, spaces, is_new, ways) is not image:
            return False
    return spaces.same(one[axis], other[axis])


def _is_owned(op: Operation, axes: Axes) -> bool:
    """Whether a norm's weights and statistics are the module's own tensors, as they are."""
    given = [op.arguments.get(name) for name in ("weight", "bias", "running_mean", "running_var")]
    return all(
        isinstance(value, Value) and axes.flow.operations[value.operation].op in (PARAMETER, BUFFER)
        for value in given
    )


def nearly_hands_on(op: Operation, source: Value, axes: Axes, spaces: Correspondence) -> bool:
    """Whether what an operation without weights gives is near what it reads.

    An activation or a pool keeps the sign of what is large. Taken for nothing among new layers, it
    lets them hand on what they get; a child learns sooner so than behind layers that give noise.
    """
    here = Value(op.ordinal)
    if op.op not in kinds.NEARLY_IDLE or axes.flow.shape_of(source) != op.shape:
        return False
    return all(map(spaces.same, axes[source], axes[here]))


def _expected(
    op: Operation,
    axis: int,
    axes: Axes,
    spaces: Correspondence,
    is_new: Callable[[Value], bool],
    ways: Collection[int],
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
            elif reader.op in ("add", "cat", "mul") and reader.ordinal not in ways:
                continue
            if out not in seen:
                seen.add(out)
                waiting.append(out)
    return None
