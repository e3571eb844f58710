"""What layers with weights do to elements that are repeated and scaled."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import cast

import numpy as np

from mmdb.graph.ops.op_graph import Operation, Value
from mmdb.graph.transfer import index_arrays
from mmdb.graph.transfer.computed_axes import recurrent_layers
from mmdb.graph.transfer.index_arrays import MEAN, NEW, Factor, Index
from mmdb.graph.transfer.index_maps import IdentityWeight
from mmdb.graph.transfer.op_traits import centre_of
from mmdb.graph.transfer.propagate import Handler, Propagation, columns, total
from mmdb.graph.transfer.weightless_rules import contract


def linear(carry: Propagation, op: Operation) -> None:
    """out = x @ weight.T + bias."""
    _read(carry, op, op.value("input"), op.value("weight"), op.arguments["bias"], (-1, 1, 0, -1))


def addmm(carry: Propagation, op: Operation) -> None:
    """out = self + mat1 @ mat2; baddbmm, too."""
    names = ("mat1", "mat2") if op.op == "addmm" else ("batch1", "batch2")
    one, two = (op.value(name) for name in names)
    if carry.child.parameter_of(two) is None:
        contract(carry, op, one, two)
    else:
        reads = len(carry.child[two]) - 2
        _read(carry, op, one, two, op.arguments["self"], (-1, reads, reads + 1, -1))


def matmul(carry: Propagation, op: Operation) -> None:
    """out = self @ other, either of them a weight, or none."""
    one, two = op.value("self"), op.value("other")
    ndims = len(carry.child[one]), len(carry.child[two])
    if carry.child.parameter_of(two) is not None and ndims[1] > 1:
        _read(carry, op, one, two, None, (-1, ndims[1] - 2, ndims[1] - 1, -1))
    elif carry.child.parameter_of(one) is not None and min(ndims) > 1:
        _read(carry, op, two, one, None, (-2, ndims[0] - 1, ndims[0] - 2, -2))
    else:
        contract(carry, op, one, two)


def convolution(carry: Propagation, op: Operation) -> None:
    """Convolutions of every kind."""
    weight = op.value("weight")
    other = carry.matched(op)
    if weight in carry.images.parameters and other is not None and other.op == op.op:
        image = carry.images.image(weight)
        if image is not None and not carry.images.set_taps(weight, op, other):
            carry.fail(op, "the parent's kernel has no place in it")
    if carry.has_new(op, op.value("input"), range(2, len(op.shape))):
        carry.fail(op, "some places are new")
    axes = (1, 0, 1, 1) if op.arguments["transposed"] else (1, 1, 0, 1)
    _read(carry, op, op.value("input"), weight, op.arguments["bias"], axes)


def embedding(carry: Propagation, op: Operation) -> None:
    """Rows of a table."""
    weight = op.value("weight")
    out = Value(op.ordinal)
    if carry.images.image(weight) is None:
        return
    known = carry.images.known(weight, 1)
    made = carry.demanded(op, out, -1) if known is None else known
    carry.images.settle(weight, np.ones(carry.child[weight][0].size), 0)
    carry.images.settle(weight, made, 1)
    carry.give(out, index_arrays.placed_at(made, len(op.shape) - 1, len(op.shape)))


def _read(
    carry: Propagation,
    op: Operation,
    x: Value,
    weight: Value,
    bias: object,
    axes: tuple[int, int, int, int],
) -> None:
    """Set the weight of a linear operation.

    Args:
        axes: what is summed over, of x and of the weight; the weight's other one, and the
            result's.
    """
    of_x, reads, writes, of_out = axes
    out = Value(op.ordinal)
    given = carry.along(op, x, of_x)
    made = carry.demanded(op, out, of_out)
    parameter = carry.child.parameter_of(weight)
    if parameter is None or carry.images.image(parameter) is None:
        if parameter is not None and op.ordinal in carry.counterparts.identities:
            _hand_on(carry, op, x, of_x, of_out, given, made)
        return
    index, size = _index_read(carry, op, weight, parameter, reads)
    grouped = _Groups(carry, op, len(given), reads)
    own, ratio = grouped.given(given)
    factors = carry.images.known(weight, reads)
    if factors is None:
        name = str(parameter.operation)
        factors, free = columns(
            index, own, partial(carry.images.shares.of, reader=name), grouped.labels
        )
        carry.images.settle(weight, factors, reads, free)
    amount = grouped.total(index, size, own, factors)
    if not amount:
        carry.fail(op, "it does not read all that the parent's reads")
        amount = 1.0
    undone = np.repeat(ratio, len(made) // np.size(ratio)) if np.ndim(ratio) else ratio
    written = grouped.written(made / (amount * undone), carry.child[weight][writes].size)
    known = carry.images.known(weight, writes)
    if known is None:
        carry.images.settle(weight, written, writes)
    elif not index_arrays.same(known, written):
        if grouped.count > 1:
            carry.fail(op, "its weight is used twice")
        else:
            made = known * amount
    if isinstance(bias, Value) and carry.child[bias]:
        _settle_bias(carry, op, bias, made)
    elif not isinstance(bias, Value) and _has_bias(carry, op):
        carry.fail(op, "the parent's bias is left out")
    carry.give(out, index_arrays.placed_at(made, of_out % len(op.shape), len(op.shape)))


def _index_read(
    carry: Propagation, op: Operation, weight: Value, parameter: Value, axis: int
) -> tuple[Index, int]:
    """Return the index of what the weight reads, and how much the parent's reads."""
    if weight != parameter:
        found = carry.index(op, weight, axis)
        if found is not None:
            return found
        size = carry.child[weight][axis].size
        return np.arange(size), size
    image = carry.images.of[parameter]
    return image.index[axis], carry.parent[image.parent][axis].size


