"""What products of activations do to elements that are repeated and scaled."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from mmdb.graph.flow.flow import Operation, Value
from mmdb.graph.transfer.counterparts.indices import Factor
from mmdb.graph.transfer.images import arrays
from mmdb.graph.transfer.images.carry import Carry, Handler
from mmdb.graph.transfer.images.demands import attention_scale
from mmdb.graph.transfer.images.sums import columns, total


def contract(carry: Carry, op: Operation, one: Value, two: Value) -> None:
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
    elif amount != 1.0 or not (arrays.is_trivial(first) and arrays.is_trivial(second)):
        carry.fail(op, "its vectors are scaled")


def _apart(carry: Carry, op: Operation, value: Value, axis: int) -> tuple[Factor, Factor]:
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


def attention(carry: Carry, op: Operation) -> None:
    """softmax(query @ key.T * scale) @ value."""
    query, key, value = (_value(op, name) for name in ("query", "key", "value"))
    other, found = carry.matched(op), carry.index(op, query, -1)
    if other is not None and found is not None:
        amount = total(*found, carry.along(op, query, -1), carry.along(op, key, -1))
        scales = attention_scale(carry.child, op), attention_scale(carry.parent, other)
        if amount is None or not arrays.same(np.array(amount * scales[0]), np.array(scales[1])):
            carry.fail(op, "the scores are not the parent's")
    if carry.has_new(op, key, (-2,)):
        carry.fail(op, "new elements are attended to")
    made = carry.along(op, value, -1)
    carry.give(Value(op.ordinal), arrays.placed_at(made, len(op.shape) - 1, len(op.shape)))


def einsum(carry: Carry, op: Operation) -> None:
    """Sums over letters that the result lacks; a weight among the factors divides by copies."""
    left, _, right = str(op.arguments["equation"]).replace(" ", "").partition("->")
    factors = list(zip(left.split(","), op.reads, strict=False))
    weights = [value for _, value in factors if carry.child.parameter_of(value) is not None]
    if any(not arrays.is_trivial(carry.given(value)) for value in op.reads):
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


def _value(op: Operation, name: str) -> Value:
    value = op.arguments[name]
    assert isinstance(value, Value)
    return value


PRODUCTS: Mapping[str, Handler] = {"scaled_dot_product_attention": attention, "einsum": einsum}
