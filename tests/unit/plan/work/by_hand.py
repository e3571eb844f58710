"""Operations written down by hand, counted."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from mmdb.graph.ops.op_graph import INPUT, PARAMETER, Operation, OpGraph, Value
from mmdb.plan.step.counts import Counted, KernelWork
from mmdb.plan.step.flow_counts import count
from mmdb.plan.step.tensor_sizes import TensorSizes


class T(NamedTuple):
    """A tensor: by default one of floats that needs a gradient."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    trained: bool = True


def given(*shape: int) -> T:
    """Return floats that need no gradient."""
    return T(shape, "float32", False)


def indices(*shape: int) -> T:
    return T(shape, "int64", False)


def mask(*shape: int) -> T:
    return T(shape, "bool", False)


def p(*shape: int) -> T:
    return T(shape)


class Sums(NamedTuple):
    """FLOPs, bytes read and bytes written."""

    flops: int
    read: int
    written: int


@dataclass(frozen=True)
class Result:
    counted: Counted
    tensors: TensorSizes

    @property
    def forward(self) -> Sums:
        return _sums(self.counted.forward)

    @property
    def backward(self) -> Sums:
        return _sums(self.counted.backward)

    @property
    def kept(self) -> int:
        saved = sum(self.tensors.bytes(value) for value in dict.fromkeys(self.counted.saves))
        return saved + self.counted.saved_bytes


def counted(op: str, out: object, **arguments: object) -> Result:
    """Count an operation.

    Args:
        out: the shape of its output, or those of several.
    """
    operations: list[Operation] = []

    def taken(value: object) -> object:
        if isinstance(value, T):
            operations.append(
                Operation(
                    ordinal=len(operations),
                    op=PARAMETER if value.trained else INPUT,
                    arguments={"dtype": value.dtype},
                    shapes=(value.shape,),
                    path=f"t{len(operations)}",
                )
            )
            return Value(len(operations) - 1)
        if isinstance(value, list):
            return tuple(taken(one) for one in value)
        return value

    found = {name: taken(value) for name, value in arguments.items()}
    shapes = tuple(out) if isinstance(out, list) else (out,)
    operations.append(Operation(ordinal=len(operations), op=op, arguments=found, shapes=shapes))
    flow = OpGraph(
        operations=tuple(operations), outputs=(Value(len(operations) - 1),), ties={}, unread=()
    )
    tensors = TensorSizes(flow)
    return Result(count(operations[-1], tensors), tensors)


def floats(*shape: int) -> int:
    """Return the bytes of a tensor of floats."""
    return 4 * prod(shape)


def _sums(parts: tuple[KernelWork, ...]) -> Sums:
    return Sums(
        sum(part.flops for part in parts),
        sum(part.read for part in parts),
        sum(part.written for part in parts),
    )
