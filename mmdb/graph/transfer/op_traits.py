"""The operations of an op graph by what they do to what, and what two of them have in common.

Some make a value zero once their weights are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from math import isfinite
from typing import Final, TypeAlias

from mmdb.graph.ops.op_graph import BUFFER, CONSTANT, INPUT, PARAMETER, Operation, Value, values_in
from mmdb.graph.transfer import op_kinds
from mmdb.graph.transfer.axis_terms import AxisSpace, leaves
from mmdb.graph.transfer.index_arrays import Indices
from mmdb.graph.transfer.tensor_axes import Axes

#: Operations whose two operands may change places.
COMMUTING: Final = frozenset(("add", "mul", "maximum", "minimum"))
#: Operations on several tensors that are zero if all of them are.
_ZERO_OF_ZEROS: Final = frozenset(("add", "sub", "cat", "stack", "matmul", "maximum", "minimum"))
#: Arguments that follow from the weight beside them; states that start as constants.
_ATTACHED: Final = frozenset(("bias", "running_mean", "running_var", "hx"))
Key: TypeAlias = tuple[object, ...]


class ParentOperations:
    """The parent's operations."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.weights: set[Value] = set()
        self._bases: dict[Value, Value] = {}
        self._positive: set[Value] = set()
        self._doing: defaultdict[Key, list[Operation]] = defaultdict(list)
        self._reading: defaultdict[tuple[str, Value], list[Operation]] = defaultdict(list)
        self._inputs: list[Value] = []
        self._buffers: defaultdict[Key, list[Operation]] = defaultdict(list)
        for op in axes.flow.operations:
            self._add(op)

    def base(self, value: Value) -> Value:
        """Return what a value was before it was rearranged, computed again, or left as it is."""
        return self._bases.get(value, value)

    def reference(self, value: Value) -> object:
        """Return what a value counts as in keys."""
        op = self.axes.flow.operations[value.operation]
        return reference(op) if op.op == CONSTANT else self.base(value)

    def doing(self, key: Key) -> list[Operation]:
        """Return the operations of a key."""
        return self._doing.get(key, [])

    def reading(self, op: str, value: Value) -> list[Operation]:
        """Return the operations of a name that read a value, rearranged or not."""
        return self._reading.get((op, value), [])

    def source(self, op: Operation, number: int) -> Value | None:
        """Return the input of a number, or the buffer that stands for one of the child's.

        That is one of the same name and shape, and the same numbers if both are known: if there
        are several, the one of the same path, or else the first.
        """
        if op.op == INPUT:
            return self._inputs[number] if number < len(self._inputs) else None
        found = [
            other
            for other in self._buffers.get((_name(op), op.shape), ())
            if not (numbers(op) and numbers(other)) or numbers(op) == numbers(other)
        ]
        same = [other for other in found if other.path == op.path]
        return Value((same or found)[0].ordinal) if found else None

    def is_idle(self, op: Operation, value: Value) -> bool:
        """Whether an activation does not change a value."""
        if op.op == "relu":
            return value in self._positive
        maker = self.axes.flow.operations[value.operation]
        while maker.op.startswith("max_pool") and maker.reads:
            maker = self.axes.flow.operations[self.base(maker.reads[0]).operation]
        return maker.op == op.op == "hardtanh" and settings(maker) == settings(op)

    def _add(self, op: Operation) -> None:
        here = Value(op.ordinal)
        if op.op == INPUT:
            self._inputs.append(here)
        elif op.op == BUFFER:
            self._buffers[_name(op), op.shape].append(op)
        elif op.op == PARAMETER:
            self.weights.add(here)
        elif op.op != CONSTANT:
            self._add_computed(op, here)

    def _add_computed(self, op: Operation, here: Value) -> None:
        if op.reads:
            source = self.base(op.reads[0])
            is_arranged = op.op in op_kinds.REARRANGING and keeps_track(self.axes, op)
            if is_arranged or self.is_idle(op, source):
                self._bases[here] = source
        if self._is_positive(op):
            self._positive.update(Value(op.ordinal, n) for n in range(len(op.shapes)))
        key = key_of(op, self.reference)
        if key is not None:
            self._note_twin(op, key)
            self._doing[key].append(op)
        for value in dict.fromkeys(map(self.base, main_operands(op))):
            self._reading[op.op, value].append(op)

    def _note_twin(self, op: Operation, key: Key) -> None:
        """Let what is computed twice be the first of both."""
        if op.op not in op_kinds.ELEMENTWISE and op.op not in op_kinds.PER_CHANNEL:
            return
        for other in self._doing.get(key, ()):
            if settings(op) == settings(other) and len(op.shapes) == len(other.shapes):
                for n in range(len(op.shapes)):
                    self._bases[Value(op.ordinal, n)] = self.base(Value(other.ordinal, n))
                return

    def _is_positive(self, op: Operation) -> bool:
        if op.op in op_kinds.NOT_NEGATIVE:
            return True
        has_number = op.op in ("add", "mul") and len(op.reads) != 2
        has_number = has_number or op.arguments.get("alpha", 1) != 1
        return (
            op.op in op_kinds.KEEPING_SIGN
            and not has_number
            and bool(op.reads)
            and all(self.base(value) in self._positive for value in op.reads)
        )


