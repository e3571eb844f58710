"""Which element of the parent stands behind each of the child, and numbers per element.

Numbers are carried through operations that only arrange elements.

An array has an axis for each axis of its tensor, of length 1 where the numbers do not depend on it.
NaN stands for elements of which nothing is said.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.ops.op_graph import PARAMETER, Operation, Value
from mmdb.graph.transfer.axis_terms import (
    BENT,
    CAT,
    FIXED,
    ONE,
    OUTPUT,
    PLACE,
    PROD,
    SQUARED,
    STANDARDISED,
    TABLE,
    WEIGHTED,
    AxisSpace,
    find,
    leaves,
    parts_of,
)
from mmdb.graph.transfer.correspondence import Correspondence, Pair, common_form
from mmdb.graph.transfer.rearranged_axes import view_groups
from mmdb.graph.transfer.tensor_axes import Axes

Index: TypeAlias = NDArray[np.int64]
Factor: TypeAlias = NDArray[np.float64]

#: Entries of an index: the mean of all of the parent's elements; nothing of the parent's.
MEAN: Final = -1
NEW: Final = -2


class Indices:
    """Indices between spaces that correspond.

    Attributes:
        spaces: which correspond.
    """

    def __init__(self, child: Axes, spaces: Correspondence) -> None:
        self.spaces = spaces
        self._inner, self._matrices = _inner(child), _matrices(child)
        self._indices: dict[tuple[AxisSpace, AxisSpace], Index | None] = {}
        self._scales: dict[AxisSpace, Factor | None] = {}
        self._version = spaces.version

    def index(self, a: AxisSpace, b: AxisSpace) -> Index | None:
        """Return for each of the child's elements the parent's, MEAN or NEW.

        None if the spaces do not correspond, or elements with a meaning have no counterpart.
        """
        self._refresh()
        a, b = find(a), find(b)
        key = (a, b)
        if key not in self._indices:
            self._indices[key] = self._index(a, b)
        return self._indices[key]

    def _index(self, a: AxisSpace, b: AxisSpace) -> Index | None:
        if a.form is None and b.form is None:
            if a is ONE or b is ONE:
                return _of_one(a, b)
            return self._index_of_atom(a, b) if self.spaces.of(a) is b else None
        aligned = self.spaces.align(a, b)
        if common_form(a, b) == CAT:
            return self._index_of_cat(aligned, parts_of(b) if b.form == CAT else [b])
        found: Index = np.zeros(1, np.int64)
        for one, other in aligned:
            part = self.index(one or ONE, other or ONE)
            if part is None or (part == MEAN).any():
                return None
            size = 1 if other is None else other.size
            wide = found[:, None] * size + part[None, :]
            is_new = (found[:, None] < 0) | (part[None, :] < 0)
            found = np.where(is_new, NEW, wide).reshape(-1)
        return found

    def _index_of_cat(self, aligned: Sequence[Pair], others: Sequence[AxisSpace]) -> Index | None:
        starts = np.cumsum([0, *(other.size for other in others)])
        found: list[Index] = []
        place = 0
        for one, other in aligned:
            if other is not None:
                place += 1
            if one is None:
                continue
            part = np.full(one.size, NEW) if other is None else self.index(one, other)
            if part is None or (part == MEAN).any():
                return None
            start = starts[place - 1] if other is not None else 0
            found.append(np.where(part < 0, part, part + start))
        return np.concatenate(found) if found else None

    def _index_of_atom(self, a: AxisSpace, b: AxisSpace) -> Index | None:
        n, m = a.size, b.size
        traits = a.traits | b.traits
        if n == m:
            return np.arange(n)
        if FIXED in traits or (OUTPUT in traits and self._matrices[a] < 2):
            return None
        if TABLE in traits:
            places = np.arange(n)
            return np.where(places < m, places, NEW)
        if PLACE in traits:
            return (np.arange(n) * 2 + 1) * m // (2 * n)
        if n > m and n % m and self._takes_means(a):
            places = np.arange(n)
            return np.where(places < n - n % m, places % m, MEAN)
        return spread(n, m)

    def scale(self, a: AxisSpace) -> Factor | None:
        """Return by what the child's elements are the parent's, multiplied; None for all 1.

        A norm over a width that is no multiple of the parent's sees the same mean square so; its
        eps counts as much as before.
        """
        self._refresh()
        a = find(a)
        if a not in self._scales:
            self._scales[a] = self._scale(a)
        return self._scales[a]

    def _scale(self, a: AxisSpace) -> Factor | None:
        if a.form == PROD:
            found: Factor = np.ones(1)
            for part in parts_of(a):
                own = self.scale(part)
                wide = np.ones(part.size) if own is None else own
                found = np.multiply.outer(found, wide).reshape(-1)
            return None if (found == 1).all() else found
        if a.form == CAT:
            several = [(part, self.scale(part)) for part in parts_of(a)]
            if all(own is None for _, own in several):
                return None
            return np.concatenate([np.ones(p.size) if own is None else own for p, own in several])
        b = self.spaces.of(a)
        if b is None or a.size <= b.size or a.size % b.size == 0 or BENT in a.traits:
            return None
        index = self._index_of_atom(a, b)
        if index is None:
            return None
        if (index == MEAN).any():
            whole = a.size - a.size % b.size
            return np.full(a.size, math.sqrt(a.size / whole))
        if SQUARED in a.traits and STANDARDISED not in a.traits:
            counts = np.bincount(index, minlength=b.size)
            scale: Factor = np.sqrt(a.size / (b.size * counts[index]))
            return scale
        return None

    def _takes_means(self, a: AxisSpace) -> bool:
        traits = a.traits
        is_linear = BENT not in traits and WEIGHTED not in traits
        return STANDARDISED in traits and is_linear and a not in self._inner

    def _refresh(self) -> None:
        if self._version != self.spaces.version:
            self._version = self.spaces.version
            self._indices.clear()
            self._scales.clear()


def spread(n: int, m: int) -> Index:
    """Return which of m elements stands behind each of n.

    Widened: all of them, over and over (Net2Net). Narrowed: evenly spaced ones (weight selection,
    arXiv 2311.18823).
    """
    places = np.arange(n)
    return places % m if n >= m else places * m // n


def _of_one(a: AxisSpace, b: AxisSpace) -> Index | None:
    if a is not b and FIXED in (a.traits | b.traits):
        return None
    return np.zeros(a.size, np.int64)


def _inner(axes: Axes) -> set[AxisSpace]:
    """Return the atoms that are a part of some axis."""
    found: set[AxisSpace] = set()
    seen: set[AxisSpace] = set()
    for op in axes.flow.operations:
        for number in range(len(op.shapes)):
            for space in axes[Value(op.ordinal, number)]:
                if space.form is not None and space not in seen:
                    seen.add(space)
                    found.update(leaves(space))
    return found


def _matrices(axes: Axes) -> Counter[AxisSpace]:
    """Return in how many weights with two axes or more each atom is."""
    found: Counter[AxisSpace] = Counter()
    for op in axes.flow.operations:
        if op.op == PARAMETER and len(op.shape) > 1:
            spaces = axes[Value(op.ordinal)][:2]
            found.update({leaf for space in spaces for leaf in leaves(space)})
    return found


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
