"""Which element of the parent stands behind each element of the child, along an axis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.flow.flow import PARAMETER, Value
from mmdb.graph.transfer.axes.axes import Axes
from mmdb.graph.transfer.axes.spaces import (
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
    Space,
    find,
    leaves,
    parts_of,
)
from mmdb.graph.transfer.counterparts.correspondence import Correspondence, Pair, common_form

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
        self._indices: dict[tuple[Space, Space], Index | None] = {}
        self._scales: dict[Space, Factor | None] = {}
        self._version = spaces.version

    def index(self, a: Space, b: Space) -> Index | None:
        """Return for each of the child's elements the parent's, MEAN or NEW.

        None if the spaces do not correspond, or elements with a meaning have no counterpart.
        """
        self._refresh()
        a, b = find(a), find(b)
        key = (a, b)
        if key not in self._indices:
            self._indices[key] = self._index(a, b)
        return self._indices[key]

    def _index(self, a: Space, b: Space) -> Index | None:
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

    def _index_of_cat(self, aligned: Sequence[Pair], others: Sequence[Space]) -> Index | None:
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

    def _index_of_atom(self, a: Space, b: Space) -> Index | None:
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

    def scale(self, a: Space) -> Factor | None:
        """Return by what the child's elements are the parent's, multiplied; None for all 1.

        A norm over a width that is no multiple of the parent's sees the same mean square so; its
        eps counts as much as before.
        """
        self._refresh()
        a = find(a)
        if a not in self._scales:
            self._scales[a] = self._scale(a)
        return self._scales[a]

    def _scale(self, a: Space) -> Factor | None:
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

    def _takes_means(self, a: Space) -> bool:
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


def _of_one(a: Space, b: Space) -> Index | None:
    if a is not b and FIXED in (a.traits | b.traits):
        return None
    return np.zeros(a.size, np.int64)


def _inner(axes: Axes) -> set[Space]:
    """Return the atoms that are a part of some axis."""
    found: set[Space] = set()
    seen: set[Space] = set()
    for op in axes.flow.operations:
        for number in range(len(op.shapes)):
            for space in axes[Value(op.ordinal, number)]:
                if space.form is not None and space not in seen:
                    seen.add(space)
                    found.update(leaves(space))
    return found


def _matrices(axes: Axes) -> Counter[Space]:
    """Return in how many weights with two axes or more each atom is."""
    found: Counter[Space] = Counter()
    for op in axes.flow.operations:
        if op.op == PARAMETER and len(op.shape) > 1:
            spaces = axes[Value(op.ordinal)][:2]
            found.update({leaf for space in spaces for leaf in leaves(space)})
    return found