def _settle_bias(carry: Propagation, op: Operation, bias: Value, made: Factor) -> None:
    parameter = carry.child.parameter_of(bias)
    if parameter is None:
        return
    if parameter not in carry.images.parameters:
        carry.constants[parameter] = 0.0
    elif not carry.images.settle(bias, made, len(carry.child[bias]) - 1):
        carry.fail(op, "its bias is used twice")


def _has_bias(carry: Propagation, op: Operation) -> bool:
    other = carry.matched(op)
    return other is not None and isinstance(other.arguments.get("bias"), Value)


def _hand_on(
    carry: Propagation, op: Operation, x: Value, of_x: int, of_out: int, given: Factor, made: Factor
) -> None:
    """Let a new layer give what it reads."""
    one, two = carry.child[x][of_x], carry.child[Value(op.ordinal)][of_out]
    weight, bias = op.value("weight"), op.arguments["bias"]
    centre = (centre_of(op, carry.child) or ()) if op.op == "convolution" else ()
    groups = cast("int", op.arguments.get("groups", 1))
    indices = []
    for space in (one, two):
        other = carry.indices.spaces.image_of(space)
        index = None if other is None else carry.indices.index(space, other)
        if other is None or index is None:
            return
        indices.append((index, other.size))
    (columns_index, size), (rows_index, _) = indices
    name = str(weight.operation)
    labels = np.arange(len(given)) // (len(given) // groups) if groups > 1 else None
    factors, _ = columns(columns_index, given, partial(carry.images.shares.of, reader=name), labels)
    handed = IdentityWeight((rows_index, made), (columns_index, factors), size, centre, groups)
    carry.identities[weight] = handed
    if not _reads_what_it_gives(handed, given):
        # Not `fail`: the parent has no such operation.
        carry.reasons[f"{op.op} in {op.path!r}: it does not read all that it hands on"] = None
    if isinstance(bias, Value):
        carry.constants[bias] = 0.0
    out = Value(op.ordinal)
    carry.give(out, index_arrays.placed_at(made, of_out % len(op.shape), len(op.shape)))


