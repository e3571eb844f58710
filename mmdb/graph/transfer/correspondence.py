"""Which space of the parent stands behind each space of the child.

Layers that are paired vote for the spaces of their tensors' axes. Spaces that no vote reaches (of
new layers, of positions) follow from the operations that have counterparts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np

from mmdb.graph.ops.op_graph import Value
from mmdb.graph.transfer.axis_terms import (
    BATCHED,
    KEPT,
    ONE,
    PROD,
    SUMMED,
    AxisSpace,
    concatenation,
    find,
    leaves,
    parts_of,
    product,
)
from mmdb.graph.transfer.tensor_axes import Axes

_ROLES: Final = frozenset((SUMMED, KEPT, BATCHED))
Pair: TypeAlias = tuple[AxisSpace | None, AxisSpace | None]


class Correspondence:
    """Spaces of the parent, by those of the child.

    Args:
        pairs: tensors of child and parent that stand for one another, with their weight.

    Attributes:
        version: changes with what is known.
    """

    def __init__(
        self, child: Axes, parent: Axes, pairs: Iterable[tuple[Value, Value, int]]
    ) -> None:
        votes: defaultdict[AxisSpace, Counter[AxisSpace]] = defaultdict(Counter)
        uneven: list[tuple[AxisSpace, AxisSpace]] = []
        for one, other, weight in pairs:
            end = 2 if one in child.kernels else None
            for a, b in zip(child[one][:end], parent[other][:end], strict=False):
                _vote(a, b, weight, votes, uneven)
        self._of = {space: counts.most_common(1)[0][0] for space, counts in votes.items()}
        self.version = 0
        # What spaces of few parts show may tell the parts of others apart.
        for a, b in sorted(uneven, key=lambda pair: sum(len(parts_of(one)) for one in pair)):
            self._learn_parts(a, b)

    def of(self, space: AxisSpace) -> AxisSpace | None:
        """Return the parent's space, None if there is none."""
        return self._of.get(find(space))

    def image_of(self, space: AxisSpace) -> AxisSpace | None:
        """Return what the parent has in place of a space, part by part; None if a part is new."""
        space = find(space)
        if space.form is None:
            return ONE if space is ONE else self._of.get(space)
        parts = [self.image_of(part) for part in parts_of(space)]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return product(known) if space.form == PROD else concatenation(known)

    def learn(self, space: AxisSpace, other: AxisSpace) -> None:
        """Set the parent's space of an atom that has none."""
        self._of[find(space)] = find(other)
        self.version += 1

    def fits(self, a: AxisSpace, b: AxisSpace) -> bool:
        """Whether the parent's space is that of the child's; atoms that have none learn it."""
        a, b = find(a), find(b)
        if a is ONE and b is ONE:
            return True
        if a.form is None and b.form is None and a is not ONE and b is not ONE:
            if a not in self._of:
                self.learn(a, b)
            return self._of[a] is b
        if a.form is None and b.form is None:
            return self._of.get(a, b) is b or a is ONE
        return all(
            self.fits(one, other)
            for one, other in self.align(a, b)
            if one is not None and other is not None and one is not ONE
        )

    def same(self, a: AxisSpace, b: AxisSpace) -> bool:
        """Whether two spaces of the child stand for one of the parent; b learns it if it has none.

        b has all elements of the parent's.
        """
        a, b = find(a), find(b)
        if a is b:
            return True
        if a.form is None and b.form is None:
            if a not in self._of or b.size < self._of[a].size:
                return False
            if b not in self._of and b is not ONE:
                self.learn(b, self._of[a])
            return self._of.get(b) is self._of[a]
        one, other = parts_of(a), parts_of(b)
        return a.form == b.form and len(one) == len(other) and all(map(self.same, one, other))

    # -- parts --------------------------------------------------------------------

    def align(self, a: AxisSpace, b: AxisSpace) -> list[Pair]:
        """Return parts of two spaces, at least one a compound, in order; None for no counterpart.

        Beside a product, anything else is a product of one factor.
        """
        a, b = find(a), find(b)
        form = common_form(a, b)
        one = parts_of(a) if a.form == form else [part for part in (a,) if part is not ONE]
        other = parts_of(b) if b.form == form else [part for part in (b,) if part is not ONE]
        if len(one) == len(other) and all(
            self._likeness(x, y) >= 0 for x, y in zip(one, other, strict=True)
        ):
            return list(zip(one, other, strict=True))
        return self._aligned(one, other)

    def _aligned(self, one: Sequence[AxisSpace], other: Sequence[AxisSpace]) -> list[Pair]:
        rows, columns = len(one), len(other)
        best = np.zeros((rows + 1, columns + 1))
        for i in range(rows - 1, -1, -1):
            for j in range(columns - 1, -1, -1):
                likeness = self._likeness(one[i], other[j])
                both = likeness + best[i + 1, j + 1] if likeness >= 0 else -1.0
                best[i, j] = max(both, best[i + 1, j], best[i, j + 1])
        found: list[Pair] = []
        i = j = 0
        while i < rows or j < columns:
            if i < rows and j < columns:
                likeness = self._likeness(one[i], other[j])
                if likeness >= 0 and best[i, j] == likeness + best[i + 1, j + 1]:
                    found.append((one[i], other[j]))
                    i, j = i + 1, j + 1
                    continue
            if j == columns or (i < rows and best[i, j] == best[i + 1, j]):
                found.append((one[i], None))
                i += 1
            else:
                found.append((None, other[j]))
                j += 1
        return found

    def _likeness(self, a: AxisSpace, b: AxisSpace) -> float:
        """Return how well two parts go together, -1 if they do not."""
        a, b = find(a), find(b)
        known = [self._of[leaf] for leaf in leaves(a) if leaf in self._of]
        if a.form is None and b.form is None:
            if known:
                return 2.0 if known[0] is b else -1.0
            if (a is ONE) != (b is ONE):
                return 0.1
            return 0.5 if a.traits & _ROLES == b.traits & _ROLES else 0.2
        if a.form != b.form:
            return -1.0
        if not known:
            return 0.5
        return 1.0 if set(known) & set(leaves(b)) else -1.0

    # -- votes --------------------------------------------------------------------

    def _learn_parts(self, a: AxisSpace, b: AxisSpace) -> None:
        """Learn which parts of two spaces go together."""
        a, b = find(a), find(b)
        is_product = common_form(a, b) == PROD
        for one, other in self.align(a, b):
            if one is None or (other is None and not is_product):
                continue
            another = ONE if other is None else find(other)
            if find(one).form is None and another.form is None:
                if one is not ONE and find(one) not in self._of:
                    self.learn(one, another)
            elif (find(one), another) != (a, b):
                self._learn_parts(one, another)


def common_form(a: AxisSpace, b: AxisSpace) -> str | None:
    """Return as what two spaces, at least one a compound, are compared."""
    return PROD if PROD in (a.form, b.form) else a.form or b.form


def _vote(
    a: AxisSpace,
    b: AxisSpace,
    weight: int,
    votes: defaultdict[AxisSpace, Counter[AxisSpace]],
    uneven: list[tuple[AxisSpace, AxisSpace]],
) -> None:
    """Vote for the atoms of two spaces; unlike forms, and concatenations, are put aside."""
    a, b = find(a), find(b)
    if a.form is None and b.form is None:
        if a is not ONE and b is not ONE:
            votes[a][b] += weight
        return
    one, other = parts_of(a), parts_of(b)
    if a.form == b.form == PROD and len(one) == len(other):
        for x, y in zip(one, other, strict=True):
            _vote(x, y, weight, votes, uneven)
    else:
        uneven.append((a, b))
