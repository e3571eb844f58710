"""Layers and branches that the child has and its parent has not.

A new branch beside an old path gives zero by its last weights (zero gamma, zero projection); layers
before them keep their own initialisation, so that gradients flow. Where all paths between two old
layers are new, one of them hands on what it gets and the branches beside it give zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import inf
from typing import Final

from mmdb.graph.ops.op_graph import BUFFER, INPUT, PARAMETER, Operation, Value
from mmdb.graph.transfer import op_kinds
from mmdb.graph.transfer.axis_terms import AxisSpace, leaves
from mmdb.graph.transfer.correspondence import Correspondence
from mmdb.graph.transfer.op_traits import Ends, centre_of, is_scaled, weights_of
from mmdb.graph.transfer.tensor_axes import Axes

_LONGEST_WAY: Final = 64  # operations of a way that are looked at


@dataclass(slots=True)
class NewBranches:
    """New branches of the child.

    Attributes:
        ends: ordinals of operations whose weights are to be zero, or of the weight itself.
        zeros: paths of these weights.
        within: ordinals of operations of which nothing but such branches is computed.
        ways: ordinals of operations between old layers, all of them new, that hand on what they
            get, with the sums in which the branches beside them give zero.
        sources: by the ordinal of a sum in which a new branch gives zero: what the branch could
            hand on, the last value first.
    """

    ends: set[int] = field(default_factory=set)
    zeros: set[str] = field(default_factory=set)
    within: set[int] = field(default_factory=set)
    ways: set[int] = field(default_factory=set)
    sources: dict[int, tuple[Value, ...]] = field(default_factory=dict)


def new_branches(
    axes: Axes, paired: Collection[Value], replacing: Collection[int] = ()
) -> NewBranches:
    """Return the branches that are added to something else, and have new weights at their end.

    Args:
        paired: parameters that have a counterpart.
        replacing: ordinals of sums in which the new branch stands where the parent has a path, so
            that it hands on what it gets.
    """
    found = NewBranches()
    ends, ways = Ends(axes, paired), _Ways(axes, paired, found.ways)
    for op in reversed(axes.flow.operations):  # an outer branch before those within it
        if op.ordinal in found.ends or _is_within(axes, op, found):
            found.within.add(op.ordinal)
        elif op.op == "add" and len(op.reads) == 2 and not is_scaled(op):
            is_replacing = op.ordinal in replacing
            idle, way = _idle_ends(axes, op, ends, ways, is_replacing=is_replacing)
            if idle and way is not None:
                found.sources[op.ordinal] = way
            for end in idle:
                found.ends.add(end)
                for value in weights_of(axes.flow.operations[end]):
                    found.zeros.add(axes.flow.operations[value.operation].path)
    return found


def _is_within(axes: Axes, op: Operation, found: NewBranches) -> bool:
    values = [Value(op.ordinal, number) for number in range(len(op.shapes))]
    readers = [reader.ordinal for value in values for reader in axes.readers[value]]
    is_returned = any(value in axes.outputs for value in values)
    return bool(readers) and not is_returned and all(one in found.within for one in readers)


def _idle_ends(
    axes: Axes, op: Operation, ends: Ends, ways: _Ways, *, is_replacing: bool
) -> tuple[list[int], tuple[Value, ...] | None]:
    """Return the operations that end the branch of a sum which is to give zero, and its way."""
    values = list(dict.fromkeys(op.reads))
    new = [value for value in values if ends.of(value) is not None]
    if not new or len(values) < 2:  # nothing new, or a value that is added to itself
        return [], None
    way = ways.nearest(new)
    is_all_new = len(new) == len(values)
    if is_all_new and way is None:
        return [], None
    hands_on = way is not None and (is_replacing or is_all_new)
    if hands_on and way is not None:
        ways.keep(op, way)
        new.remove(way)
    found = [end for value in new for end in ends.of(value) or () if end not in ways.kept]
    if hands_on:
        return found, None
    beside = next(value for value in values if value not in new)
    if _depends(axes, beside, set(found)):
        return [], None
    return found, None if way is None else ways.back(way)


def _depends(axes: Axes, value: Value, ordinals: Collection[int]) -> bool:
    """Whether a value is computed from what one of these operations gives."""
    first = min(ordinals, default=0)
    waiting, seen = [value.operation], set[int]()
    while waiting:
        ordinal = waiting.pop()
        if ordinal in ordinals:
            return True
        if ordinal >= first and ordinal not in seen:
            seen.add(ordinal)
            waiting += [read.operation for read in axes.flow.operations[ordinal].reads]
    return False


class _Ways:
    """How near what values are computed from is to the parent's, by ways that can hand it on.

    Args:
        kept: is given the ordinals of operations on the ways that are chosen.
    """

    def __init__(self, axes: Axes, paired: Collection[Value], kept: set[int]) -> None:
        self.kept = kept
        self._axes, self._paired = axes, paired
        self._steps: dict[Value, float] = {}
        self._back: dict[int, Value] = {}
        for op in axes.flow.operations:
            if op.op == INPUT or op.ordinal in axes.from_inputs:
                self._add(op)

    def nearest(self, values: Collection[Value]) -> Value | None:
        """Return the value with the shortest way, None if none has one."""
        found = min(values, key=self._of)
        return found if self._of(found) < inf else None

    def keep(self, total: Operation, value: Value) -> None:
        """Choose the way to a value of a sum."""
        self.kept.add(total.ordinal)
        while value.operation in self._back and value.operation not in self.kept:
            self.kept.add(value.operation)
            value = self._back[value.operation]

    def back(self, value: Value) -> tuple[Value, ...]:
        """Return the values of the way to a value, itself first."""
        found = [value]
        while found[-1].operation in self._back and len(found) < _LONGEST_WAY:
            found.append(self._back[found[-1].operation])
        return tuple(found)

    def _of(self, value: Value) -> float:
        return self._steps.get(value, inf)

    def _add(self, op: Operation) -> None:
        here, steps = Value(op.ordinal), 0.0
        is_new = op.op in op_kinds.WEIGHTED and not any(v in self._paired for v in op.reads)
        if op.op != INPUT and (is_new or op.op not in op_kinds.WEIGHTED):
            reads = [value for value in op.reads if value.operation in self._axes.from_inputs]
            source = min(reads, key=self._of)
            self._back[op.ordinal] = source
            steps = self._of(source) + self._step(op, source, is_new=is_new)
        self._steps.update({Value(here.operation, n): steps for n in range(len(op.shapes))})

    def _step(self, op: Operation, source: Value, *, is_new: bool) -> float:
        """Return what an operation adds to a way: the most where it bends what it hands on."""
        is_still = self._axes.flow.shape_of(source) == op.shape
        if is_new and not is_still:
            return inf
        if is_new:
            return 0.0 if op.op in op_kinds.STANDARDISING else 1.0
        return 2.0 if op.op in op_kinds.NEARLY_IDLE and is_still else 0.0


_FURTHEST: Final = 64  # operations that are looked at ahead


def can_hand_on(
    op: Operation,
    source: Value,
    axes: Axes,
    spaces: Correspondence,
    is_new: Callable[[Value], bool],
    ways: Collection[int],
) -> bool:
    """Whether a new layer can give what it reads, and what follows expects that.

    The space of what it gives learns which of the parent's it stands for.

    Args:
        ways: ordinals of sums that give what one of their operands is, and others.
    """
    one, other = axes[source], axes[Value(op.ordinal)]
    if op.op == "batch_norm":
        return op.arguments["training"] is False and _is_owned(op, axes)
    if op.op == "mul":
        return True
    if op.op == "convolution" and not op.arguments["transposed"]:
        axis = 1
        is_still = axes.flow.shape_of(source)[2:] == op.shape[2:]
        if not is_still or centre_of(op, axes) is None:
            return False
    elif op.op == "linear":
        axis = -1
    else:
        return False
    if not any(spaces.of(leaf) for leaf in leaves(other[axis])):
        image = spaces.image_of(one[axis])
        if image is None or _expected(op, axis, axes, spaces, is_new, ways) is not image:
            return False
    return spaces.same(one[axis], other[axis])


def _is_owned(op: Operation, axes: Axes) -> bool:
    """Whether a norm's weights and statistics are the module's own tensors, as they are."""
    given = [op.arguments.get(name) for name in ("weight", "bias", "running_mean", "running_var")]
    return all(
        isinstance(value, Value) and axes.flow.operations[value.operation].op in (PARAMETER, BUFFER)
        for value in given
    )


def nearly_hands_on(op: Operation, source: Value, axes: Axes, spaces: Correspondence) -> bool:
    """Whether what an operation without weights gives is near what it reads.

    An activation or a pool keeps the sign of what is large. Taken for nothing among new layers, it
    lets them hand on what they get; a child learns sooner so than behind layers that give noise.
    """
    here = Value(op.ordinal)
    if op.op not in op_kinds.NEARLY_IDLE or axes.flow.shape_of(source) != op.shape:
        return False
    return all(map(spaces.same, axes[source], axes[here]))


def _expected(
    op: Operation,
    axis: int,
    axes: Axes,
    spaces: Correspondence,
    is_new: Callable[[Value], bool],
    ways: Collection[int],
) -> AxisSpace | None:
    """Return the parent's space of what further new layers after this one give."""
    waiting, seen = [Value(op.ordinal)], {Value(op.ordinal)}
    while waiting and len(seen) < _FURTHEST:
        for reader in axes.readers[waiting.pop()]:
            out = Value(reader.ordinal)
            weight = reader.arguments.get("weight")
            if reader.op in ("linear", "convolution"):
                if not isinstance(weight, Value) or not is_new(weight):
                    continue
                image = spaces.image_of(axes[out][axis])
                if image is not None:
                    return image
            elif reader.op in ("add", "cat", "mul") and reader.ordinal not in ways:
                continue
            if out not in seen:
                seen.add(out)
                waiting.append(out)
    return None
