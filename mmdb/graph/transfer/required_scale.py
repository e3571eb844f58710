"""By which factors the elements of the child's tensors have to be the parent's.

Mostly by 1. A product of two activations has no weight that could divide by the number of copies,
so one of its factors does (the query of an attention); and so does what an embedding is multiplied
with that is also the head. Numbers that follow from a width (an attention's scale) differ, too.
"""

from __future__ import annotations

import math
import zlib

import numpy as np

from mmdb.graph.ops.op_graph import Operation, Value
from mmdb.graph.transfer import index_arrays, op_kinds
from mmdb.graph.transfer.counterparts import Counterparts
from mmdb.graph.transfer.index_arrays import MEAN, NEW, Factor, Index, Indices
from mmdb.graph.transfer.tensor_axes import Axes

_LEAST, _MOST = 0.5, 1.5  # before they are divided by their sum


class SplitWeights:
    """Draws shares; those of one reader are the same each time.

    Copies that gave the same to everyone would get the same gradient and stay copies (LEMON,
    arXiv 2310.07999, section 3.1).
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def of(self, index: Index, reader: str) -> Factor:
        """Return positive numbers whose sum is 1 for each element that `index` has."""
        counts = np.bincount(index)
        if counts.max(initial=0) < 2:
            return np.ones(len(index))
        generator = np.random.default_rng((self._seed, zlib.crc32(reader.encode()), len(index)))
        drawn = generator.uniform(_LEAST, _MOST, len(index))
        shares = drawn / np.bincount(index, drawn)[index]
        return np.where(counts[index] == 1, 1.0, shares)


class RequiredScale:
    """Demanded numbers of the child's values; what has none is as its spaces say."""

    def __init__(
        self,
        child: Axes,
        parent: Axes,
        indices: Indices,
        counterparts: Counterparts,
        shares: SplitWeights,
    ) -> None:
        self._child, self._parent = child, parent
        self._indices, self._counterparts, self._shares = indices, counterparts, shares
        self._of: dict[Value, Factor] = {}
        self._tied = _tied(child)
        rounds = 2 if self._tied else 1  # a head asks what its embedding was asked for
        for _ in range(rounds):
            self._before, self._of = self._of, {}
            for op in reversed(child.flow.operations):
                self._start(op)
                self._pass_on(op)

    def of(self, value: Value) -> Factor | None:
        """Return what the value is to be, its spaces' scale included; None for all 1."""
        own = self.natural(value)
        asked = self._of.get(value)
        if asked is None:
            return own
        return index_arrays.merged(asked, np.ones(1) if own is None else own)

    def natural(self, value: Value) -> Factor | None:
        """Return the numbers that follow from the value's spaces alone."""
        spaces = self._child[value]
        found: Factor | None = None
        for axis, space in enumerate(spaces):
            scale = self._indices.scale(space)
            if scale is not None:
                own = index_arrays.placed_at(scale, axis, len(spaces))
                found = own if found is None else found * own
        return found

    def _ask(self, value: Value, array: Factor) -> None:
        self._of[value] = index_arrays.merged(self._of.get(value), array)

    # -- where demands begin ------------------------------------------------------

    def _start(self, op: Operation) -> None:
        other = self._counterparts.operations.get(op.ordinal)
        if other is None:
            return
        match op.op:
            case "scaled_dot_product_attention":
                self._ask_query(op, other)
            case "matmul":
                self._ask_first_factor(op, other)
            case "mul" | "div":
                ratio = scalar_ratio(op, other)
                if ratio not in (None, 1.0):
                    asked = self.of(Value(op.ordinal))
                    whole = np.ones((1,) * len(op.shape)) if asked is None else asked
                    self._ask(op.reads[0], whole / ratio)
            case "linear":
                self._ask_input_of_head(op, other)

    def _ask_query(self, op: Operation, other: Operation) -> None:
        query, key = op.value("query"), op.value("key")
        index = self._contracted(op, "query", other, "query")
        if index is None:
            return
        asked = self._shares_of(index, key, attention_scale(self._parent, other))
        asked = asked / attention_scale(self._child, op)
        if not index_arrays.is_trivial(asked):
            self._ask(
                query,
                index_arrays.placed_at(asked, len(self._child[query]) - 1, len(self._child[query])),
            )

    def _ask_first_factor(self, op: Operation, other: Operation) -> None:
        one, two = op.value("self"), op.value("other")
        if self._child.parameter_of(one) or self._child.parameter_of(two):
            return
        index = self._contracted(op, "self", other, "self")
        out = self._of.get(Value(op.ordinal))
        if index is None or len(self._child[two]) < 2:
            return
        total = 1.0 if out is None else float(np.nan_to_num(out.reshape(-1)[0], nan=1.0))
        asked = self._shares_of(index, two, total, axis=-2)
        if not index_arrays.is_trivial(asked):
            ndim = len(self._child[one])
            self._ask(one, index_arrays.placed_at(asked, ndim - 1, ndim))

    def _shares_of(self, index: Index, other: Value, total: float, axis: int = -1) -> Factor:
        """Return numbers by which a product with `other` has `total` of each of its terms."""
        scale = self._indices.scale(self._child[other][axis])
        own = np.ones(len(index)) if scale is None else scale
        if (index < 0).any() or len(np.unique(index)) < index.max() + 1:
            return np.full(len(index), total)
        return total * self._shares.of(index, f"{other.operation}") / own

    def _contracted(self, op: Operation, name: str, other: Operation, its: str) -> Index | None:
        one, another = op.value(name), other.value(its)
        return self._indices.index(self._child[one][-1], self._parent[another][-1])

    def _ask_input_of_head(self, op: Operation, other: Operation) -> None:
        weight = op.value("weight")
        lookup = self._tied.get(weight)
        if lookup is None:
            return
        index = self._contracted(op, "weight", other, "weight")
        if index is None:
            return
        made = Value(lookup.ordinal)
        asked = self._before.get(made)
        own = asked if asked is not None else self.natural(made)
        columns = index_arrays.along(own, -1, len(index))
        live = (index != MEAN) & (index != NEW)
        numbers = np.zeros(len(index))
        numbers[live] = self._shares.of(index[live], f"{weight.operation}") / columns[live]
        if not index_arrays.is_trivial(numbers):
            ndim = len(self._child[op.value("input")])
            self._ask(op.value("input"), index_arrays.placed_at(numbers, ndim - 1, ndim))

    # -- where they go --------------------------------------------------------------

    def _pass_on(self, op: Operation) -> None:
        for number in range(len(op.shapes)):
            asked = self._of.get(Value(op.ordinal, number))
            if asked is not None and op.reads:
                self._pass_one(op, asked, number)

    def _pass_one(self, op: Operation, asked: Factor, number: int) -> None:
        source = op.reads[0]
        shape = self._child.flow.shape_of(source)
        if op.op in op_kinds.REARRANGING or op.op in op_kinds.CUTTING:
            self._ask(source, index_arrays.backward(op, asked, shape, number))
        elif op.op in op_kinds.LINEAR or op.op in op_kinds.HOMOGENEOUS:
            self._ask(source, asked)
        elif op.op in ("add", "sub"):
            for value in op.reads:
                shape = self._child.flow.shape_of(value)
                self._ask(value, index_arrays.reduced_to(asked, shape))
        elif op.op in ("mul", "div"):
            if len(op.reads) == 1:
                self._ask(source, asked)
            elif not any(self._is_weight(value) for value in op.reads):
                wide = [v for v in op.reads if self._child.flow.shape_of(v) == op.shape]
                if wide:
                    self._ask(wide[0], asked)

    def _is_weight(self, value: Value) -> bool:
        """Whether a factor follows from weights or constants alone, and differs by element."""
        is_fixed = value.operation not in self._child.from_inputs
        return is_fixed and any(space.size > 1 for space in self._child[value])


def attention_scale(axes: Axes, op: Operation) -> float:
    """Return by what an attention multiplies its scores."""
    scale = op.arguments.get("scale")
    if isinstance(scale, int | float):
        return float(scale)
    return 1.0 / math.sqrt(axes[op.value("query")][-1].size)


def scalar_ratio(op: Operation, other: Operation) -> float | None:
    """Return by what a product with a number exceeds its counterpart; None if it is no such."""
    one, another = op.arguments.get("other"), other.arguments.get("other")
    if not (isinstance(one, int | float) and isinstance(another, int | float)):
        return None
    if one == another:
        return 1.0
    if not one or not another:
        return None
    return another / one if op.op == "div" else one / another


def _tied(axes: Axes) -> dict[Value, Operation]:
    """Return the embedding that reads a weight, of weights that a linear layer reads, too."""
    found: dict[Value, Operation] = {}
    for op in axes.flow.operations:
        if op.op == "embedding":
            found.setdefault(op.value("weight"), op)
    return {
        value: op
        for value, op in found.items()
        if any(reader.op == "linear" for reader in axes.readers[value])
    }
