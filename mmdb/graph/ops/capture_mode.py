"""A dispatch mode that writes down the operations of a forward.

It is to run inside torch.inference_mode, where composite operations (linear, layer_norm, attention)
reach a mode whole. On the meta device tensors have no values; but what follows from sizes,
constants and integer inputs alone is computed beside the forward, on the CPU, so that a
forward may read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from mmdb.graph.ops.canonical import Schema, canonical, name_of, schema_of
from mmdb.graph.ops.known_values import Runner
from mmdb.graph.ops.op_graph import (
    BUFFER,
    CONSTANT,
    INPUT,
    MOST_OPERATIONS,
    PARAMETER,
    CannotTrace,
    Operation,
    TooManyOperations,
    Value,
)
from mmdb.graph.ops.tensor_contents import TensorContents, TensorPaths, numbers_of

_MOST_CALLS = 20 * MOST_OPERATIONS  # what is computed away counts, too: a loop may not end
_Shapes = tuple[tuple[int, ...] | None, ...]


class DispatchMode(TorchDispatchMode):
    """Sees each operation, without the compiler that torch would import for it in a second."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class CaptureMode(DispatchMode):
    """Records operations.

    Args:
        place: read at each operation.
        paths: of the module's tensors.
        originals: the module's tensor, by the id of what the forward sees in its place.
        runs: computes the operations.
    """

    def __init__(
        self, place: ForwardPlace, paths: TensorPaths, originals: Mapping[int, Tensor], runs: Runner
    ) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self._place, self._paths, self._originals, self._runs = place, paths, originals, runs
        self._contents = TensorContents(self._add_one, self._constant)
        self._sources: dict[str, Value] = {}  # of parameters and buffers, by path
        self._calls = 0

    # -- what nothing computes -----------------------------------------------------

    def add_input(self, name: str, tensor: Tensor) -> None:
        """Record an input of the forward."""
        arguments = {"name": name, "dtype": _text(tensor.dtype)}
        self._contents.place(tensor, self._add(INPUT, arguments, (tuple(tensor.shape),), ""))

    def value_of(self, tensor: Tensor) -> Value:
        """Return what a tensor of the forward is, recording it if nothing computed it."""
        value = self._found(tensor)
        if value is None:
            value = self._constant(tuple(tensor.shape), tensor.dtype, self._values_of(tensor))
            self._contents.place(tensor, value)
        return value

    def add_unread(self) -> tuple[str, ...]:
        """Record the parameters and buffers that nothing read; return their paths."""
        unread = tuple(path for path in self._paths.first if path not in self._sources)
        for path in unread:
            self._tensor_at(path)
        return unread

    def _found(self, tensor: Tensor) -> Value | None:
        """Return what a tensor is, None if it is a constant that is not recorded yet."""
        if tensor not in self._contents and id(tensor) in self._originals:
            path = self._paths.of(self._originals[id(tensor)])
            self._contents.place(tensor, None if path is None else self._tensor_at(path))
        return self._contents.value_of(tensor)

    def _tensor_at(self, path: str) -> Value:
        if path not in self._sources:
            tensor = self._paths.first[path]
            arguments: dict[str, object] = {"dtype": _text(tensor.dtype)}
            if path in self._paths.buffers:
                arguments["persistent"] = self._paths.buffers[path]
                arguments |= {} if self._paths.buffers[path] else numbers_of(tensor)
            op = BUFFER if path in self._paths.buffers else PARAMETER
            self._sources[path] = self._add(op, arguments, (tuple(tensor.shape),), path)
        return self._sources[path]

    def _constant(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype = torch.float32,
        values: Tensor | None = None,
    ) -> Value:
        arguments = {"dtype": _text(dtype), **numbers_of(values)}
        return self._add(CONSTANT, arguments, (shape,), self._place.path)

    def _values_of(self, tensor: Tensor) -> Tensor | None:
        """Return the values of a constant, None if they are not known."""
        original = self._originals.get(id(tensor))
        if original is not None and not self._contents.is_written(tensor):
            return original
        return self._runs.certain(tensor)

    # -- what is computed ----------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            return func(*args, **kwargs)
        schema = schema_of(func)
        self._count(schema)
        try:
            if schema.decomposes:
                with self:
                    return func.decompose(*args, **kwargs)
            result = self._runs.run(func, schema, args, kwargs)
        except Exception as exc:
            self._place.note(exc, name_of(schema.name))
            raise
        if schema.keeps_values and len(args) > 0 and isinstance(args[0], Tensor):
            self._pass_on(args[0], result)
        else:
            self._record(schema, args, kwargs, result)
        return result

    def _count(self, schema: Schema) -> None:
        self._calls += 1
        if len(self.operations) > MOST_OPERATIONS or self._calls > _MOST_CALLS:
            raise TooManyOperations(operation=name_of(schema.name), path=self._place.path)

    def _pass_on(self, tensor: Tensor, result: Any) -> None:
        """Let the result have the value of the tensor."""
        first = result[0] if isinstance(result, tuple | list) else result
        if first is tensor:
            return
        self._contents.place(first, self._found(tensor))

    def _record(
        self, schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        given = dict(zip((name for name, _ in schema.arguments), args, strict=False)) | dict(kwargs)
        read = list(tensors_in(given.values()))
        outputs = list(tensors_in([result]))
        written = [given[name] for name in schema.writes if isinstance(given.get(name), Tensor)]
        if not schema.writes and len(outputs) == 1 and any(outputs[0] is one for one in read):
            return
        if schema.only_sizes or not any(self._is_computed(tensor) for tensor in read):
            self._note_constants(written, read, outputs)
            return
        if _is_copy(schema.name, given):
            self._copied(given["self"], given["src"])
            return
        if schema.name == "aten::_to_copy" and outputs[0].dtype == given["self"].dtype:
            self._pass_on(given["self"], outputs[0])
            return
        given = self._with_numbers(schema, given)
        arguments = {
            name: self._argument(given.get(name, default)) for name, default in schema.arguments
        }
        shapes: _Shapes = tuple(tuple(tensor.shape) for tensor in outputs)
        if not shapes:
            return
        first = tuple(read[0].shape) if not schema.changes_view else _before(self, arguments)
        found = canonical(schema.name, arguments, first, [shape or () for shape in shapes])
        value = self._add(name_of(schema.name), found, shapes, self._place.path)
        for index, tensor in enumerate(outputs):
            here = Value(value.operation, index)
            if any(tensor is one for one in written) and not schema.changes_view:
                self._contents.write(tensor, here)
            else:
                self._contents.place(tensor, here)

    def _with_numbers(self, schema: Schema, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments of a product with a number in place of a constant without axes."""
        if name_of(schema.name) not in ("mul", "div") or schema.writes:
            return given
        one, other = given.get("self"), given.get("other")
        if schema.name == "aten::mul" and isinstance(one, Tensor) and isinstance(other, Tensor):
            one, other = (other, one) if not one.ndim and self._is_computed(other) else (one, other)
        if not isinstance(other, Tensor) or other.ndim or self._is_computed(other):
            return given
        number = numbers_of(self._values_of(other)).get("uniform")
        return given if number is None else {**given, "self": one, "other": number}

    def _is_computed(self, tensor: Tensor) -> bool:
        """Whether a tensor is more than a constant."""
        value = self._found(tensor)
        return value is not None and self.operations[value.operation].op != CONSTANT

    def _note_constants(
        self, written: Sequence[Tensor], read: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> None:
        for tensor in written:
            self._contents.write(tensor, None)
        for tensor in (*read, *outputs):
            if tensor not in self._contents and id(tensor) not in self._originals:
                self._contents.place(tensor, None)

    def _copied(self, tensor: Tensor, source: Tensor) -> None:
        """Note that all of a tensor was overwritten by another one."""
        value, shape = self.value_of(source), tuple(tensor.shape)
        if tuple(source.shape) != shape:
            value = self._add_one("expand", {"self": value, "size": shape}, shape)
        self._contents.write(tensor, value)

    def _argument(self, value: object) -> object:
        """Return an argument in the form that `Operation` has."""
        if isinstance(value, Tensor):
            return self.value_of(value)
        if isinstance(value, tuple | list):
            return tuple(self._argument(item) for item in value)
        if value is None or isinstance(value, bool | int | float | str):
            return value
        return _text(value)

    def _add_one(self, op: str, arguments: dict[str, object], shape: tuple[int, ...]) -> Value:
        return self._add(op, arguments, (shape,), self._place.path)

    def _add(self, op: str, arguments: Mapping[str, object], shapes: _Shapes, path: str) -> Value:
        ordinal = len(self.operations)
        self.operations.append(
            Operation(ordinal=ordinal, op=op, arguments=arguments, shapes=shapes, path=path)
        )
        return Value(ordinal)


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested lists, tuples and dictionaries."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from tensors_in(value)
        elif isinstance(value, Mapping):
            yield from tensors_in(value.values())


def _before(capture: CaptureMode, arguments: Mapping[str, object]) -> tuple[int, ...]:
    """Return the shape that the first argument had before the operation changed it."""
    value = arguments["self"]
    assert isinstance(value, Value)
    return capture.operations[value.operation].shapes[value.output] or ()


def _is_copy(name: str, given: Mapping[str, object]) -> bool:
    return name in ("aten::copy_", "aten::copy") and isinstance(given.get("src"), Tensor)


def _text(value: object) -> str:
    return str(value).removeprefix("torch.")


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


@dataclass(slots=True)
class ForwardPlace:
    """The path of the innermost module that runs."""

    path: str = ""
    _failure: tuple[BaseException, str, str] | None = None  # error, operation, path

    def note(self, error: BaseException, operation: str = "forward") -> None:
        """Keep where an error was raised; what it passes on its way out changes nothing."""
        if self._failure is None or self._failure[0] is not error:
            self._failure = error, operation, self.path

    def error(self, error: BaseException) -> CannotTrace:
        """Return what to raise for an error that ended the forward."""
        if isinstance(error, CannotTrace):
            return error
        found = self._failure
        _, operation, path = found if found and found[0] is error else (error, "forward", "")
        lines = str(error).strip().splitlines() or [""]
        reason = f"{type(error).__name__}: {lines[0]}"[:300]
        text = str(error).lower()
        no_values = isinstance(error, NotImplementedError) or "meta" in text or "unalloc" in text
        return CannotTrace(reason, operation=operation, path=path, wants_values=no_values)