def key_of(op: Operation, refer: Callable[[Value], object]) -> Key | None:
    """Return what an operation does to what; None if a tensor has no reference, or at random."""
    references = [refer(value) for value in main_operands(op)]
    if op.op in op_kinds.RANDOM or any(one is None for one in references):
        return None
    if commutes(op):
        references.sort(key=repr)
    return (op.op, *references)


def commutes(op: Operation) -> bool:
    """Whether the operands of an operation may change places."""
    return op.op in COMMUTING and not is_scaled(op)


def is_scaled(op: Operation) -> bool:
    """Whether a sum or a difference multiplies its second operand."""
    return op.op in ("add", "sub") and op.arguments.get("alpha", 1) != 1


def main_operands(op: Operation) -> list[Value]:
    """Return the tensors that an operation reads, without biases, statistics and states."""
    given = [value for name, value in op.arguments.items() if name not in _ATTACHED]
    return list(values_in(tuple(given)))


def settings(op: Operation, loose: Collection[str] = ()) -> dict[str, object]:
    """Return the arguments without tensors, but for `loose` ones."""
    return {
        name: value
        for name, value in op.arguments.items()
        if name not in loose and not any(True for _ in values_in(value))
    }


def reference(op: Operation) -> Key:
    """Return what a constant counts as; those of one shape are equal, as far as is known."""
    if "uniform" in op.arguments:
        return (CONSTANT, len(op.shape), op.arguments["uniform"])
    return (CONSTANT, op.shape, op.arguments.get("digest"))


def numbers(op: Operation) -> dict[str, object]:
    """Return what an op graph knows of a constant's or buffer's numbers, {} for nothing."""
    return {name: op.arguments[name] for name in ("uniform", "digest") if name in op.arguments}


def keeps_zero(op: Operation) -> bool:
    """Whether a result is zero where the first argument is."""
    if op.op == "hardtanh":
        low, high = op.arguments.get("min_val", -1), op.arguments.get("max_val", 1)
        return isinstance(low, int | float) and isinstance(high, int | float) and low <= 0 <= high
    return op.op in op_kinds.KEEPING_ZERO


def gives_zero(op: Operation, zeros: Sequence[bool]) -> bool:
    """Whether a result is zero where those of the tensors that an operation reads are."""
    if op.op == "mul":
        return any(zeros)
    if op.op == "div":  # by what may be zero, too, if it is no number
        return zeros == [True]
    is_sum = op.op in _ZERO_OF_ZEROS and len(zeros) > 1
    return all(zeros) if is_sum else zeros[0] and keeps_zero(op)


def makes_whole(op: Operation) -> bool:
    """Whether an operation makes integers or truth values of numbers."""
    dtype = str(op.arguments.get("dtype") or "float")
    return op.op in ("_to_copy", "to") and "float" not in dtype and "complex" not in dtype


def keeps_track(axes: Axes, op: Operation) -> bool:
    """Whether the spaces of the result alone say how the operation has rearranged its argument."""
    if op.op != "permute":
        return True
    atoms = [leaf for space in axes[op.reads[0]] for leaf in leaves(space)]
    return len(atoms) == len(set(atoms))


def same_part(
    op: Operation,
    other: Operation,
    own: Sequence[AxisSpace],
    its: Sequence[AxisSpace],
    indices: Indices,
) -> bool:
    """Whether two operations cut the same elements out of axes that correspond: `own` and `its`."""
    dim = op.arguments.get("dim")
    if not isinstance(dim, int) or dim != other.arguments.get("dim"):
        return False
    a, b = own[dim], its[dim]
    if a.size == b.size:
        return settings(op, ("dtype",)) == settings(other, ("dtype",))
    index = indices.index(a, b)
    if index is None or op.op not in ("slice", "split_with_sizes"):
        return False
    starts, others = _starts(op), _starts(other)
    return len(starts) == len(others) and all(
        start < a.size and index[start] == place
        for start, place in zip(starts, others, strict=True)
    )


def _starts(op: Operation) -> list[int]:
    """Return where the parts begin that a slice or a split takes."""
    if op.op == "slice":
        start = op.arguments["start"]
        return [start if isinstance(start, int) else 0]
    sizes = op.arguments["split_sizes"]
    assert isinstance(sizes, tuple)
    return [sum(sizes[:number]) for number in range(len(sizes))]


