"""Opinions on which tensors go together, from the order of operations or of layers alone.

Layers of one size can be paired in many ways that look alike from outside, and only one of them may
have the same pools between the layers. What makes an output of the child stands for what makes it
of the parent: a layer put in between hands on what is within.

Of all ways to pair the layers in order, it is the one that leaves out the least of the parent: a
layer stands for one that is no wider, and a new one can hand on what is before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from mmdb.graph.ops.op_graph import BUFFER, INPUT, PARAMETER, Operation, OpGraph, Value
from mmdb.graph.transfer import op_kinds
from mmdb.graph.transfer.op_traits import settings

_Key: TypeAlias = tuple[str, tuple[Value, ...]]


def followed_paths(child: OpGraph, parent: OpGraph) -> dict[str, str]:
    """Return the parent's path, by the child's, of tensors of the operations that are the same.

    Both op graphs are followed from the inputs on. An operation that the parent does not do to what
    stands for its operands, with no larger weights, is taken to hand on its first operand.
    """
    waiting = _by_operands(parent)
    inputs = iter([Value(op.ordinal) for op in parent.operations if op.op == INPUT])
    of: dict[Value, Value] = {}
    paths: dict[str, str] = {}
    for op in child.operations:
        here = Value(op.ordinal)
        if op.op == INPUT:
            its = next(inputs, None)
            if its is not None:
                of[here] = its
            continue
        known = [of[value] for value in op.reads if value in of]
        if not known:
            continue
        several = waiting.get((op.op, tuple(known)), [])
        other = next((one for one in several if _does_the_same(op, one, child, parent)), None)
        if other is None:
            of.update({Value(op.ordinal, n): known[0] for n in range(len(op.shapes))})
            continue
        pairs = weights_of(op, other, child, parent)
        if pairs:
            several.remove(other)
            paths |= {path: its for path, its in pairs if path not in paths}
        for n in range(min(len(op.shapes), len(other.shapes))):
            of[Value(op.ordinal, n)] = Value(other.ordinal, n)
    return paths


def with_ends(paths: Mapping[str, str], child: OpGraph, parent: OpGraph) -> dict[str, str]:
    """Return the paths, in which the layers that make the outputs stand for one another."""
    ends: dict[str, str] = {}
    for one, other in zip(child.outputs, parent.outputs, strict=False):
        own, its = _last_layer(one, child), _last_layer(other, parent)
        if own is not None and its is not None and own.op == its.op:
            ends |= dict(weights_of(own, its, child, parent))
    taken = set(ends.values())
    kept = {path: its for path, its in paths.items() if path not in ends and its not in taken}
    return kept | ends


def _last_layer(value: Value, flow: OpGraph) -> Operation | None:
    """Return the layer of which a value is a function, None if it is one of several."""
    dynamic = dynamic_of(flow)
    while value.operation in dynamic:
        op = flow.operations[value.operation]
        if op.op in op_kinds.WEIGHTED:
            return op
        reads = [read for read in dict.fromkeys(op.reads) if read.operation in dynamic]
        if len(reads) != 1:
            return None
        value = reads[0]
    return None


def dynamic_of(flow: OpGraph) -> set[int]:
    """Return the ordinals of operations that depend on inputs."""
    found: set[int] = set()
    for op in flow.operations:
        if op.op == INPUT or any(value.operation in found for value in op.reads):
            found.add(op.ordinal)
    return found


def _by_operands(flow: OpGraph) -> defaultdict[_Key, list[Operation]]:
    """Return operations by name and what they read that depends on inputs."""
    found: defaultdict[_Key, list[Operation]] = defaultdict(list)
    dynamic = dynamic_of(flow)
    for op in flow.operations:
        if op.ordinal in dynamic:
            reads = tuple(value for value in op.reads if value.operation in dynamic)
            found[op.op, reads].append(op)
    return found


def _does_the_same(op: Operation, other: Operation, child: OpGraph, parent: OpGraph) -> bool:
    loose = op_kinds.SILENT | op_kinds.SILENT_IN.get(op.op, frozenset())
    if settings(op, loose) != settings(other, loose) or len(op.reads) != len(other.reads):
        return False
    return holds_weights(op, other, child, parent)


def holds_weights(op: Operation, other: Operation, child: OpGraph, parent: OpGraph) -> bool:
    """Whether the weights of an operation are as large as those of the parent's."""
    sizes = [
        (child.shape_of(one), parent.shape_of(two))
        for one, two in zip(op.reads, other.reads, strict=True)
        if child.operations[one.operation].op == PARAMETER
    ]
    return all(_holds(one, two) for one, two in sizes)


