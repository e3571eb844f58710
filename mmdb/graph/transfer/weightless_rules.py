"""What operations without weights do to elements that are repeated and scaled."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import cast

import numpy as np

from mmdb.graph.ops.op_graph import PARAMETER, Operation, Value
from mmdb.graph.transfer import index_arrays, op_kinds
from mmdb.graph.transfer.index_arrays import NEW, Factor
from mmdb.graph.transfer.op_traits import makes_whole
from mmdb.graph.transfer.propagate import Handler, Propagation, columns, mean_total, total
from mmdb.graph.transfer.required_scale import attention_scale, scalar_ratio
from mmdb.graph.transfer.tensor_axes import reduced_dims


def contract(carry: Propagation, op: Operation, one: Value, two: Value) -> None:
    """Sum over the last axis of `one` and the last but one of `two`."""
    found = carry.index(op, one, -1)
    if found is None:
        return
    a, first = _apart(carry, op, one, -1)
    b, second = _apart(carry, op, two, -2)
    amount = total(*found, a, b)
    if amount is None:
        carry.fail(op, "copies are counted as often as there are of them")
    elif min(len(carry.child[one]), len(carry.child[two])) > 1:
        carry.give(Value(op.ordinal), amount * first * second)
    elif amount != 1.0 or not (index_arrays.is_trivial(first) and index_arrays.is_trivial(second)):
        carry.fail(op, "its vectors are scaled")


def _apart(carry: Propagation, op: Operation, value: Value, axis: int) -> tuple[Factor, Factor]:
    """Return what a value is of the parent's along an axis, and along the others."""
    given = carry.given(value)
    ndim = len(carry.child[value])
    axis = max(axis, -ndim)
    size = carry.child[value][axis].size
    if given is None:
        return np.ones(size), np.ones((1,) * ndim)
    if given.shape[axis] == 1:
        return np.ones(size), given
    return carry.along(op, value, axis), np.ones((1,) * ndim)


def attention(carry: Propagation, op: Operation) -> None:
    """softmax(query @ key.T * scale) @ value."""
    query, key, value = (op.value(name) for name in ("query", "key", "value"))
    other, found = carry.matched(op), carry.index(op, query, -1)
    if other is not None and found is not None:
        amount = total(*found, carry.along(op, query, -1), carry.along(op, key, -1))
        scales = attention_scale(carry.child, op), attention_scale(carry.parent, other)
        if amount is None or not index_arrays.same(
            np.array(amount * scales[0]), np.array(scales[1])
        ):
            carry.fail(op, "the scores are not the parent's")
    if carry.has_new(op, key, (-2,)):
        carry.fail(op, "new elements are attended to")
    made = carry.along(op, value, -1)
    carry.give(Value(op.ordinal), index_arrays.placed_at(made, len(op.shape) - 1, len(op.shape)))


def einsum(carry: Propagation, op: Operation) -> None:
    """Sums over letters that the result lacks; a weight among the factors divides by copies."""
    left, _, right = str(op.arguments["equation"]).replace(" ", "").partition("->")
    factors = list(zip(left.split(","), op.reads, strict=False))
    weights = [value for _, value in factors if carry.child.parameter_of(value) is not None]
    if any(not index_arrays.is_trivial(carry.given(value)) for value in op.reads):
        carry.fail(op, "its input is scaled")
    for letter in set(left) - set(right) - {","}:
        places = [(value, letters.index(letter)) for letters, value in factors if letter in letters]
        found = carry.index(op, *places[0])
        if found is None:
            continue
        index, size = found
        shares = np.ones(len(index))
        own = [place for place in places if place[0] in weights]
        if own and len(places) > 1:
            name = str(own[0][0].operation)
            shares, _ = columns(index, shares, partial(carry.images.shares.of, reader=name))
            carry.images.settle(own[0][0], shares, own[0][1])
        amount = total(index, size, np.ones(len(index)), shares)
        if amount is None or abs(amount - 1) > 1e-9:
            carry.fail(op, "copies are counted as often as there are of them")


PRODUCTS: Mapping[str, Handler] = {"scaled_dot_product_attention": attention, "einsum": einsum}


def otherwise(carry: Propagation, op: Operation) -> None:
    """An operation that is not known takes elements as they are."""
    _take_as_they_are(carry, op)


def _take_as_they_are(carry: Propagation, op: Operation) -> None:
    for value in op.reads:
        if not index_arrays.is_trivial(carry.given(value)) or carry.has_means(op, value):
            carry.fail(op, "its input is scaled")
        if carry.has_new(op, value):
            carry.fail(op, "some elements are new")


def arranged(carry: Propagation, op: Operation) -> None:
    """The same elements in another order, or some of them."""
    source = op.reads[0]
    given = carry.given(source)
    if given is not None:
        shape = carry.child.flow.shape_of(source)
        for number in range(len(op.shapes)):
            carry.give(Value(op.ordinal, number), index_arrays.forward(op, given, shape, number))