def _reads_what_it_gives(handed: IdentityWeight, given: Factor) -> bool:
    """Whether each element that a new layer gives is read, in full, by its own group."""
    (rows, made), (columns, factors) = handed.rows, handed.columns
    group = np.arange(len(columns)) // (len(columns) // handed.groups)
    live = columns >= 0
    places = group[live] * handed.size + columns[live]
    sums = np.bincount(places, (given * factors)[live], handed.groups * handed.size)
    is_read = np.abs(sums.reshape(handed.groups, handed.size) - 1.0) <= 1e-9
    own = np.arange(len(rows)) // (len(rows) // handed.groups)
    found = np.where(rows == MEAN, is_read.all(1)[own], is_read[own, np.maximum(rows, 0)])
    return bool((found | (made == 0) | (rows == NEW)).all())


class _Groups:
    """The groups of a convolution: each channel is read by the weights of its own group."""

    def __init__(self, carry: Propagation, op: Operation, channels: int, reads: int) -> None:
        self.count = cast("int", op.arguments.get("groups", 1)) if op.op == "convolution" else 1
        self._carry, self._op = carry, op
        self._width = channels // self.count
        self._is_whole = reads == 0 and self.count > 1  # of a transposed one: all channels
        self.labels = np.arange(channels) // self._width if self._is_whole else None

    def given(self, given: Factor) -> tuple[Factor, Factor | float]:
        """Return what a group's channels are of the parent's, and of it what rows must undo."""
        if self.count == 1 or self._is_whole:
            return given, 1.0
        if self._width == 1:
            return np.ones(1), np.where(given == 0, 1.0, given)
        wide = given.reshape(self.count, self._width)
        if not index_arrays.same(wide, wide[:1]):
            self._carry.fail(self._op, "its groups are scaled in different ways")
        return wide[0], 1.0

    def total(self, index: Index, size: int, given: Factor, factors: Factor) -> float | None:
        """Return `total` of a group."""
        if not self._is_whole:
            return total(index, size, given, factors)
        other = self._carry.matched(self._op)
        groups = cast("int", other.arguments["groups"]) if other is not None else self.count
        first = index[: self._width]
        width = size // groups
        return total(first % width, width, given[: self._width], factors[: self._width])

    def written(self, made: Factor, size: int) -> Factor:
        """Return the factors of the weight's rows."""
        if len(made) == size:
            return made
        if made.size > 1 and len(made) % size == 0:
            wide = made.reshape(-1, size)
            if not index_arrays.same(wide, wide[:1]):
                self._carry.fail(self._op, "its groups are scaled in different ways")
            first: Factor = wide[0]
            return first
        return np.broadcast_to(made, (size,))


# -- recurrent layers -----------------------------------------------------------------


def recurrent(carry: Propagation, op: Operation) -> None:
    """LSTM, GRU and RNN: cells that read their input and their own last state."""
    try:
        layers = recurrent_layers(op)
    except ValueError:
        return
    given = carry.along(op, op.value("input"), -1)
    if carry.has_new(op, op.value("input"), (0, 1)):
        carry.fail(op, "new elements are read")
    for layer in layers:
        for weights in layer:
            for value, own in zip(weights[:2], (given, None), strict=False):
                _read_in_cell(carry, op, value, own)
            for value in weights:
                size = carry.child[value][0].size
                carry.images.settle(value, np.ones(size), 0)
        given = np.ones(sum(carry.child[weights[1]][1].size for weights in layer))


def _read_in_cell(carry: Propagation, op: Operation, weight: Value, given: Factor | None) -> None:
    image = carry.images.image(weight)
    if image is None or weight not in carry.images.of:
        return
    index = image.index[1]
    own = np.ones(len(index)) if given is None else given
    name = str(weight.operation)
    factors, free = columns(index, own, partial(carry.images.shares.of, reader=name))
    if not carry.images.settle(weight, factors, 1, free):
        carry.fail(op, "its weight is used twice")
    size = carry.parent[image.parent][1].size
    amount = total(index, size, own, factors)
    if amount is None or not index_arrays.same(np.array(amount), np.ones(())):
        carry.fail(op, "it does not read all that the parent's reads")


LAYERS: Mapping[str, Handler] = {
    "linear": linear,
    "addmm": addmm,
    "baddbmm": addmm,
    "matmul": matmul,
    "convolution": convolution,
    "embedding": embedding,
    "lstm": recurrent,
    "gru": recurrent,
    "rnn_tanh": recurrent,
    "rnn_relu": recurrent,
}
