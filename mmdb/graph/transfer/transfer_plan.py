"""Plans index maps of the child's tensors from two op graphs, without any values.

First the space of the parent that stands behind each space of the child, then their elements.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from mmdb.graph.ops.op_graph import BUFFER, PARAMETER, OpGraph, Value
from mmdb.graph.ops.skeleton import LayerSkeleton
from mmdb.graph.transfer import op_kinds
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
from mmdb.graph.transfer.computed_axes import axes_of
from mmdb.graph.transfer.counterparts import counterparts_of
from mmdb.graph.transfer.index_arrays import Indices
from mmdb.graph.transfer.index_maps import IndexMaps
from mmdb.graph.transfer.norm_rules import NORMS
from mmdb.graph.transfer.op_sequences import chained_paths, followed_paths, with_ends
from mmdb.graph.transfer.propagate import Handler, Propagation
from mmdb.graph.transfer.required_scale import RequiredScale, SplitWeights
from mmdb.graph.transfer.tensor_axes import Axes
from mmdb.graph.transfer.weighted_rules import LAYERS
from mmdb.graph.transfer.weightless_rules import ELEMENTS, PRODUCTS, otherwise

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
        self._of: dict[AxisSpace, AxisSpace] = {}
        self.version = 0
        votes: defaultdict[AxisSpace, Counter[AxisSpace]] = defaultdict(Counter)
        uneven: list[tuple[AxisSpace, AxisSpace]] = []
        for one, other, weight in pairs:
            end = 2 if one in child.kernels else None
            for a, b in zip(child[one][:end], parent[other][:end], strict=False):
                _vote(a, b, weight, votes, uneven)
        self._elect(votes)
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

    def _elect(self, votes: Mapping[AxisSpace, Counter[AxisSpace]]) -> None:
        self._of = {space: counts.most_common(1)[0][0] for space, counts in votes.items()}
        self.version += 1

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


_STATISTICS: Final = ("running_mean", "running_var")
#: Of what the best plan carries over, what another must carry to be taken in its place.
_ABOUT_AS_MUCH: Final = 0.98
_HANDLERS: Mapping[str, Handler] = {**ELEMENTS, **LAYERS, **NORMS, **PRODUCTS}


class TransferPlan:
    """Images of the child's tensors.

    Args:
        paths: the parent's path, by the child's, of tensors that stand for one another.
        seed: of the shares of copies.

    Attributes:
        values: of the child's parameters and buffers, by path.

    Raises:
        ValueError: the operations of an op graph are not in order.
    """

    def __init__(
        self, child: OpGraph, parent: OpGraph, paths: Mapping[str, str], seed: int
    ) -> None:
        _check_order(child)
        _check_order(parent)
        self.child, self.parent = child, parent
        own, other = axes_of(child), axes_of(parent)
        self.values = _values(child)
        others = _values(parent)
        parameters = {
            self.values[path]: others[its]
            for path, its in paths.items()
            if path in self.values and its in others
        }
        for path in child.unread:  # what nothing reads has no place but its name
            if path in self.values and path in others and path in parent.unread:
                parameters.setdefault(self.values[path], others[path])
        weighted = [(one, two, _count(child, one)) for one, two in parameters.items()]
        shares = SplitWeights(seed)
        indices = Indices(own, Correspondence(own, other, weighted))
        self.counterparts = counterparts_of(own, other, indices, parameters)
        demands = RequiredScale(own, other, indices, self.counterparts, shares)
        self.images = IndexMaps(own, other, indices, self.counterparts.parameters, shares)
        self.carry = Propagation(own, other, indices, self.counterparts, demands, self.images)
        self.carry.run(_HANDLERS, otherwise)
        for value in self.images.parameters:
            self.images.image(value)

    @property
    def carried(self) -> int:
        """The elements of the child's tensors that stand for the parent's."""
        return sum(_count(self.child, value) for value in self.images.of)

    def reasons(self) -> list[str]:
        """Return why the child does not compute what the parent does, [] if it does."""
        found = [reason for _, reason in self.counterparts.mended]
        found += [*self.carry.reasons, *self.counterparts.missing()]
        operations = self.child.operations
        for notes in (self.images.refused, self.images.local):
            found += [f"{operations[v.operation].path}: {why}" for v, why in notes.items()]
        return found


def planned(child: OpGraph, parent: OpGraph, paths: Mapping[str, str], seed: int) -> TransferPlan:
    """Return the plan for these tensors, or one that follows from the order of operations or from
    names, if with that the child is nearer to what the parent computes.

    That is where it is exact; or carries about as much over, with more operations that do what the
    parent's do.

    Raises:
        ValueError: the operations of an op graph are not in order.
    """
    if paths:
        paths = with_ends(paths, child, parent)
    plan = TransferPlan(child, parent, paths, seed)
    if not paths or not plan.reasons():
        return plan
    parameters = [op.path for op in child.operations if op.op == PARAMETER]
    known = [[paths.get(path) for path in parameters]]
    plans = [plan]
    for opinion in (_namesakes, followed_paths, chained_paths):
        one = with_ends(opinion(child, parent), child, parent)
        own = [one.get(path) for path in parameters]
        if own not in known and any(own):
            known.append(own)
            plans.insert(-1, TransferPlan(child, parent, one, seed))
            if not plans[-2].reasons():
                return plans[-2]
    most = max(one.carried for one in plans)
    near = [one for one in plans if one.carried >= _ABOUT_AS_MUCH * most]
    return max(near, key=lambda one: (one.counterparts.matched, one.carried))


def tensor_pairs(
    pairs: Sequence[tuple[int, int]], child: LayerSkeleton, parent: LayerSkeleton
) -> dict[str, str]:
    """Return the parent's path, by the child's, of tensors with the same role."""
    found: dict[str, str] = {}
    for one, other in pairs:
        its = dict(parent.layers[other].tensors)
        for role, path in child.layers[one].tensors:
            if role in its:
                found.setdefault(path, its[role])
    return found


def _namesakes(child: OpGraph, parent: OpGraph) -> dict[str, str]:
    """Return the weights and statistics with the same path and as many axes in both."""
    one, other = _values(child), _values(parent)
    learned = _learned(child, one)
    return {
        path: path
        for path, value in one.items()
        if path in other
        and value in learned
        and len(child.shape_of(value)) == len(parent.shape_of(other[path]))
    }


def _learned(flow: OpGraph, values: Mapping[str, Value]) -> set[Value]:
    """Return the parameters, and the buffers that norms learn; tables are what they are."""
    norms = [op for op in flow.operations if op.op in op_kinds.STANDARDISING]
    statistics = {op.arguments.get(name) for op in norms for name in _STATISTICS}
    return {
        value
        for value in values.values()
        if flow.operations[value.operation].op == PARAMETER or value in statistics
    }


def _values(flow: OpGraph) -> dict[str, Value]:
    own = {op.path: Value(op.ordinal) for op in flow.operations if op.op in (PARAMETER, BUFFER)}
    ties = {path: own[first] for path, first in flow.ties.items() if first in own}
    return {**ties, **own}


def _count(flow: OpGraph, value: Value) -> int:
    return math.prod(flow.shape_of(value))


def _check_order(flow: OpGraph) -> None:
    for number, op in enumerate(flow.operations):
        if op.ordinal != number or any(not 0 <= v.operation < number for v in op.reads):
            raise ValueError("an operation reads what comes after it")
    if any(not 0 <= value.operation < len(flow.operations) for value in flow.outputs):
        raise ValueError("an output is not of the flow")