def _holds(shape: Sequence[int], other: Sequence[int]) -> bool:
    return len(shape) == len(other) and all(a >= b for a, b in zip(shape, other, strict=True))


def weights_of(
    op: Operation, other: Operation, child: OpGraph, parent: OpGraph
) -> list[tuple[str, str]]:
    """Return the paths of tensors that two operations read in the same places."""
    found = []
    for one, two in zip(op.reads, other.reads, strict=True):
        own, its = child.operations[one.operation], parent.operations[two.operation]
        if own.op == its.op and own.op in (PARAMETER, BUFFER):
            found.append((own.path, its.path))
    return found


_MOST: Final = 160_000  # pairs of operations
#: What is lost by a layer of the parent that is left out, of which not all is taken, or a new layer
#: that cannot hand on; by a function that is new, or left out.
_LEFT_OUT, _NARROW, _BENT, _IMPOSSIBLE = 4.0, 1.0, 0.25, 16.0


def chained_paths(child: OpGraph, parent: OpGraph) -> dict[str, str]:
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
    own: Sequence[Operation], its: Sequence[Operation], child: OpGraph, parent: OpGraph
) -> list[list[tuple[int, int]]]:
    """Return, for each place in both chains, how many operations of each to go on."""
    rows, columns = len(own), len(its)
    before = _before(its)
    losses = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    steps = [[(0, 0)] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows, -1, -1):
        for j in range(columns, -1, -1):
            ways: list[tuple[float, tuple[int, int]]] = []
            if i < rows and j < columns and _is_alike(own[i], its[j]):
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
        if op.op in op_kinds.WEIGHTED:
            found.append((_width(op) or width, None))
        else:
            is_pool = op.op in op_kinds.PER_CHANNEL or op.op in op_kinds.REARRANGING
            found.append((width, function if is_pool else op))
    return found


def _loss_of_new(
    op: Operation, last: Operation | None, width: int, function: Operation | None, child: OpGraph
) -> float:
    """Return what is lost by an operation that the parent has not."""
    if op.op in op_kinds.STANDARDISING:
        return 0.0
    if _has_weights(op, child):
        is_wide = width and _width(op) >= width and (last is None or op.shape[2:] == last.shape[2:])
        return 0.0 if is_wide else _NARROW
    if last is None or op.shape != last.shape:
        return _IMPOSSIBLE
    is_idle = function is not None and _is_alike(op, function)
    return 0.0 if is_idle and op.op in ("relu", "hardtanh") else _BENT


def _chain_of(flow: OpGraph) -> list[Operation]:
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


def _is_alike(op: Operation, other: Operation) -> bool:
    loose = op_kinds.SILENT | op_kinds.SILENT_IN.get(op.op, frozenset())
    is_same = op.op == other.op and len(op.reads) == len(other.reads)
    return is_same and settings(op, loose) == settings(other, loose)


def _has_weights(op: Operation, flow: OpGraph) -> bool:
    return any(flow.operations[value.operation].op == PARAMETER for value in op.reads)


def _width(op: Operation) -> int:
    """Return the channels that a layer gives, 0 if it is none that could change their number."""
    if op.op == "convolution":
        return op.shape[1]
    return op.shape[-1] if op.op in ("linear", "addmm") else 0
