"""What a step does around the model: it takes its rows, computes a loss, and begins backward."""

from __future__ import annotations

from math import prod

from mmdb.graph.ops.op_graph import INPUT, OpGraph
from mmdb.plan.work.counts import Counted, Part
from mmdb.plan.work.tensors import Tensors

_FLOAT, _INDEX = 4, 8


def batch(t: Tensors) -> Counted:
    """The rows of the batch are copied out of a partition, those of the label, too."""
    inputs = [op for op in t.flow.operations if op.op == INPUT]
    size = sum(prod(op.shape) * _FLOAT for op in inputs)
    rows = _rows(t.flow)
    taken = Part(kind="copy", read=size + rows * _INDEX, written=size, calls=len(inputs))
    labels = Part(kind="copy", read=2 * rows * _INDEX, written=rows * _INDEX)
    return Counted(forward=(taken, labels))


def loss(t: Tensors) -> Counted:
    """Cross-entropy over the outputs; the squared error where there is one output a row.

    A loss of an owner's own is taken to cost about as much.
    """
    forward: list[Part] = []
    backward: list[Part] = []
    kept = 0
    rows = _rows(t.flow)
    for value in t.flow.outputs:
        if not t.needs_gradient(value):
            continue
        n, size = t.elements(value), t.bytes(value)
        if n > rows:
            kept += size + rows * _INDEX + _FLOAT  # log-probabilities, labels, their count
            forward += [
                Part(kind="transcendental", flops=5 * n, read=2 * size, written=size),
                Part(kind="reduction", flops=rows, read=rows * (_FLOAT + _INDEX), written=_FLOAT),
            ]
            backward += [
                Part(kind="elementwise", flops=rows, read=rows * _INDEX, written=size),
                Part(kind="transcendental", flops=4 * n, read=2 * size, written=size),
            ]
        else:
            kept += 2 * size
            forward.append(Part(kind="reduction", flops=3 * n, read=2 * size, written=_FLOAT))
            backward.append(Part(kind="elementwise", flops=2 * n, read=2 * size, written=size))
        backward.append(Part(kind="copy", written=_FLOAT))
    return Counted(forward=tuple(forward), backward=tuple(backward), saved_bytes=kept)


def _rows(flow: OpGraph) -> int:
    return next((op.shape[0] for op in flow.operations if op.op == INPUT and op.shape), 1)
