"""From a flow to the spaces of its axes."""

from __future__ import annotations

from collections.abc import Mapping

from mmdb.graph.flow.flow import Flow
from mmdb.graph.transfer.axes.arrangements import ARRANGEMENTS
from mmdb.graph.transfer.axes.axes import Axes, Rule
from mmdb.graph.transfer.axes.products import PRODUCTS
from mmdb.graph.transfer.axes.spaces import OUTPUT, mark

#: What a rule may raise for an operation in a form that it does not know.
_NOT_UNDERSTOOD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_RULES: Mapping[str, Rule] = {**PRODUCTS, **ARRANGEMENTS}


def axes_of(flow: Flow) -> Axes:
    """Return the spaces of all axes of a flow, whatever is in it."""
    axes = Axes(flow)
    for op in flow.operations:
        rule = _RULES.get(op.op)
        try:
            axes.keep(op, rule(axes, op) if rule else None)
        except _NOT_UNDERSTOOD:
            axes.keep(op, None)
    for op in flow.operations:
        axes.mark(op)
    for value in flow.outputs:
        for space in axes[value]:
            mark(space, OUTPUT)
    return axes
