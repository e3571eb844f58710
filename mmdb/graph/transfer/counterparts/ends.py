"""Which operations make a value zero once their weights are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite
from typing import Final

from mmdb.graph.flow.flow import CONSTANT, PARAMETER, Operation, Value
from mmdb.graph.transfer.axes import kinds
from mmdb.graph.transfer.axes.axes import Axes
from mmdb.graph.transfer.counterparts.operations import keeps_zero

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
        if op.op in kinds.WEIGHTED:
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
        elif op.op in kinds.UNBOUNDED and op.reads and not _is_power(op):
            below = axes.flow.operations[op.reads[-1].operation]
            if below.op not in _GUARDS or len(below.reads) != 1:
                return True
        elif op.op in kinds.ELEMENTWISE or op.op in kinds.REARRANGING:
            waiting += [read for read in op.reads if read not in seen]
            seen.update(op.reads)
    return False


def _is_power(op: Operation) -> bool:
    exponent = op.arguments.get("exponent")
    return op.op == "pow" and isinstance(exponent, int | float) and exponent >= 0


_GUARDS: Final = ("add", "clamp", "clamp_min", "exp", "softplus", "sigmoid")