def unary(carry: Propagation, op: Operation) -> None:
    """A function of each element."""
    source = op.reads[0]
    given = carry.given(source)
    if (op.op not in op_kinds.LINEAR or makes_whole(op)) and carry.has_means(op, source):
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
    if op.op in op_kinds.LINEAR or (op.op in op_kinds.HOMOGENEOUS and is_positive):
        return given
    if op.op == "square" or (op.op == "pow" and exponent in (2, 2.0)):
        return given**2
    if op.op == "sqrt" and is_positive:
        return np.sqrt(given)
    if op.op == "rsqrt" and bool((given > 0).all()):
        return 1.0 / np.sqrt(given)
    if op.op in op_kinds.ODD and bool(((given == 0) | (given == 1)).all()):
        return given
    return None


def product(carry: Propagation, op: Operation) -> None:
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


def _weighted(carry: Propagation, op: Operation, rest: Value, weight: Value) -> None:
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
    own = index_arrays.reduced_to(factor, shape)
    if not index_arrays.same(
        np.broadcast_to(own, np.broadcast_shapes(own.shape, factor.shape)), factor
    ):
        carry.fail(op, "its weight cannot undo how its input is scaled")
    if not carry.images.settle_array(weight, own):
        carry.fail(op, "its weight is used twice")
    carry.give(out, made)


def added(carry: Propagation, op: Operation) -> None:
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
    if len(op.reads) == 1 and known and not index_arrays.is_trivial(known[0]):
        carry.fail(op, "a number is added to what is scaled")
    if not known:
        return
    if any(not index_arrays.same(*np.broadcast_arrays(known[0], one)) for one in known[1:]):
        carry.fail(op, "its operands are scaled in different ways")
    made = known[0]
    for weight in weights:
        own = index_arrays.reduced_to(made, carry.child.flow.shape_of(weight))
        if not carry.images.settle_array(weight, own):
            carry.fail(op, "its weight is used twice")
    carry.give(out, made)


def _is_weight(carry: Propagation, value: Value) -> bool:
    parameter = carry.child.parameter_of(value)
    return parameter is not None and (
        parameter in carry.images.parameters
        or carry.child.flow.operations[parameter.operation].op == PARAMETER
    )


def _wide(given: Factor | None, ndim: int) -> Factor:
    if given is None:
        return np.ones((1,) * ndim)
    return given.reshape((1,) * (ndim - given.ndim) + given.shape)


def per_channel(carry: Propagation, op: Operation) -> None:
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


def reduction(carry: Propagation, op: Operation) -> None:
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
            index_arrays.along(made, dim, len(index))
            if made.shape[dim] > 1
            else np.ones(len(index))
        )
        amount = mean_total(index, size, weights)
        if op.op not in ("mean", "sum"):
            is_same = len(index) == size if op.op not in op_kinds.EXTREMES else (index != NEW).all()
            is_same = is_same and len(np.unique(index[index >= 0])) == size
            amount = None if not is_same or not index_arrays.is_trivial(given) else 1.0
        elif op.op == "mean" and amount is not None:
            amount *= size / len(index)
        if amount is None:
            carry.fail(op, "elements are repeated unequally")
            amount = 1.0
        if made.shape[dim] > 1 and index_arrays.depends_on(made, [dim]):
            carry.fail(op, "its input is scaled")
        if made.shape[dim] > 1:
            made = np.ones((1,) * len(shape))
        made = made * amount
    if len(op.shape) < len(shape):
        made = made.squeeze(tuple(dims))
    for number in range(len(op.shapes)):
        carry.give(Value(op.ordinal, number), made)


def along(carry: Propagation, op: Operation) -> None:
    """Softmax and others where elements along an axis have to do with each other."""
    _take_as_they_are(carry, op)


def joined(carry: Propagation, op: Operation) -> None:
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


def filled(carry: Propagation, op: Operation) -> None:
    """A constant takes nothing of what it is made like."""


ELEMENTS: Mapping[str, Handler] = {
    **dict.fromkeys(op_kinds.LINEAR | op_kinds.HOMOGENEOUS | op_kinds.ODD | op_kinds.OTHER, unary),
    **dict.fromkeys(op_kinds.REARRANGING | op_kinds.CUTTING, arranged),
    **dict.fromkeys(op_kinds.PER_CHANNEL, per_channel),
    **dict.fromkeys(op_kinds.REDUCTIONS, reduction),
    **dict.fromkeys(op_kinds.ALONG, along),
    **dict.fromkeys(op_kinds.JOINING, joined),
    **dict.fromkeys(op_kinds.FILLS, filled),
    **dict.fromkeys(("mul", "div"), product),
    **dict.fromkeys(("add", "sub"), added),
}
