"""Plans index maps of the child's tensors from two op graphs, without any values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from mmdb.graph.ops.op_graph import BUFFER, PARAMETER, OpGraph, Value
from mmdb.graph.ops.skeleton import LayerSkeleton
from mmdb.graph.transfer import op_kinds
from mmdb.graph.transfer.computed_axes import axes_of
from mmdb.graph.transfer.correspondence import Correspondence
from mmdb.graph.transfer.counterparts import counterparts_of
from mmdb.graph.transfer.index_arrays import Indices
from mmdb.graph.transfer.index_maps import IndexMaps
from mmdb.graph.transfer.norm_rules import NORMS
from mmdb.graph.transfer.op_sequences import chained_paths, followed_paths, with_ends
from mmdb.graph.transfer.propagate import Handler, Propagation
from mmdb.graph.transfer.required_scale import RequiredScale, SplitWeights
from mmdb.graph.transfer.weighted_rules import LAYERS
from mmdb.graph.transfer.weightless_rules import ELEMENTS, PRODUCTS, otherwise

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
