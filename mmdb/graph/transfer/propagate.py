"""Walks the child's operations and sets the index maps of its weights.

Each value is to be the parent's, its elements repeated and multiplied as required; notes where
that cannot be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from mmdb.graph.ops.op_graph import CONSTANT, PARAMETER, Operation, Value, values_in
from mmdb.graph.transfer import index_arrays, op_kinds
from mmdb.graph.transfer.axis_terms import PLACE, AxisSpace, leaves
from mmdb.graph.transfer.counterparts import ZERO, Counterparts
from mmdb.graph.transfer.index_arrays import MEAN, NEW, Factor, Index, Indices
from mmdb.graph.transfer.index_maps import IdentityWeight, IndexMaps, Mask
from mmdb.graph.transfer.op_traits import numbers
from mmdb.graph.transfer.required_scale import RequiredScale
from mmdb.graph.transfer.tensor_axes import Axes


def columns(
    index: Index, given: Factor, share: Callable[[Index], Factor], groups: Index | None = None
) -> tuple[Factor, Mask]:
    """Return factors by which a weight reads what is `given` times the parent's, and free places.

    Copies share; what is no copy of an element, or the mean of all, is not read. Where zero comes
    in, the weight is free.

    Args:
        groups: copies in different groups do not share.
    """
    live = (index >= 0) & (given != 0)
    found = np.zeros(len(index))
    key = index[live]
    if groups is not None:
        key = np.unique(groups[live] * (index.max(initial=0) + 1) + key, return_inverse=True)[1]
    found[live] = share(key) / given[live]
    return found, (index != NEW) & (given == 0)


def total(index: Index, size: int, given: Factor, factors: Factor) -> float | None:
    """Return what a sum over an axis is of the parent's, None if it is not one multiple of it."""
    weights = given * factors
    if (weights[index < 0] != 0).any():
        return None
    sums: Factor = np.bincount(index[index >= 0], weights[index >= 0], size).astype(np.float64)
    return float(sums[0]) if size and index_arrays.same(sums, sums[:1]) else None


def mean_total(index: Index, size: int, weights: Factor) -> float | None:
    """Return `total` of a sum in which means of all elements may be."""
    if (weights[index == NEW] != 0).any():
        return None
    sums: Factor = np.bincount(index[index >= 0], weights[index >= 0], size).astype(np.float64)
    sums = sums + weights[index == MEAN].sum() / size
    return float(sums[0]) if size and index_arrays.same(sums, sums[:1]) else None


