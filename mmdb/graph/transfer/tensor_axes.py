"""The space of every axis of every tensor of an op graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeAlias

from mmdb.graph.ops.op_graph import BUFFER, CONSTANT, INPUT, PARAMETER, Operation, OpGraph, Value
from mmdb.graph.transfer import op_kinds
from mmdb.graph.transfer.axis_terms import (
    BATCHED,
    BENT,
    FIXED,
    KEPT,
    PLACE,
    SQUARED,
    STANDARDISED,
    SUMMED,
    WEIGHTED,
    AxisSpace,
    atom,
    find,
    join,
    leaves,
    mark,
)

Spaces: TypeAlias = tuple[AxisSpace, ...]
#: Returns the spaces of each output of an operation.
Rule: TypeAlias = "Callable[[Axes, Operation], Sequence[Spaces]]"


class Axes:
    """Spaces by value; `axes[value]` has one for each axis.

    What follows through an operation that is not known is fixed: such axes keep their elements,
    or have no counterpart.

    Attributes:
        readers: the operations that read a value, in order.
        from_inputs: ordinals of operations that depend on an input of the model.
        outputs: the values that the model returns.
        kernels: weights of convolutions, whose axes from the third on are taps.
    """

    def __init__(self, flow: OpGraph) -> None:
        self.flow = flow
        self.outputs = frozenset(flow.outputs)
        self.readers: defaultdict[Value, list[Operation]] = defaultdict(list)
        self.from_inputs: set[int] = set()
        self.kernels: set[Value] = set()
        self._of: dict[Value, Spaces] = {}
        for op in flow.operations:
            reads = op.reads
            for value in dict.fromkeys(reads):
                self.readers[value].append(op)
            if op.op == INPUT or any(value.operation in self.from_inputs for value in reads):
                self.from_inputs.add(op.ordinal)

    def __getitem__(self, value: Value) -> Spaces:
        return tuple(find(space) for space in self._of[value])

    def of(self, op: Operation, name: str) -> Spaces:
        """Return the spaces of an argument, () if it is no tensor."""
        value = op.arguments.get(name)
        return self[value] if isinstance(value, Value) else ()

    def parameter_of(self, value: Value) -> Value | None:
        """Return the parameter of which a value is a part or another arrangement."""
        while True:
            op = self.flow.operations[value.operation]
            if op.op in (PARAMETER, BUFFER):
                return value
            through = (
                op.op in op_kinds.REARRANGING or op.op in op_kinds.CUTTING or op.op == "_to_copy"
            )
            if not through or len(op.reads) != 1:
                return None
            value = op.reads[0]

    def broadcast(self, several: Sequence[Spaces], shape: Sequence[int]) -> Spaces:
        """Tie axes that meet when tensors are broadcast to `shape`; return those of the result."""
        found: list[AxisSpace] = []
        for back in range(len(shape), 0, -1):
            size = shape[-back]
            here = [one[-back] for one in several if len(one) >= back and one[-back].size == size]
            for other in here[1:]:
                join(here[0], other)
            found.append(here[0] if here else atom(size, FIXED))
        return tuple(found)

    def keep(self, op: Operation, found: Sequence[Spaces] | None) -> None:
        """Set the spaces of an operation's outputs; None if they are not known."""
        given = found or ()
        sizes = [tuple(space.size for space in spaces) for spaces in given]
        if not sizes or sizes[0] != op.shape:
            for value in op.reads:
                for space in self._of[value]:
                    mark(space, FIXED)
        for index, shape in enumerate(op.shapes):
            fits = index < len(given) and sizes[index] == (shape or ())
            spaces = given[index] if fits else tuple(atom(size, FIXED) for size in shape or ())
            self._of[Value(op.ordinal, index)] = spaces

    # -- traits -----------------------------------------------------------------

    def mark(self, op: Operation) -> None:
        """Mark the spaces of what an operation reads by what it does to elements."""
        name = op.op
        if name in (INPUT, PARAMETER, BUFFER, CONSTANT):
            return
        values = [value for value in dict.fromkeys(op.reads) if self[value]]
        if not values:
            return
        first = self[values[0]]
        if name in op_kinds.ODD or name in op_kinds.OTHER:
            if self.is_squared(op):
                self._mark_reduced(op, SQUARED)
            else:
                _mark_all(first, BENT)
        elif name in op_kinds.HOMOGENEOUS or name in op_kinds.PER_CHANNEL:
            _mark_all(first, WEIGHTED)
        elif name in ("mul", "div"):
            self._mark_product(op, values)
        elif name in op_kinds.MIXED and name not in ("add", "sub", "rsub"):
            for value in values:
                _mark_all(self[value], BENT)
        elif name in ("batch_norm", "instance_norm", "group_norm"):
            _mark_all(first[1:2], BENT)
        elif name in ("layer_norm", "rms_norm"):
            shape = op.arguments.get("normalized_shape")
            count = len(shape) if isinstance(shape, tuple) else 1
            _mark_all(first[-count:], STANDARDISED if name == "layer_norm" else SQUARED)
        elif name == "scaled_dot_product_attention":
            self._mark_factors(*(self.of(op, side) for side in ("query", "key")), back=1)
            _mark_all(self.of(op, "value")[-1:], KEPT)
        elif name == "matmul" and not any(self.parameter_of(value) for value in values):
            self._mark_factors(*(self.of(op, side) for side in ("self", "other")), back=2)
        elif name == "convolution" and op.arguments.get("groups") != 1:
            _mark_all(first[1:2], WEIGHTED)
        elif name in op_kinds.REDUCTIONS:
            source = self.flow.operations[values[0].operation]
            if not self.is_squared(source):
                _mark_all([first[dim] for dim in reduced_dims(op, len(first))], BENT)
        for value in values:
            owner = self.flow.operations[value.operation]
            if owner.op == BUFFER and name not in ("batch_norm", "instance_norm"):
                _mark_all(self[value], FIXED)

    def _mark_factors(self, one: Spaces, other: Spaces, *, back: int) -> None:
        """Mark axes of a product of activations; the sum is over the last of `one`."""
        _mark_all((one[-1], *other[-back:][:1]), SUMMED)
        _mark_all((*one[-2:-1], *other[-1:]) if back == 2 else one[-2:-1], KEPT)
        _mark_all((*one[:-2], *other[:-2]), BATCHED)

    def _mark_product(self, op: Operation, values: Sequence[Value]) -> None:
        if self.is_squared(op):
            self._mark_reduced(op, SQUARED)
            return
        if len(values) == 1:
            return
        one, other = self[values[0]], self[values[1]]
        has_weight = any(value.operation not in self.from_inputs for value in values)
        for a, b in zip(reversed(one), reversed(other), strict=False):
            if a.size == b.size:
                mark(a, WEIGHTED if has_weight else BENT)

    def is_squared(self, op: Operation) -> bool:
        """Whether an operation squares a tensor, of which only means or sums are used."""
        arguments = op.arguments
        squares = (
            (op.op == "pow" and arguments.get("exponent") in (2, 2.0))
            or op.op == "square"
            or (op.op == "mul" and arguments.get("self") == arguments.get("other"))
        )
        readers = self.readers[Value(op.ordinal)]
        return squares and bool(readers) and all(one.op in ("mean", "sum") for one in readers)

    def _mark_reduced(self, op: Operation, trait: str) -> None:
        spaces = self[Value(op.ordinal)]
        for reader in self.readers[Value(op.ordinal)]:
            _mark_all([spaces[dim] for dim in reduced_dims(reader, len(spaces))], trait)


def reduced_dims(op: Operation, ndim: int) -> list[int]:
    """Return the axes over which a reduction goes, all where it names none."""
    dims = op.arguments.get("dim")
    if isinstance(dims, int):
        dims = (dims,)
    if not isinstance(dims, tuple) or not dims:
        return list(range(ndim))
    return sorted({dim % ndim for dim in dims})


def _mark_all(spaces: Sequence[AxisSpace], *traits: str) -> None:
    for space in spaces:
        mark(space, *traits)


def pin(space: AxisSpace) -> None:
    """Let an axis keep its elements, unless they are places."""
    for leaf in leaves(space):
        if PLACE not in leaf.traits:
            leaf.traits.add(FIXED)
