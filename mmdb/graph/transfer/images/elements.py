"""What operations without weights do to elements that are repeated and scaled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from mmdb.graph.flow.flow import PARAMETER, Operation, Value
from mmdb.graph.transfer.axes import kinds
from mmdb.graph.transfer.axes.axes import reduced_dims
from mmdb.graph.transfer.counterparts.indices import NEW, Factor
from mmdb.graph.transfer.counterparts.operations import makes_whole
from mmdb.graph.transfer.images import arrays
from mmdb.graph.transfer.images.carry import Carry, Handler
from mmdb.graph.transfer.images.demands import scalar_ratio
from mmdb.graph.transfer.images.sums import mean_total


def otherwise(carry: Carry, op: Operation) -> None:
    """An operation that is not known takes elements as they are."""
    _take_as_they_are(carry, op)


def _take_as_they_are(carry: Carry, op: Operation) -> None:
    for value in op.reads:
        if not arrays.is_trivial(carry.given(value)) or carry.has_means(op, value):
            carry.fail(op, "its input is scaled")
        if carry.has_new(op, value):
            carry.fail(op, "some elements are new")


def arranged(carry: Carry, op: Operation) -> None:
    """The same elements in another order, or some of them."""
    source = op.reads[0]
    given = carry.given(source)
    if given is not None:
        shape = carry.child.flow.shape_of(source)
        for number in range(len(op.shapes)):
            carry.give(Value(op.ordinal, number), arrays.forward(op, given, shape, number))


def unary(carry: Carry, op: Operation) -> None:
    """A function of each element."""
    source = op.reads[0]
    given = carry.given(source)
    if (op.op not in kinds.LINEAR or makes_whole(op)) and carry.has_means(op, source):
        carry.fail(op, "a mean of elements is no element")
    if given is None:
        return
    made = None if makes_whole(op) else _image_of(op, given)
    if made is None:
        carry.fail(op, "its input is scaled")
    carry.give(Value(op.ordinal), made)


def _image_of(op: Operation, given: Factor) -> Factor | None:
    """Return what f(c x) is of f(x); None if it is no multiple."""
    exponent = op.arguments.get("exponent")
    is_positive = bool((given >= 0).all())
    if op.op in kinds.LINEAR or (op.op in kinds.HOMOGENEOUS and is_positive):
        return given
    if op.op == "square" or (op.op == "pow" and exponent in (2, 2.0)):
        return given**2
    if op.op == "sqrt" and is_positive:
        return np.sqrt(given)
    if op.op == "rsqrt" and bool((given > 0).all()):
        return 1.0 / np.sqrt(given)
    if op.op in kinds.ODD and bool(((given == 0) | (given == 1)).all()):
        return given
    return None


def product(carry: Carry, op: Operation) -> None:
    """mul and div, by a number, a weight or another activation."""
    out = Value(op.ordinal)
    values = list(op.reads)
    other = carry.matched(op)
    if len(values) == 1:
        ratio = scalar_ratio(op, other) if other is not None else 1.0
        given = carry.given(values[0])
        if ratio is None:
            carry.fail(op, "its number is another one than the parent's")
        elif given is not None or ratio != 1.0:
            ndim = len(op.shape)
            carry.give(out, (np.ones((1,) * ndim) if given is None else given) * ratio)
        return
    if any(carry.is_zero(value) for value in values):
        return
    if any(carry.has_means(op, value) for value in values):
        carry.fail(op, "a mean of elements is no element")
    weights = [value for value in values if _is_weight(carry, value)]
    for weight in weights[1:]:
        carry.settle_as_demanded(weight)
    if weights and values[0] != values[1]:
        rest = values[1] if weights[0] == values[0] else values[0]
        _weighted(carry, op, rest, weights[0])
        return
    one, two = (carry.given(value) for value in values)
    if one is None and two is None:
        return
    a = np.ones(1) if one is None else one
    b = np.ones(1) if two is None else two
    if op.op == "div" and (b == 0).any():
        carry.fail(op, "its divisor is scaled by zero")
        return
    made = a / b if op.op == "div" else a * b
    carry.give(out, made.reshape((1,) * (len(op.shape) - made.ndim) + made.shape))


def _weighted(carry: Carry, op: Operation, rest: Value, weight: Value) -> None:
    """Multiply by a weight, which makes of what is given what is demanded."""
    out = Value(op.ordinal)
    if op.ordinal in carry.counterparts.identities:
        carry.constants[weight] = 1.0
        carry.give(out, carry.given(rest))
        return
    given = carry.given(rest)
    asked = carry.demands.of(out)
    wide = np.ones((1,) * len(op.shape)) if given is None else given
    wide = wide.reshape((1,) * (len(op.shape) - wide.ndim) + wide.shape)
    made = np.where(wide == 0, 0.0, wide if asked is None else asked)
    if asked is None:
        made = np.where(wide == 0, 0.0, np.ones(1))
    factor = np.where(wide == 0, 1.0, made / np.where(wide == 0, 1.0, wide))
    if op.op == "div":
        factor = 1.0 / np.where(factor == 0, 1.0, factor)
        if weight == op.reads[0]:
            carry.fail(op, "a weight is divided")
    shape = carry.child.flow.shape_of(weight)
    own = arrays.reduced_to(factor, shape)
    if not arrays.same(np.broadcast_to(own, np.broadcast_shapes(own.shape, factor.shape)), factor):
        carry.fail(op, "its weight cannot undo how its input is scaled")
    if not carry.images.settle_array(weight, own):
        carry.fail(op, "its weight is used twice")
    carry.give(out, made)


def added(carry: Carry, op: Operation) -> None:
    """add and sub."""
    out = Value(op.ordinal)
    values = [value for value in op.reads if not carry.is_zero(value)]
    weights = [value for value in values if _is_weight(carry, value)]
    rest = [value for value in values if value not in weights]
    if len(op.reads) == 1 and weights:
        carry.images.settle_array(weights[0], np.ones((1,) * len(carry.child[weights[0]])))
        return
    if not rest and values:
        carry.settle_as_demanded(values[0])
        rest = values[:1]
    givens = [carry.given(value) for value in rest]
    known = [_wide(given, len(op.shape)) for given in givens]
    if len(op.reads) == 1 and known and not arrays.is_trivial(known[0]):
        carry.fail(op, "a number is added to what is scaled")
    if not known:
        return
    if any(not arrays.same(*np.broadcast_arrays(known[0], one)) for one in known[1:]):
        carry.fail(op, "its operands are scaled in different ways")
    made = known[0]
    for weight in weights:
        own = arrays.reduced_to(made, carry.child.flow.shape_of(weight))
        if not carry.images.settle_array(weight, own):
            carry.fail(op, "its weight is used twice")
    carry.give(out, made)


def _is_weight(carry: Carry, value: Value) -> bool:
    parameter = carry.child.parameter_of(value)
    return parameter is not None and (
        parameter in carry.images.parameters
        or carry.child.flow.operations[parameter.operation].op == PARAMETER
    )


def _wide(given: Factor | None, ndim: int) -> Factor:
    if given is None:
        return np.ones((1,) * ndim)
    return given.reshape((1,) * (ndim - given.ndim) + given.shape)


def per_channel(carry: Carry, op: Operation) -> None:
    """Pools and resizing."""
    source = op.reads[0]
    given = carry.given(source)
    if carry.has_means(op, source) and "avg" not in op.op:
        carry.fail(op, "a mean of elements is no element")
    if carry.has_new(op, source, range(2, len(op.shape))):
        carry.fail(op, "some places are new")
    if given is not None and ((given < 0).any() or any(size > 1 for size in given.shape[2:])):
        carry.fail(op, "its input is scaled")
        return
    carry.give(Value(op.ordinal), given)


def reduction(carry: Carry, op: Operation) -> None:
    """Means, sums and others, over some axes."""
    source = op.reads[0]
    given = carry.given(source)
    shape = carry.child.flow.shape_of(source)
    made = np.ones((1,) * len(shape)) if given is None else given
    dims = reduced_dims(op, len(shape))
    for dim in dims:
        found = carry.index(op, source, dim)
        if found is None:
            continue
        index, size = found
        weights = (
            arrays.along(made, dim, len(index)) if made.shape[dim] > 1 else np.ones(len(index))
        )
        amount = mean_total(index, size, weights)
        if op.op not in ("mean", "sum"):
            is_same = len(index) == size if op.op not in kinds.EXTREMES else (index != NEW).all()
            is_same = is_same and len(np.unique(index[index >= 0])) == size
            amount = None if not is_same or not arrays.is_trivial(given) else 1.0
        elif op.op == "mean" and amount is not None:
            amount *= size / len(index)
        if amount is None:
            carry.fail(op, "elements are repeated unequally")
            amount = 1.0
        if made.shape[dim] > 1 and arrays.depends_on(made, [dim]):
            carry.fail(op, "its input is scaled")
        if made.shape[dim] > 1:
            made = np.ones((1,) * len(shape))
        made = made * amount
    if len(op.shape) < len(shape):
        made = made.squeeze(tuple(dims))
    for number in range(len(op.shapes)):
        carry.give(Value(op.ordinal, number), made)


def along(carry: Carry, op: Operation) -> None:
    """Softmax and others where elements along an axis have to do with each other."""
    _take_as_they_are(carry, op)


def joined(carry: Carry, op: Operation) -> None:
    """cat and stack."""
    givens = [carry.given(value) for value in op.reads]
    if all(given is None for given in givens):
        return
    dim, ndim = cast("int", op.arguments["dim"]), len(op.shape)
    parts: list[Factor] = []
    for value, given in zip(op.reads, givens, strict=True):
        size = 1 if op.op == "stack" else carry.child.flow.shape_of(value)[dim]
        own = np.ones((1,) * ndim) if given is None else given
        if op.op == "stack" and given is not None:
            own = np.expand_dims(given, dim)
        target = list(own.shape)
        target[dim] = size
        parts.append(np.broadcast_to(own, target))
    sizes = np.array([part.shape for part in parts]).max(axis=0)
    wide = []
    for part in parts:
        target = list(sizes)
        target[dim] = part.shape[dim]
        wide.append(np.broadcast_to(part, target))
    carry.give(Value(op.ordinal), np.concatenate(wide, axis=dim))


def filled(carry: Carry, op: Operation) -> None:
    """A constant takes nothing of what it is made like."""


ELEMENTS: Mapping[str, Handler] = {
    **dict.fromkeys(kinds.LINEAR | kinds.HOMOGENEOUS | kinds.ODD | kinds.OTHER, unary),
    **dict.fromkeys(kinds.REARRANGING | kinds.CUTTING, arranged),
    **dict.fromkeys(kinds.PER_CHANNEL, per_channel),
    **dict.fromkeys(kinds.REDUCTIONS, reduction),
    **dict.fromkeys(kinds.ALONG, along),
    **dict.fromkeys(kinds.JOINING, joined),
    **dict.fromkeys(kinds.FILLS, filled),
    **dict.fromkeys(("mul", "div"), product),
    **dict.fromkeys(("add", "sub"), added),
}
