"""Pieces that rules of several kinds are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Literal, TypeAlias

from mmdb.graph.ops.op_graph import Operation, Value
from mmdb.plan.work.counts import Counted, Kind, Part
from mmdb.plan.work.tensors import Tensors

Rule: TypeAlias = Callable[[Operation, Tensors], Counted]


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


def read_bytes(op: Operation, t: Tensors) -> int:
    """Return the bytes of all that an operation reads."""
    return sum(t.bytes(value) for value in op.reads)


def written_bytes(op: Operation, t: Tensors) -> int:
    """Return the bytes of all that an operation returns."""
    return sum(t.bytes(output(op, i)) for i, shape in enumerate(op.shapes) if shape is not None)


def product(
    sides: tuple[int, int, int],
    read: int,
    written: int,
    *,
    batch: int = 1,
    kind: Kind = "matmul",
    calls: int = 1,
    gradient: Literal["", "input", "weight"] = "",
) -> Part:
    """Return (m, k) by (k, n), `batch` times: 2 m n k operations each."""
    return Part(
        kind=kind, flops=2 * batch * prod(sides), read=read, written=written, sides=sides,
        calls=calls, gradient=gradient,
    )  # fmt: skip


def gradient_sum(value: Value, of: Value, t: Tensors) -> tuple[Part, ...]:
    """Return the sum that takes the gradient of `of` to the smaller shape of `value`.

    Nothing where the shapes are the same.
    """
    if t.elements(value) >= t.elements(of):
        return ()
    return (Part(kind="reduction", flops=t.elements(of), read=t.bytes(of), written=t.bytes(value)),)


def with_gradient(values: Iterable[Value | None], t: Tensors) -> list[Value]:
    """Return those that need a gradient."""
    return [one for one in values if one is not None and t.needs_gradient(one)]


def copied_if_strided(value: Value, t: Tensors) -> tuple[tuple[Part, ...], int]:
    """Return the copy of a tensor that a kernel needs in row-major order, and the copy's bytes."""
    if t.is_contiguous(value):
        return (), 0
    return (Part(kind="copy", read=t.bytes(value), written=t.bytes(value)),), t.bytes(value)
