"""Sizes and strides of a flow's tensors, which need a gradient, and which share memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias, cast

from mmdb.graph.ops.op_graph import BUFFER, CONSTANT, INPUT, PARAMETER, Operation, OpGraph, Value

Shape: TypeAlias = tuple[int, ...]
Strides: TypeAlias = tuple[int, ...]


def contiguous(shape: Shape) -> Strides:
    """Return the strides of row-major order.

    >>> contiguous((2, 3, 4))
    (12, 4, 1)
    """
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= max(1, size)
    return tuple(reversed(found))


def dense(shape: Shape, strides: Strides) -> Strides:
    """Return the strides without gaps in which axes lie in the order that given ones have.

    >>> dense((2, 3, 4), (4, 24, 1))
    (4, 8, 1)
    """
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
    steps = contiguous(tuple(shape[axis] for axis in order))
    found = dict(zip(order, steps, strict=True))
    return tuple(found[axis] for axis in range(len(shape)))


def viewed(op: Operation, shape: Shape, strides: Strides) -> list[Strides] | None:
    """Return the strides of each output of a view; None if the operation makes a new tensor.

    Args:
        shape, strides: of the operation's first tensor.
    """
    arguments = cast("dict[str, Any]", op.arguments)
    outputs = [one or () for one in op.shapes]
    match op.op:
        case "view":
            found = reshaped(shape, strides, outputs[0])
            return None if found is None else [found]
        case "permute":
            return [tuple(strides[dim] for dim in arguments["dims"])]
        case "expand":
            return [_expanded(shape, strides, outputs[0])]
        case "squeeze":
            return [tuple(s for i, s in enumerate(strides) if i not in arguments["dims"])]
        case "unsqueeze":
            dim = arguments["dim"]
            step = shape[dim] * strides[dim] if dim < len(shape) else 1
            return [(*strides[:dim], step, *strides[dim:])]
        case "select":
            dim = arguments["dim"]
            return [(*strides[:dim], *strides[dim + 1 :])]
        case "unbind":
            dim = arguments["dim"]
            return [(*strides[:dim], *strides[dim + 1 :])] * len(outputs)
        case "slice":
            dim, step = arguments["dim"], arguments["step"]
            return [(*strides[:dim], strides[dim] * step, *strides[dim + 1 :])]
        case "split_with_sizes" | "narrow" | "chunk":
            return [strides] * len(outputs)
    return None


def reshaped(shape: Shape, strides: Strides, size: Shape) -> Strides | None:
    """Return the strides of a view of another shape, None where there is none.

    >>> reshaped((2, 3, 4), (12, 4, 1), (6, 4))
    (4, 1)
    >>> reshaped((3, 2), (1, 3), (6,)) is None
    True
    """
    if not prod(shape):
        return contiguous(size)
    found: list[int] = []
    left = list(size)
    runs = _runs(shape, strides)
    while runs:
        count, step = runs.pop()  # a run of elements at equal steps is split at will
        here = 1
        while left and (here < count or left[-1] == 1):
            found.append(step * here)
            here *= left.pop()
        if here != count:
            return None
    found.extend(1 for _ in left)
    return tuple(reversed(found))


def _runs(shape: Shape, strides: Strides) -> list[tuple[int, int]]:
    """Return axes as (elements, step), neighbours joined where they lie one behind the other."""
    runs: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == stride * size:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    return runs or [(1, 1)]


def _expanded(shape: Shape, strides: Strides, size: Shape) -> Strides:
    new = len(size) - len(shape)
    kept = (
        stride if one == other else 0
        for one, other, stride in zip(shape, size[new:], strides, strict=True)
    )
    return (*(0,) * new, *kept)


#: Results of these have no gradient.
_NO_GRADIENT = frozenset(
    """
    eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or
    bitwise_not bitwise_xor isnan isinf isfinite argmax argmin argsort nonzero sign floor ceil
    round trunc floor_divide searchsorted bucketize one_hot any all
    """.split()
)
_BOOLEAN = frozenset(
    """
    eq ne lt le gt ge logical_and logical_or logical_not logical_xor isnan isinf isfinite any all
    """.split()
)
_INTEGER = frozenset("argmax argmin argsort nonzero searchsorted bucketize one_hot".split())
#: Outputs by number that are indices.
_INDICES = {"topk": 1, "sort": 1, "max": 1, "min": 1, "max_pool2d": 1, "kthvalue": 1, "median": 1}
_SIZES = {"float16": 2, "bfloat16": 2, "int16": 2, "int64": 8, "float64": 8, "complex64": 8}
_BYTES_1 = frozenset({"bool", "uint8", "int8"})
#: Results of these are in row-major order whatever the arguments'.
_ROW_MAJOR = frozenset(
    """
    convolution linear matmul addmm baddbmm layer_norm cat stack view constant_pad_nd embedding
    """.split()
)
_FREE = frozenset({INPUT, PARAMETER, BUFFER, CONSTANT})


@dataclass(slots=True)
class _Tensor:
    storage: int
    strides: Strides
    width: int  # bytes of an element


@dataclass(slots=True)
class Storage:
    """Memory that one tensor or several views of it lie in."""

    made_by: int  # ordinal of the operation
    bytes: int
    is_weight: bool  # it outlives the step: a parameter, buffer or constant


@dataclass
class TensorSizes:
    """The tensors of a flow.

    Args:
        frozen: paths of parameters that are not trained.

    Attributes:
        storages: in the order in which they are made.
        copies: (ordinal, bytes) of views that no strides can describe, which are copied.
    """

    flow: OpGraph
    frozen: Collection[str] = ()
    storages: list[Storage] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._known: dict[Value, _Tensor] = {}
        self._gradient: list[bool] = []
        for op in self.flow.operations:
            self._gradient.append(self._has_gradient(op))
            self._place(op)

    # -- sizes ---------------------------------------------------------------------

    def shape(self, value: Value) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self.flow.shape_of(value)

    def elements(self, value: Value) -> int:
        """Return how many numbers a tensor holds."""
        return prod(self.flow.shape_of(value))

    def width(self, value: Value) -> int:
        """Return the bytes of an element."""
        return self._known[value].width

    def bytes(self, value: Value) -> int:
        """Return the bytes of a tensor."""
        return self.elements(value) * self._known[value].width

    def strides(self, value: Value) -> Strides:
        """Return the strides of a tensor, in elements."""
        return self._known[value].strides

    def is_contiguous(self, value: Value) -> bool:
        """Whether a tensor lies in row-major order without gaps."""
        shape = self.shape(value)
        return all(
            one == other or size == 1
            for one, other, size in zip(self.strides(value), contiguous(shape), shape, strict=True)
        )

    # -- gradients and memory --------------------------------------------------------

    def needs_gradient(self, value: Value) -> bool:
        """Whether a gradient with respect to the tensor is computed."""
        return self._gradient[value.operation] and self._known[value].width != 1

    def storage(self, value: Value) -> int:
        """Return the number of the storage that a tensor lies in."""
        return self._known[value].storage

    def is_weight(self, value: Value) -> bool:
        """Whether a tensor is a parameter, buffer or constant, or a view of one."""
        return self.storages[self.storage(value)].is_weight

    def _has_gradient(self, op: Operation) -> bool:
        if op.op == PARAMETER:
            return op.path not in self.frozen and "float" in str(op.arguments.get("dtype"))
        if op.op in _NO_GRADIENT:
            return False
        return any(self._gradient[one.operation] for one in op.reads)

    def _place(self, op: Operation) -> None:
        first = next(iter(op.reads), None)
        base = self._known.get(first) if first is not None else None
        strides: list[Strides] | None = None
        if base is not None and first is not None:
            strides = viewed(op, self.shape(first), base.strides)
            if strides is None and op.op == "view":
                self.copies.append((op.ordinal, prod(op.shape) * base.width))
        for number, shape in enumerate(op.shapes):
            here = Value(op.ordinal, number)
            if strides is not None and base is not None:
                self._known[here] = _Tensor(base.storage, strides[number], base.width)
                continue
            size = shape or ()
            width = self._width(op, number)
            layout = self._layout(op, size)
            self._known[here] = _Tensor(len(self.storages), layout, width)
            self.storages.append(
                Storage(op.ordinal, prod(size) * width, op.op in _FREE and op.op != INPUT)
            )

    def _width(self, op: Operation, number: int) -> int:
        if op.op in _FREE:
            dtype = str(op.arguments.get("dtype", "float32"))
            return 1 if dtype in _BYTES_1 else _SIZES.get(dtype, 4)
        if op.op in _BOOLEAN:
            return 1
        if op.op in _INTEGER or (_INDICES.get(op.op) == number and number):
            return 8
        if op.op in ("_to_copy", "to"):
            dtype = str(op.arguments.get("dtype", "float32"))
            return 1 if dtype in _BYTES_1 else _SIZES.get(dtype, 4)
        if op.op in ("embedding", "embedding_bag"):
            weight = op.arguments.get("weight")
            return self._known[weight].width if isinstance(weight, Value) else 4
        if op.op in ("where", "masked_fill", "index", "gather", "index_select", "take"):
            name = "other" if op.op == "where" else "self"
            source = op.arguments.get(name)
            return self._known[source].width if isinstance(source, Value) else 4
        widths = [self._known[one].width for one in op.reads]
        return 4 if not widths or 4 in widths else max(widths)

    def _layout(self, op: Operation, shape: tuple[int, ...]) -> Strides:
        """Return the strides of a new tensor: row-major, but where torch keeps an argument's."""
        if op.op not in _ROW_MAJOR:
            for one in op.reads:
                if self.shape(one) == shape:
                    return dense(shape, self.strides(one))
        return contiguous(shape)
