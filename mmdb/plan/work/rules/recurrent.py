"""Recurrent layers that torch computes as one operation."""

from __future__ import annotations

from collections.abc import Mapping

from mmdb.graph.ops.op_graph import Operation, Value, values_in
from mmdb.plan.work.counts import Counted, Part
from mmdb.plan.work.rules.parts import Rule
from mmdb.plan.work.tensors import Tensors

_FLOAT = 4
#: Gates, functions of each unit and step, and numbers that are kept of each unit and step; of an
#: lstm what oneDNN keeps, as measured, with its buffers' rounding to pages.
_CELLS = {"lstm": (4, 5, 16), "gru": (3, 3, 7), "rnn_tanh": (1, 1, 1), "rnn_relu": (1, 1, 1)}
_PAGES = 6 * 4096
#: Kernels of a layer and direction, forward and backward; of all but lstm for each step.
_CALLS = {"lstm": (10, 16), "gru": (14, 24), "rnn_tanh": (4, 10), "rnn_relu": (4, 10)}


def recurrent(op: Operation, t: Tensors) -> Counted:
    """For each layer and direction: (steps x rows, inputs) at once, then (rows, units) by step."""
    gates, functions, kept = _CELLS[op.op]
    x = next(iter(op.reads))
    params = op.arguments.get("params")
    weights = [one for one in values_in(params) if len(t.shape(one)) == 2]
    small = sum(t.bytes(one) for one in values_in(params))
    inputs, hidden = _pairs(weights, t)
    batch, steps = _sizes(op, t, x)
    forward: list[Part] = []
    backward: list[Part] = []
    saved = 0
    calls = [count * (1 if op.op == "lstm" else steps) for count in _CALLS[op.op]]
    for first, second in zip(inputs, hidden, strict=True):
        (rows, width), units = t.shape(first), t.shape(second)[1]
        flops = 2 * batch * steps * rows * (width + units)
        moved = batch * steps * (width + 2 * rows) * _FLOAT
        cells = batch * steps * units
        read = moved + steps * t.bytes(second) + t.bytes(first)
        part = Part(
            kind="recurrent", flops=flops, read=read, written=batch * steps * rows * _FLOAT,
            calls=calls[0], sides=(batch, rows, units),
        )  # fmt: skip
        gate = Part(
            kind="transcendental", flops=functions * cells, read=gates * cells * _FLOAT,
            written=kept * cells * _FLOAT, calls=0,
        )  # fmt: skip
        forward += [part, gate]
        backward += [
            Part(
                kind="recurrent", flops=2 * flops, read=2 * read, written=moved + small,
                calls=calls[1], sides=(batch, rows, units),
            ),
            gate,
        ]  # fmt: skip
        saved += kept * cells * _FLOAT
        if op.op == "lstm":
            saved += _PAGES + 4 * batch * units * _FLOAT  # and the states before and after
        if op.op != "lstm" or first in inputs[:1]:  # an lstm's own outputs are among what it keeps
            saved += batch * steps * width * _FLOAT
    needed = any(t.needs_gradient(one) for one in op.reads)
    return Counted(
        forward=tuple(forward),
        backward=tuple(backward) if needed else (),
        saved_bytes=saved if needed else 0,
    )


def _pairs(weights: list[Value], t: Tensors) -> tuple[list[Value], list[Value]]:
    """Return the weights of inputs, and those of the hidden state; projections are left out."""
    units = {t.shape(one)[0] for one in weights}
    largest = max(units, default=0)
    gates = [one for one in weights if t.shape(one)[0] == largest]
    return gates[::2], gates[1::2]


def _sizes(op: Operation, t: Tensors, x: Value) -> tuple[int, int]:
    """Return rows of a batch and steps; packed rows are one step each."""
    shape = t.shape(x)
    if len(shape) < 3:
        return 1, shape[0] if shape else 1
    first = bool(op.arguments.get("batch_first", False))
    return (shape[0], shape[1]) if first else (shape[1], shape[0])


RULES: Mapping[str, Rule] = dict.fromkeys(_CELLS, recurrent)