@dataclass(slots=True)
class Propagation:
    """The state of the walk.

    Attributes:
        identities: weights of new layers that hand on what they get.
        constants: new weights that are to be one number throughout.
        reasons: why the child's outputs are not the parent's, so far as is known.
    """

    child: Axes
    parent: Axes
    indices: Indices
    counterparts: Counterparts
    demands: RequiredScale
    images: IndexMaps
    identities: dict[Value, IdentityWeight] = field(default_factory=dict)
    constants: dict[Value, float] = field(default_factory=dict)
    reasons: dict[str, None] = field(default_factory=dict)
    _given: dict[Value, Factor] = field(default_factory=dict)
    _checked: set[tuple[AxisSpace, AxisSpace]] = field(default_factory=set)

    def run(self, handlers: Mapping[str, Handler], otherwise: Handler) -> None:
        """Follow all operations."""
        special = _set_by_their_readers(self.child)
        for op in self.child.flow.operations:
            here = Value(op.ordinal)
            if op.op == PARAMETER:
                if here not in special and here in self.images.parameters:
                    self.settle_as_demanded(here)
            elif op.reads:
                handlers.get(op.op, otherwise)(self, op)
                self._check_axes(op)
                self._check_numbers(op)
        for value in self.child.outputs:
            if not index_arrays.is_trivial(self.given(value)):
                self.reasons["an output is scaled"] = None

    # -- what values are -------------------------------------------------------------

    def given(self, value: Value) -> Factor | None:
        """Return what a value is of the parent's, None for all 1."""
        return self._given.get(value)

    def give(self, value: Value, array: Factor | None) -> None:
        """Set what a value is of the parent's."""
        if array is not None and not index_arrays.is_trivial(array):
            self._given[value] = array

    def along(self, op: Operation, value: Value, axis: int) -> Factor:
        """Return what a value is of the parent's along an axis, and fail where others matter."""
        array = self.given(value)
        if index_arrays.depends_on(array, [axis]):
            self.fail(op, "its input is not scaled as it can undo")
        return index_arrays.along(array, axis, self.child[value][axis].size)

    def demanded(self, op: Operation, value: Value, axis: int) -> Factor:
        """Return what a value is to be along an axis."""
        array = self.demands.of(value)
        if index_arrays.depends_on(array, [axis]):
            self.fail(op, "its result is not to be scaled as it can")
        return index_arrays.along(array, axis, self.child[value][axis].size)

    def settle_as_demanded(self, value: Value) -> None:
        """Set the factors of a parameter that is used as it is, or of a part of one."""
        array = self.demands.of(value)
        ndim = len(self.child[value])
        whole = np.ones((1,) * ndim) if array is None else array
        self.images.settle_array(value, whole)
        self.give(value, array)

    # -- operands of the counterpart ---------------------------------------------------

    def matched(self, op: Operation) -> Operation | None:
        """Return the parent's operation, None if there is none."""
        return self.counterparts.operations.get(op.ordinal)

    def partner(self, op: Operation, value: Value) -> Value | None:
        """Return what the parent's operation reads in place of a value."""
        for one, other in self.counterparts.operands.get(op.ordinal, ()):
            if one == value:
                return other
        return None

    def index(self, op: Operation, value: Value, axis: int) -> tuple[Index, int] | None:
        """Return the index of an axis of what an operation reads, and the parent's size."""
        other = self.partner(op, value)
        if other is None:
            return None
        space = self.parent[other][axis]
        index = self.indices.index(self.child[value][axis], space)
        return None if index is None else (index, space.size)

    def has_means(self, op: Operation, value: Value) -> bool:
        """Whether elements of what an operation reads are means of the parent's."""
        other = self.partner(op, value)
        if other is None:
            return False
        given = self.given(value)
        for axis, pair in enumerate(zip(self.child[value], self.parent[other], strict=False)):
            if pair[0].size == pair[1].size:
                continue
            index = self.indices.index(*pair)
            if index is not None and (index == MEAN).any():
                return bool((index_arrays.along(given, axis, len(index))[index == MEAN] != 0).any())
        return False

    def has_new(self, op: Operation, value: Value, axes: Iterable[int] | None = None) -> bool:
        """Whether elements of what an operation reads, along these axes or any, are not the
        parent's at all.
        """
        other = self.partner(op, value)
        if other is None:
            return False
        own, its = self.child[value], self.parent[other]
        given = range(min(len(own), len(its))) if axes is None else axes
        indices = [self.indices.index(own[axis], its[axis]) for axis in given]
        return any(index is not None and (index == NEW).any() for index in indices)

    def is_zero(self, value: Value) -> bool:
        """Whether a value is zero at first."""
        return self.counterparts.of(value) == ZERO

    def fail(self, op: Operation, reason: str) -> None:
        """Note that an operation that has a counterpart does not do what that does."""
        if op.ordinal in self.counterparts.operations:
            self.reasons[f"{op.op} in {op.path!r}: {reason}"] = None

    def _check_axes(self, op: Operation) -> None:
        other = self.matched(op)
        if other is None:
            return
        pairs = [(Value(op.ordinal), Value(other.ordinal)), *self.counterparts.operands[op.ordinal]]
        for value, another in pairs:
            end = 2 if value in self.child.kernels else None
            for one, two in zip(self.child[value][:end], self.parent[another], strict=False):
                if one.size == two.size or (one, two) in self._checked:
                    continue
                self._checked.add((one, two))
                if self.indices.index(one, two) is None or self._moves_places(one):
                    self.fail(op, f"{one.size} elements cannot stand for {two.size}")

    def _check_numbers(self, op: Operation) -> None:
        """Fail where constants may be other ones than the parent's."""
        for value in op.reads:
            source = self.child.flow.operations[value.operation]
            if source.op == CONSTANT and not numbers(source):
                self.fail(op, "it reads numbers that are not known")

    def _moves_places(self, space: AxisSpace) -> bool:
        """Whether positions are not the parent's."""
        places = [leaf for leaf in leaves(space) if PLACE in leaf.traits]
        others = [self.indices.spaces.of(leaf) for leaf in places]
        return any(
            other is not None and other.size != leaf.size
            for leaf, other in zip(places, others, strict=True)
        )


Handler = Callable[[Propagation, Operation], None]


def _set_by_their_readers(axes: Axes) -> set[Value]:
    """Return the parameters whose factors follow from the operations that read them."""
    found: set[Value] = set()
    for op in axes.flow.operations:
        named = [op.arguments.get(name) for name in _WEIGHTS]
        if op.op in op_kinds.RECURRENT:
            named.append(op.arguments.get("params"))
        if op.op in _PRODUCTS:
            named += op.reads
        for value in values_in(tuple(named)):
            parameter = axes.parameter_of(value)
            if parameter is not None:
                found.add(parameter)
    return found


_WEIGHTS = ("weight", "bias", "running_mean", "running_var")
_PRODUCTS = frozenset(("addmm", "baddbmm", "matmul", "mul", "div", "add", "sub", "einsum"))
