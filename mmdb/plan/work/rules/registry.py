"""The rule of an operation, by its name."""

from __future__ import annotations

from collections.abc import Mapping

from mmdb.graph.ops.op_graph import BUFFER, CONSTANT, INPUT, PARAMETER, Operation
from mmdb.plan.work.counts import Counted, Part
from mmdb.plan.work.rules import (
    attention,
    convolutions,
    moves,
    norms,
    pointwise,
    pooling,
    products,
    recurrent,
    reductions,
)
from mmdb.plan.work.rules.parts import Rule, output, read_bytes, with_gradient, written_bytes
from mmdb.plan.work.tensors import Tensors

_SOURCES = frozenset({INPUT, PARAMETER, BUFFER, CONSTANT})
RULES: Mapping[str, Rule] = {
    **products.RULES,
    **convolutions.RULES,
    **attention.RULES,
    **recurrent.RULES,
    **pointwise.RULES,
    **norms.RULES,
    **reductions.RULES,
    **pooling.RULES,
    **moves.RULES,
}


def count(op: Operation, t: Tensors) -> Counted:
    """Return what an operation does; of one that nothing is known of, the bytes."""
    if op.op in _SOURCES:
        return Counted()
    rule = RULES.get(op.op)
    if rule is not None and op.reads:
        return rule(op, t)
    if rule is not None:
        return moves.fill(op, t)
    return _by_bytes(op, t)


def is_known(op: Operation) -> bool:
    """Whether an operation has a rule."""
    return op.op in _SOURCES or op.op in RULES


def _by_bytes(op: Operation, t: Tensors) -> Counted:
    read, written = read_bytes(op, t), written_bytes(op, t)
    forward = Part(kind="unknown", read=read, written=written)
    gradients = with_gradient(op.reads, t)
    if not gradients:
        return Counted(forward=(forward,))
    results = tuple(output(op, i) for i, shape in enumerate(op.shapes) if shape is not None)
    back = Part(
        kind="unknown", read=read + 2 * written, written=sum(t.bytes(one) for one in gradients)
    )
    return Counted(forward=(forward,), backward=(back,), saves=(*op.reads, *results))
