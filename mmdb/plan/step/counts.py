"""What one operation of a flow does, and the pieces that rules of several kinds are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias, get_args

from mmdb.graph.ops.op_graph import Operation, Value
from mmdb.plan.step.tensor_sizes import TensorSizes

#: "pointwise" is a convolution of single places, without strides. "copy" moves numbers as they
#: are; "view" moves none. Of "unknown" operations only bytes count.
OperationKind = Literal[
    "matmul",
    "convolution",
    "pointwise",
    "depthwise",
    "attention",
    "recurrent",
    "elementwise",
    "transcendental",
    "normalisation",
    "pooling",
    "reduction",
    "embedding",
    "random",
    "copy",
    "view",
    "unknown",
]
KINDS: tuple[OperationKind, ...] = get_args(OperationKind)
#: Of a backward, "input" and "weight" are the gradients of a product's first and second factor.
Way = Literal["forward", "backward", "input", "weight"]
WAYS: tuple[Way, ...] = get_args(Way)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWork:
    """What one kernel does.

    Attributes:
        flops: a multiplication and an addition are two; an elementwise function is one for each
            element, whatever it is: its kind says whether that is cheap.
        read, written: bytes of memory.
        calls: how often a kernel is started.
        sides: m, n and k of the product, (m, k) by (k, n), that it is or amounts to; of each one
            of a batch. A convolution's are places, output channels and weights of one of them,
            all of a group. Of a norm they are how often it is taken and of how many elements, of
            a pool its results and its window. Empty for what has none.
        window: places that a convolution's kernel covers, or of an image that a norm is taken over.
        gradient: of which factor the product is the gradient, if it is one.
    """

    kind: OperationKind
    flops: int = 0
    read: int = 0
    written: int = 0
    calls: int = 1
    sides: tuple[int, ...] = ()
    window: int = 0
    gradient: Literal["", "input", "weight"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What an operation does forward and backward, and what it keeps in between.

    Attributes:
        saves: tensors that its backward reads: arguments, or its own outputs.
        saved_bytes: of what its backward reads beside them: masks, indices, statistics.
        workspace: bytes that it takes while it runs, beside arguments and results.
    """

    forward: tuple[KernelWork, ...] = ()
    backward: tuple[KernelWork, ...] = ()
    saves: tuple[Value, ...] = ()
    saved_bytes: int = 0
    workspace: int = 0


Rule: TypeAlias = Callable[[Operation, TensorSizes], Counted]


def tensor(op: Operation, name: str) -> Value:
    """Return the argument of a name, which is a tensor."""
    value = op.arguments[name]
    assert isinstance(value, Value), f"{op.op} has no tensor {name}"
    return value


def optional(op: Operation, name: str) -> Value | None:
    """Return the argument of a name if it is a tensor."""
    value = op.arguments.get(name)
    return value if isinstance(value, Value) else None


def output(op: Operation, number: int = 0) -> Value:
    """Return an output of an operation."""
    return Value(op.ordinal, number)


def read_bytes(op: Operation, t: TensorSizes) -> int:
    """Return the bytes of all that an operation reads."""
    return sum(t.bytes(value) for value in op.reads)


def written_bytes(op: Operation, t: TensorSizes) -> int:
    """Return the bytes of all that an operation returns."""
    return sum(t.bytes(output(op, i)) for i, shape in enumerate(op.shapes) if shape is not None)


def product(
    sides: tuple[int, int, int],
    read: int,
    written: int,
    *,
    batch: int = 1,
    kind: OperationKind = "matmul",
    calls: int = 1,
    gradient: Literal["", "input", "weight"] = "",
) -> KernelWork:
    """Return (m, k) by (k, n), `batch` times: 2 m n k operations each."""
    return KernelWork(
        kind=kind, flops=2 * batch * prod(sides), read=read, written=written, sides=sides,
        calls=calls, gradient=gradient,
    )  # fmt: skip


def gradient_sum(value: Value, of: Value, t: TensorSizes) -> tuple[KernelWork, ...]:
    """Return the sum that takes the gradient of `of` to the smaller shape of `value`.

    Nothing where the shapes are the same.
    """
    if t.elements(value) >= t.elements(of):
        return ()
    return (
        KernelWork(
            kind="reduction", flops=t.elements(of), read=t.bytes(of), written=t.bytes(value)
        ),
    )


def with_gradient(values: Iterable[Value | None], t: TensorSizes) -> list[Value]:
    """Return those that need a gradient."""
    return [one for one in values if one is not None and t.needs_gradient(one)]


def copied_if_strided(value: Value, t: TensorSizes) -> tuple[tuple[KernelWork, ...], int]:
    """Return the copy of a tensor that a kernel needs in row-major order, and the copy's bytes."""
    if t.is_contiguous(value):
        return (), 0
    return (KernelWork(kind="copy", read=t.bytes(value), written=t.bytes(value)),), t.bytes(value)
