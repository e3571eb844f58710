"""An opinion on which tensors go together where layers come one after the other.

Of all ways to pair the layers in order, it is the one that leaves out the least of the parent: a
layer stands for one that is no wider, and a new one can hand on what is before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mmdb.graph.flow.flow import PARAMETER, Flow, Operation
from mmdb.graph.transfer.axes import kinds
from mmdb.graph.transfer.counterparts.following import dynamic_of, holds_weights, weights_of
from mmdb.graph.transfer.counterparts.operations import settings

_MOST: Final = 160_000  # pairs of operations
#: What is lost by a layer of the parent that is left out, of which not all is taken, or a new layer
#: that cannot hand on; by a function that is new, or left out.
_LEFT_OUT, _NARROW, _BENT, _IMPOSSIBLE = 4.0, 1.0, 0.25, 16.0


def chained_paths(child: Flow, parent: Flow) -> dict[str, str]:
    """Return the parent's path, by the child's, of tensors of layers that are paired in order.

    {} if one of the two is more than a chain.
    """
    own, its = _chain_of(child), _chain_of(parent)
    if not own or not its or len(own) * len(its) > _MOST:
        return {}
    steps = _steps(own, its, child, parent)
    paths: dict[str, str] = {}
    i = j = 0
    while (i, j) != (len(own), len(its)):
        more = steps[i][j]
        if more == (1, 1) and len(own[i].reads) == len(its[j].reads):
            paths |= dict(weights_of(own[i], its[j], child, parent))
        i, j = i + more[0], j + more[1]
    return paths


def _steps(
    own: Sequence[Operation], its: Sequence[Operation], child: Flow, parent: Flow
) -> list[list[tuple[int, int]]]:
    """Return, for each place in both chains, how many operations of each to go on."""
    rows, columns = len(own), len(its)
    before = _before(its)
    losses = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    steps = [[(0, 0)] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows, -1, -1):
        for j in range(columns, -1, -1):
            ways: list[tuple[float, tuple[int, int]]] = []
            if i < rows and j < columns and _does_the_same(own[i], its[j]):
                loss = 0.0 if holds_weights(own[i], its[j], child, parent) else _NARROW
                ways.append((loss + losses[i + 1][j + 1], (1, 1)))
            if i < rows:
                last = own[i - 1] if i else None
                loss = _loss_of_new(own[i], last, *before[j], child)
                ways.append((loss + losses[i + 1][j], (1, 0)))
            if j < columns:
                loss = _LEFT_OUT if _has_weights(its[j], parent) else _BENT
                ways.append((loss + losses[i][j + 1], (0, 1)))
            if ways:
                losses[i][j], steps[i][j] = min(ways, key=lambda way: way[0])
    return steps


def _before(its: Sequence[Operation]) -> list[tuple[int, Operation | None]]:
    """Return how wide the parent is before each of its operations, and its last function."""
    found: list[tuple[int, Operation | None]] = [(0, None)]
    for op in its:
        width, function = found[-1]
        if op.op in kinds.WEIGHTED:
            found.append((_width(op) or width, None))
        else:
            is_pool = op.op in kinds.PER_CHANNEL or op.op in kinds.REARRANGING
            found.append((width, function if is_pool else op))
    return found


def _loss_of_new(
    op: Operation, last: Operation | None, width: int, function: Operation | None, child: Flow
) -> float:
    """Return what is lost by an operation that the parent has not."""
    if op.op in kinds.STANDARDISING:
        return 0.0
    if _has_weights(op, child):
        is_wide = width and _width(op) >= width and (last is None or op.shape[2:] == last.shape[2:])
        return 0.0 if is_wide else _NARROW
    if last is None or op.shape != last.shape:
        return _IMPOSSIBLE
    is_idle = function is not None and _does_the_same(op, function)
    return 0.0 if is_idle and op.op in ("relu", "hardtanh") else _BENT


def _chain_of(flow: Flow) -> list[Operation]:
    """Return the operations from input to output, [] if they are not one after the other."""
    dynamic = dynamic_of(flow)
    found: list[Operation] = []
    last: int | None = None
    for op in flow.operations:
        if op.ordinal not in dynamic:
            continue
        reads = [value.operation for value in op.reads if value.operation in dynamic]
        if reads != ([] if last is None else [last]) or len(op.shapes) != 1:
            return []
        if last is not None:
            found.append(op)
        last = op.ordinal
    return found if [value.operation for value in flow.outputs] == [last] else []


def _does_the_same(op: Operation, other: Operation) -> bool:
    loose = kinds.SILENT | kinds.SILENT_IN.get(op.op, frozenset())
    is_same = op.op == other.op and len(op.reads) == len(other.reads)
    return is_same and settings(op, loose) == settings(other, loose)


def _has_weights(op: Operation, flow: Flow) -> bool:
    return any(flow.operations[value.operation].op == PARAMETER for value in op.reads)


def _width(op: Operation) -> int:
    """Return the channels that a layer gives, 0 if it is none that could change their number."""
    if op.op == "convolution":
        return op.shape[1]
    return op.shape[-1] if op.op in ("linear", "addmm") else 0