def centre_of(op: Operation, axes: Axes) -> tuple[int, ...] | None:
    """Return the tap of a convolution that sees the place of its result; None if none does."""
    weight = op.arguments["weight"]
    assert isinstance(weight, Value)
    taps = axes.flow.shape_of(weight)[2:]
    strides = per_axis(op, "stride", len(taps))
    found = []
    for size, stride, pad, step in zip(
        taps, strides, per_axis(op, "padding", len(taps)), per_axis(op, "dilation", len(taps)),
        strict=True,
    ):  # fmt: skip
        if stride != 1 or pad % step or pad // step >= size:
            return None
        found.append(pad // step)
    return tuple(found)


def per_axis(op: Operation, name: str, count: int) -> tuple[int, ...]:
    """Return a convolution's argument for each spatial axis."""
    given = op.arguments[name]
    numbers = given if isinstance(given, tuple) else (given,)
    return numbers * count if len(numbers) == 1 else numbers


def _name(op: Operation) -> str:
    return op.path.rpartition(".")[2]


_MOST: Final = 256  # ends of one branch
_FURTHEST: Final = 16  # operations that are looked at behind a factor
_Ends = tuple[int, ...] | None


class Ends:
    """The ends of what is computed from new weights alone, ordinals by value.

    Args:
        paired: parameters that have a counterpart.
    """

    def __init__(self, axes: Axes, paired: Collection[Value]) -> None:
        self._axes, self._paired = axes, paired
        self._of: list[_Ends] = []
        for op in axes.flow.operations:
            self._of.append(self._ends(op))

    def of(self, value: Value) -> _Ends:
        """Return the operations that make a value zero once their weights are, if all are new."""
        return self._of[value.operation]

    def _ends(self, op: Operation) -> _Ends:
        if op.op == PARAMETER:
            return (op.ordinal,) if self._is_own(Value(op.ordinal)) else None
        if op.op in op_kinds.WEIGHTED:
            weights = weights_of(op)
            return (op.ordinal,) if weights and all(map(self._is_own, weights)) else None
        reads = list(dict.fromkeys(op.reads))
        if op.op == "mul":
            return None if has_infinite_factor(self._axes, op) else self._of_product(reads)
        if op.op == "cat" or (op.op == "add" and len(op.reads) == 2):
            return _joined([self.of(read) for read in reads])
        if reads and (keeps_zero(op) or (op.op == "div" and len(op.reads) == 1)):
            return self.of(reads[0])
        return None

    def _of_product(self, reads: Sequence[Value]) -> _Ends:
        found = [ends for ends in map(self.of, reads) if ends is not None]
        bare = [ends for ends in found if self._axes.flow.operations[ends[0]].op == PARAMETER]
        return next(iter(bare or found), None)

    def _is_own(self, value: Value) -> bool:
        """Whether a value is a new parameter that one operation reads."""
        is_parameter = self._axes.flow.operations[value.operation].op == PARAMETER
        return is_parameter and value not in self._paired and len(self._axes.readers[value]) == 1


def _joined(several: Sequence[_Ends]) -> _Ends:
    found: dict[int, None] = {}
    for ends in several:
        if ends is None:
            return None
        found.update(dict.fromkeys(ends))
    return tuple(found) if 0 < len(found) <= _MOST else None


def weights_of(op: Operation) -> list[Value]:
    """Return the parameters without which an operation gives zero: weight and bias."""
    if op.op == PARAMETER:
        return [Value(op.ordinal)]
    names = ("mat2", "self") if op.op == "addmm" else ("weight", "bias")
    given = [op.arguments.get(name) for name in names]
    if not isinstance(given[0], Value):
        return []
    return [value for value in given if isinstance(value, Value)]


def has_infinite_factor(axes: Axes, op: Operation) -> bool:
    """Whether a product may be no number where one of its factors is zero."""
    numbers = (value for value in op.arguments.values() if isinstance(value, float))
    return not all(map(isfinite, numbers)) or any(_may_be_infinite(axes, v) for v in op.reads)


def _may_be_infinite(axes: Axes, value: Value) -> bool:
    """Whether a factor may be infinite or no number where what it is computed from is zero.

    A sum with a number, or a clamp, is taken to keep a logarithm or a quotient from that.
    """
    waiting, seen = [value], {value}
    while waiting and len(seen) < _FURTHEST:
        op = axes.flow.operations[waiting.pop().operation]
        if op.op == CONSTANT:
            uniform = op.arguments.get("uniform")
            if isinstance(uniform, float) and not isfinite(uniform):
                return True
        elif op.op in op_kinds.UNBOUNDED and op.reads and not _is_power(op):
            below = axes.flow.operations[op.reads[-1].operation]
            if below.op not in _GUARDS or len(below.reads) != 1:
                return True
        elif op.op in op_kinds.ELEMENTWISE or op.op in op_kinds.REARRANGING:
            waiting += [read for read in op.reads if read not in seen]
            seen.update(op.reads)
    return False


def _is_power(op: Operation) -> bool:
    exponent = op.arguments.get("exponent")
    return op.op == "pow" and isinstance(exponent, int | float) and exponent >= 0


_GUARDS: Final = ("add", "clamp", "clamp_min", "exp", "softplus", "sigmoid")
