"""What is done to recorded operations once the forward has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mmdb.graph.flow.flow import BUFFER, CONSTANT, PARAMETER, Operation, Value


def tidy(
    operations: Sequence[Operation], outputs: Sequence[Value]
) -> tuple[tuple[Operation, ...], tuple[Value, ...]]:
    """Return operations and outputs, where each product with a transposed weight is a linear."""
    weights = _weights(operations)
    transposes = {
        op.ordinal: op.arguments["self"]
        for op in operations
        if op.op == "permute" and op.ordinal in weights and op.arguments["dims"] == (1, 0)
    }
    found = [_linear(op, operations, weights, transposes) for op in operations]
    readers = Counter(value.operation for op in found for value in op.reads)
    readers.update(value.operation for value in outputs)
    numbers: dict[int, int] = {}
    kept: list[Operation] = []
    for op in found:
        if op.ordinal not in transposes or readers[op.ordinal]:
            numbers[op.ordinal] = len(kept)
            kept.append(op)
    if len(kept) == len(found):
        return tuple(found), tuple(outputs)
    renumbered = tuple(_renumbered(op, numbers) for op in kept)
    return renumbered, tuple(Value(numbers[one.operation], one.output) for one in outputs)


def _weights(operations: Sequence[Operation]) -> set[int]:
    """Return the operations that follow from parameters, buffers and constants alone."""
    found: set[int] = set()
    for op in operations:
        reads = op.reads
        if op.op in (PARAMETER, BUFFER, CONSTANT) or (
            reads and all(value.operation in found for value in reads)
        ):
            found.add(op.ordinal)
    return found


def _linear(
    op: Operation,
    operations: Sequence[Operation],
    weights: set[int],
    transposes: Mapping[int, object],
) -> Operation:
    """Return the linear that the operation is, or the operation."""
    if op.op == "matmul":
        x, weight, bias = op.arguments["self"], op.arguments["other"], None
    elif op.op == "addmm" and op.arguments["alpha"] == op.arguments["beta"] == 1:
        x, weight, bias = (op.arguments[name] for name in ("mat1", "mat2", "self"))
    else:
        return op
    if not (isinstance(x, Value) and isinstance(weight, Value)):
        return op
    is_linear = x.operation not in weights and weight.operation in transposes
    if isinstance(bias, Value):
        width = operations[weight.operation].shape[1]
        is_linear = is_linear and operations[bias.operation].shapes[bias.output] == (width,)
    if not is_linear:
        return op
    arguments = {"input": x, "weight": transposes[weight.operation], "bias": bias}
    return replace(op, op="linear", arguments=arguments)


def _renumbered(op: Operation, numbers: Mapping[int, int]) -> Operation:
    def change(argument: object) -> object:
        if isinstance(argument, Value):
            return Value(numbers[argument.operation], argument.output)
        if isinstance(argument, tuple):
            return tuple(change(item) for item in argument)
        return argument

    arguments = {name: change(argument) for name, argument in op.arguments.items()}
    return replace(op, ordinal=numbers[op.ordinal], arguments=arguments)
