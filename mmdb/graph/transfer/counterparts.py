"""Which operation of the parent computes what each operation of the child computes.

The child's operations are followed in order. One whose arguments have counterparts, and which the
parent does to those, has that operation's result as its own counterpart. A new layer either
hands on what it gets, or gives zero, or its result has no counterpart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from mmdb.graph.ops.op_graph import BUFFER, CONSTANT, INPUT, PARAMETER, Operation, Value
from mmdb.graph.transfer import op_kinds
from mmdb.graph.transfer.axis_terms import leaves
from mmdb.graph.transfer.index_arrays import Indices
from mmdb.graph.transfer.new_layers import NewBranches, can_hand_on, nearly_hands_on, new_branches
from mmdb.graph.transfer.op_traits import (
    ParentOperations,
    commutes,
    gives_zero,
    has_infinite_factor,
    is_scaled,
    keeps_track,
    key_of,
    main_operands,
    makes_whole,
    reference,
    same_part,
    settings,
)
from mmdb.graph.transfer.tensor_axes import Axes

#: Stands for a result that is zero.
ZERO: Final = Value(-1)
_MOST_PASSES: Final = 4


def counterparts_of(
    child: Axes, parent: Axes, indices: Indices, parameters: Mapping[Value, Value]
) -> Counterparts:
    """Return what has a counterpart, with branches in place of the parent's paths known for such.

    Args:
        parameters: the parent's parameter, by the child's.
    """
    replacing: set[int] = set()
    for _ in range(_MOST_PASSES):
        found = Counterparts(child, parent, indices, parameters, replacing)
        more = found.replacing() - replacing
        if not more:
            break
        replacing |= more  # what comes after them may be known now
    return found


class Counterparts:
    """What has a counterpart.

    Args:
        parameters: the parent's parameter, by the child's.
        replacing: as `new_branches` takes it.

    Attributes:
        operations: the parent's operation, by the child's ordinal.
        operands: arguments of a child's operation with those of its counterpart.
        identities: ordinals of new operations that hand on what they get.
        branches: the new branches.
        mended: (ordinal, reason) of operations whose counterpart reads something else, or that are
            taken to hand on what they nearly do.
        parameters: as given, and biases that follow from the operations.
        buffers: the parent's, by the child's, of those that count and are taken for equal.
    """

    def __init__(
        self,
        child: Axes,
        parent: Axes,
        indices: Indices,
        parameters: Mapping[Value, Value],
        replacing: Collection[int] = (),
    ) -> None:
        self.operations: dict[int, Operation] = {}
        self.operands: dict[int, list[tuple[Value, Value]]] = {}
        self.identities: set[int] = set()
        self.mended: list[tuple[int, str]] = []
        self._handed: set[int] = set()  # operations that give what new layers handed on
        self._nearly: dict[int, str] = {}
        self.parameters, self.buffers = dict(parameters), dict[Value, Value]()
        self._child, self._indices, self._spaces = child, indices, indices.spaces
        self._parent = ParentOperations(parent)
        self._inputs = 0
        self._of: dict[Value, Value] = {}
        self.branches: NewBranches = new_branches(child, set(parameters), replacing)
        for op in child.flow.operations:
            self._follow(op)
        self._forget_idle_identities()

    def of(self, value: Value) -> Value | None:
        """Return the parent's value, before it is rearranged; ZERO, or None."""
        return self._of.get(value)

    @property
    def matched(self) -> int:
        """The child's operations that do to what they read what one of the parent's does."""
        return len(self.operations) - len(self.mended)

    def replacing(self) -> set[int]:
        """Return the sums in which a new branch gives zero though the parent has a path there."""
        found: set[int] = set()
        for ordinal, way in self.branches.sources.items():
            op = self._child.flow.operations[ordinal]
            if is_scaled(op):
                continue
            known = [one for one in map(self._of.get, op.reads) if one is not None and one != ZERO]
            for source in map(self._of.get, way):
                if len(known) == 1 and source is not None and source != ZERO:
                    key = ("add", *sorted((known[0], source), key=repr))
                    if self._parent.doing(key):
                        found.add(ordinal)
        return found

    def missing(self) -> list[str]:
        """Return why outputs have no counterpart; [] if each has its own."""
        child, parent = self._child.flow, self._parent.axes.flow
        if len(child.outputs) != len(parent.outputs):
            return [f"{len(child.outputs)} outputs, the parent has {len(parent.outputs)}"]
        found: list[str] = []
        for one, other in zip(child.outputs, parent.outputs, strict=True):
            if self._of.get(one) != self._parent.base(other):
                found += self._lost(one) or ["an output is another value than the parent's"]
            elif child.shape_of(one) != parent.shape_of(other) or not self._axes_fit(one, other):
                found.append("the axes of an output are not the parent's")
        return list(dict.fromkeys(found))

    def _lost(self, value: Value) -> list[str]:
        """Return the operations where a value's counterpart is lost."""
        found, seen, open_values = [], {value}, [value]
        while open_values:
            one = open_values.pop()
            op = self._child.flow.operations[one.operation]
            reads = [read for read in op.reads if not self._is_weight(read)]
            lost = [read for read in reads if read not in self._of]
            if one not in self._of and not lost:
                found.append(f"{op.op} in {op.path!r} is not in the parent")
            open_values += [read for read in lost if read not in seen]
            seen.update(lost)
        return found[:8]

    def _is_weight(self, value: Value) -> bool:
        return value.operation not in self._child.from_inputs

    # -- one operation ----------------------------------------------------------

    def _follow(self, op: Operation) -> None:
        here = Value(op.ordinal)
        if op.ordinal in self.branches.ends:
            self._of[here] = ZERO
        elif here in self.parameters:
            self._of[here] = self.parameters[here]
        elif op.op in (BUFFER, INPUT):
            found = self._parent.source(op, self._inputs)
            self._inputs += op.op == INPUT
            if found is not None:
                self._of[here] = found
                self._axes_fit(here, found)
        elif op.op not in (PARAMETER, CONSTANT):
            steps = (self._with_zero, self._rearranged, self._matched, self._handed_on)
            if not any(step(op) for step in steps):
                self._mended(op)

    def _with_zero(self, op: Operation) -> bool:
        reads = op.reads
        if not any(self._of.get(value) == ZERO for value in reads):
            return False
        others = [value for value in reads if self._of.get(value) != ZERO]
        is_kept = op.op == "add" or (op.op == "sub" and self._of.get(reads[-1]) == ZERO)
        is_kept = is_kept and not (is_scaled(op) and others == list(reads[-1:]))
        if is_kept and len(reads) == 2 and len(others) == 1:
            if others[0] in self._of and self._child.flow.shape_of(others[0]) == op.shape:
                self._hand_on(op, others[0])
            return True
        if op.op == "mul" and has_infinite_factor(self._child, op):
            return True
        if gives_zero(op, [self._of.get(value) == ZERO for value in reads]):
            self._of.update({Value(op.ordinal, n): ZERO for n in range(len(op.shapes))})
        return True

    def _rearranged(self, op: Operation) -> bool:
        if op.op not in op_kinds.REARRANGING or not keeps_track(self._child, op):
            return False
        if op.reads[0] in self._of:
            self._hand_on(op, op.reads[0])
        return True

    def _matched(self, op: Operation) -> bool:
        if op.op == "cat" and self._joined_with_new(op):
            return True
        key = key_of(op, self._ref)
        if key is None:
            return False
        for other in self._parent.doing(key):
            operands = self._paired(op, other)
            if operands is not None and self._alike(op, other, operands):
                self._take(op, other, operands)
                return True
        return False

    def _joined_with_new(self, op: Operation) -> bool:
        """Match what is known of a concatenation, if the rest is new."""
        known = [value for value in op.reads if self._ref(value) is not None]
        rest = [value for value in op.reads if value not in known]
        if not known or not rest or not self._are_new(rest, op):
            return False
        if len(known) == 1:
            self._of[Value(op.ordinal)] = self._of[known[0]]
            return True
        for other in self._parent.doing(("cat", *map(self._ref, known))):
            operands = list(zip(known, other.reads, strict=True))
            is_same = settings(op) == settings(other)
            if is_same and all(self._axes_fit(one, another) for one, another in operands):
                self._take(op, other, operands)
                return True
        return False

    def _handed_on(self, op: Operation) -> bool:
        """Take what the operation reads for its result, if a new layer, or an activation, may."""
        known = [value for value in op.reads if value in self._of]
        if not known:
            return False
        source, weight = known[0], op.arguments.get("weight")
        if op.op == "mul" and len(op.reads) == 2 and self._child.flow.shape_of(source) == op.shape:
            weight = op.reads[0] if op.reads[1] == source else op.reads[1]
        if isinstance(weight, Value) and self._is_new(weight):
            bias = op.arguments.get("bias")
            is_biased = isinstance(bias, Value) and not self._is_new(bias)
            if op.ordinal in self.branches.within or source == weight or is_biased:
                return False
            ways = self.branches.ways
            if not can_hand_on(op, source, self._child, self._spaces, self._is_new, ways):
                return False
            self.identities.add(op.ordinal)
            self._handed.add(op.ordinal)
        elif not self._parent.is_idle(op, self._of[source]):
            is_among_new = op.ordinal in self.branches.ways or source.operation in self._handed
            if op.ordinal in self.branches.within or not is_among_new:
                return False
            if not nearly_hands_on(op, source, self._child, self._spaces):
                return False
            self._nearly[op.ordinal] = f"{op.op} in {op.path!r} is not in the parent"
            self._handed.add(op.ordinal)
        self._hand_on(op, source)
        return True

    def _hand_on(self, op: Operation, source: Value) -> None:
        self._of[Value(op.ordinal)] = self._of[source]
        if source.operation in self._handed:
            self._handed.add(op.ordinal)

    def _forget_idle_identities(self) -> None:
        """Let layers that hand on to nothing but new layers be new themselves."""
        live = set(self.operations)
        for op in reversed(self._child.flow.operations):
            here = Value(op.ordinal)
            readers = self._child.readers[here]
            if here in self._of and (
                here in self._child.outputs or any(reader.ordinal in live for reader in readers)
            ):
                live.add(op.ordinal)
        self.identities &= live
        self.mended += [(number, why) for number, why in self._nearly.items() if number in live]

    def _mended(self, op: Operation) -> None:
        """Take the operation of the parent with the same weight, or the same last operand."""
        known = [self._of[value] for value in op.reads if value in self._of]
        if op.op in op_kinds.WEIGHTED or op.op in op_kinds.RECURRENT:
            known = [one for one in known if one in self._parent.weights]
        elif op.op not in ("add", "cat"):
            return
        for one in reversed(known):
            for other in self._parent.reading(op.op, one):
                operands = self._paired(op, other, strict=False)
                if operands is not None and len(op.shapes) == len(other.shapes):
                    self._take(op, other, operands)
                    unknown = [read for read in op.reads if not self._is_weight(read)]
                    lost = [why for read in unknown for why in self._lost(read)]
                    is_same = key_of(op, self._ref) == key_of(other, self._parent.reference)
                    what = "other channels" if is_same else "another value"
                    reason = f"{op.op} in {op.path!r} reads or gives {what} than the parent's"
                    reason += f": {lost[0]}" if lost else ""
                    self.mended.append((op.ordinal, reason))
                    return

    def _are_new(self, values: Iterable[Value], op: Operation) -> bool:
        dim = op.arguments["dim"]
        assert isinstance(dim, int)
        return all(
            self._spaces.of(leaf) is None
            for value in values
            for leaf in leaves(self._child[value][dim])
        )

    def _take(self, op: Operation, other: Operation, operands: list[tuple[Value, Value]]) -> None:
        self.operations[op.ordinal], self.operands[op.ordinal] = other, operands
        for source in map(self._child.parameter_of, op.reads):
            if source in self._of and source not in self.parameters:
                self.buffers[source] = self._of[source]
        for number in range(min(len(op.shapes), len(other.shapes))):
            here = Value(op.ordinal, number)
            self._of[here] = self._parent.base(Value(other.ordinal, number))
            self._axes_fit(here, Value(other.ordinal, number))
        one, another = op.arguments.get("bias"), other.arguments.get("bias")
        if isinstance(one, Value) and isinstance(another, Value) and self._is_new(one):
            self.parameters.setdefault(one, another)
            self._of.setdefault(one, another)

    # -- comparisons --------------------------------------------------------------

    def _ref(self, value: Value) -> object:
        op = self._child.flow.operations[value.operation]
        return reference(op) if op.op == CONSTANT else self._of.get(value)

    def _paired(
        self, op: Operation, other: Operation, *, strict: bool = True
    ) -> list[tuple[Value, Value]] | None:
        """Return arguments with the parent's; None if the parent's are in another form."""
        one, another = list(main_operands(op)), list(main_operands(other))
        if op.op == "cat" and len(one) != len(another):
            one = [value for value in one if value in self._of]
        if len(one) != len(another):
            return None
        if commutes(op) and len(one) == 2:
            straight = self._ref(one[0]) == self._parent.reference(another[0])
            if not straight and self._ref(one[1]) != self._parent.reference(another[1]):
                another.reverse()
        pairs = list(zip(one, another, strict=True))
        if strict and not all(self._axes_fit(a, b) for a, b in pairs):
            return None
        return pairs

    def _alike(self, op: Operation, other: Operation, operands: list[tuple[Value, Value]]) -> bool:
        if len(op.shapes) != len(other.shapes):
            return False
        if op.op in op_kinds.CUTTING:
            one, another = operands[0]
            return same_part(op, other, self._child[one], self._parent.axes[another], self._indices)
        if not self._axes_fit(Value(op.ordinal), Value(other.ordinal)):
            return False
        loose = op_kinds.SILENT | op_kinds.SILENT_IN.get(op.op, frozenset())
        is_same = settings(op, loose) == settings(other, loose)
        return is_same and makes_whole(op) == makes_whole(other)

    def _axes_fit(self, one: Value, other: Value) -> bool:
        a, b = self._child[one], self._parent.axes[other]
        return len(a) == len(b) and all(map(self._spaces.fits, a, b))

    def _is_new(self, value: Value) -> bool:
        op = self._child.flow.operations[value.operation]
        return op.op == PARAMETER and value not in self.parameters
