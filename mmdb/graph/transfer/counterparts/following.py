"""Further opinions on which tensors go together, from the order of operations alone.

Layers of one size can be paired in many ways that look alike from outside, and only one of them may
have the same pools between the layers. What makes an output of the child stands for what makes it
of the parent: a layer put in between hands on what is within.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from mmdb.graph.flow.flow import BUFFER, INPUT, PARAMETER, Flow, Operation, Value
from mmdb.graph.transfer.axes import kinds
from mmdb.graph.transfer.counterparts.operations import settings

_Key: TypeAlias = tuple[str, tuple[Value, ...]]


def followed_paths(child: Flow, parent: Flow) -> dict[str, str]:
    """Return the parent's path, by the child's, of tensors of the operations that are the same.

    Both flows are followed from the inputs on. An operation that the parent does not do to what
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


def with_ends(paths: Mapping[str, str], child: Flow, parent: Flow) -> dict[str, str]:
    """Return the paths, in which the layers that make the outputs stand for one another."""
    ends: dict[str, str] = {}
    for one, other in zip(child.outputs, parent.outputs, strict=False):
        own, its = _last_layer(one, child), _last_layer(other, parent)
        if own is not None and its is not None and own.op == its.op:
            ends |= dict(weights_of(own, its, child, parent))
    taken = set(ends.values())
    kept = {path: its for path, its in paths.items() if path not in ends and its not in taken}
    return kept | ends


def _last_layer(value: Value, flow: Flow) -> Operation | None:
    """Return the layer of which a value is a function, None if it is one of several."""
    dynamic = dynamic_of(flow)
    while value.operation in dynamic:
        op = flow.operations[value.operation]
        if op.op in kinds.WEIGHTED:
            return op
        reads = [read for read in dict.fromkeys(op.reads) if read.operation in dynamic]
        if len(reads) != 1:
            return None
        value = reads[0]
    return None


def dynamic_of(flow: Flow) -> set[int]:
    """Return the ordinals of operations that depend on inputs."""
    found: set[int] = set()
    for op in flow.operations:
        if op.op == INPUT or any(value.operation in found for value in op.reads):
            found.add(op.ordinal)
    return found


def _by_operands(flow: Flow) -> defaultdict[_Key, list[Operation]]:
    """Return operations by name and what they read that depends on inputs."""
    found: defaultdict[_Key, list[Operation]] = defaultdict(list)
    dynamic = dynamic_of(flow)
    for op in flow.operations:
        if op.ordinal in dynamic:
            reads = tuple(value for value in op.reads if value.operation in dynamic)
            found[op.op, reads].append(op)
    return found


def _does_the_same(op: Operation, other: Operation, child: Flow, parent: Flow) -> bool:
    loose = kinds.SILENT | kinds.SILENT_IN.get(op.op, frozenset())
    if settings(op, loose) != settings(other, loose) or len(op.reads) != len(other.reads):
        return False
    return holds_weights(op, other, child, parent)


def holds_weights(op: Operation, other: Operation, child: Flow, parent: Flow) -> bool:
    """Whether the weights of an operation are as large as those of the parent's."""
    sizes = [
        (child.shape_of(one), parent.shape_of(two))
        for one, two in zip(op.reads, other.reads, strict=True)
        if child.operations[one.operation].op == PARAMETER
    ]
    return all(_holds(one, two) for one, two in sizes)


def _holds(shape: Sequence[int], other: Sequence[int]) -> bool:
    return len(shape) == len(other) and all(a >= b for a, b in zip(shape, other, strict=True))


def weights_of(op: Operation, other: Operation, child: Flow, parent: Flow) -> list[tuple[str, str]]:
    """Return the paths of tensors that two operations read in the same places."""
    found = []
    for one, two in zip(op.reads, other.reads, strict=True):
        own, its = child.operations[one.operation], parent.operations[two.operation]
        if own.op == its.op and own.op in (PARAMETER, BUFFER):
            found.append((own.path, its.path))
    return found
