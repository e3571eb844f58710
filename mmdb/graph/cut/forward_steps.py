"""The steps of a forward, its inputs, and which steps a part of it needs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.fx.proxy import TracerBase

from mmdb.graph.trace.stand_ins import TensorProxy, required_arguments

StepKind = Literal["input", "tensor", "constant", "module", "function", "method"]


@dataclass(eq=False, slots=True, kw_only=True)
class ForwardStep:
    """One thing that a forward does; steps stand for tensors among the arguments.

    Attributes:
        target: name of an input, path of a tensor or module, function, or name of a method.
        rewrites: the step whose result this one changes in place.
        modes: as `torch_modes`, while it ran.
    """

    kind: StepKind
    target: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    rewrites: ForwardStep | None = None
    modes: tuple[bool, ...] = ()

    @property
    def name(self) -> str:
        """The name of the step in messages."""
        return str(getattr(self.target, "__name__", self.target))

    @property
    def sources(self) -> Iterator[ForwardStep]:
        """The steps whose results it reads."""
        return steps_in((self.args, self.kwargs))


@dataclass(slots=True, kw_only=True)
class StepTrace:
    """The steps of one traced forward pass.

    Attributes:
        inputs: the names of its tensors.
        steps: in the order in which they ran, inputs first.
        output: what it returned, with steps in place of tensors.
        results: (path, what the module there returned), in the order in which they ended.
        modes: as `torch_modes`, where the forward began.
    """

    inputs: tuple[str, ...]
    steps: list[ForwardStep]
    output: Any
    results: list[tuple[str, Any]]
    modes: tuple[bool, ...]

    def results_of(self, path: str) -> list[Any]:
        """Return what each call of the module at `path` returned."""
        return [result for at, result in self.results if at == path]


def steps_in(value: object) -> Iterator[ForwardStep]:
    """Yield the steps in an argument, in their order."""
    if isinstance(value, ForwardStep):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from steps_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from steps_in(item)
    elif isinstance(value, slice):
        yield from steps_in((value.start, value.stop, value.step))


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return an argument with `change` of each value in it that holds no others."""
    if isinstance(value, list | tuple):
        items = [replaced(item, change) for item in value]
        if isinstance(value, tuple) and hasattr(value, "_fields"):  # a namedtuple
            return type(value)(*items)
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {key: replaced(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(replaced(end, change) for end in (value.start, value.stop, value.step)))
    return change(value)


#: Names of the arguments that are tensors, or shapes of a row by name, or the only one's; by
#: default the arguments that must be given, or the first. What is known of shapes can be asked
#: for in a forward; the number of rows is never known.
TracedInputs = Sequence[str] | Mapping[str, tuple[int, ...]] | tuple[int, ...] | None


def _named(inputs: TracedInputs) -> tuple[str, ...] | None:
    """Return the names that `inputs` says, if it does."""
    if inputs is None or _is_shape(inputs):
        return None
    return tuple(cast("Sequence[str]", inputs))


def _is_shape(inputs: object) -> bool:
    return isinstance(inputs, tuple) and all(isinstance(size, int) for size in inputs)


def input_names(module: nn.Module, inputs: TracedInputs) -> tuple[list[str], list[str]]:
    """Return the names of tensors that the forward takes by position, and by name alone."""
    if (names := _named(inputs)) is not None:
        return [], list(names)
    return required_arguments(module)


def row_shapes(names: Sequence[str], inputs: TracedInputs) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a row that are known, by name."""
    if isinstance(inputs, Mapping):
        return {name: tuple(inputs[name]) for name in names}
    if inputs is not None and _is_shape(inputs) and len(names) == 1:
        return {names[0]: cast("tuple[int, ...]", inputs)}
    return {}


class InputProxy(TensorProxy):
    """The proxy of an input whose sizes are known, but for the number of rows."""

    def __init__(self, node: Any, tracer: TracerBase, row_shape: tuple[int, ...]) -> None:
        super().__init__(node, tracer)
        self._row_shape = row_shape

    @property
    def shape(self) -> tuple[Any, ...]:
        """As of a tensor."""
        rows = self.tracer.create_proxy("call_method", "size", (self, 0), {})
        return (rows, *self._row_shape)

    @property
    def dtype(self) -> Any:
        """As of a tensor: only tokens, of one dimension, are no float32."""
        return torch.float32 if len(self._row_shape) > 1 else self.__getattr__("dtype")

    @property
    def ndim(self) -> int:
        """As of a tensor."""
        return 1 + len(self._row_shape)

    def dim(self) -> int:
        """As of a tensor."""
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        """As of a tensor."""
        return self.shape if dim is None else self.shape[dim]


def needed(ends: Iterable[ForwardStep], followed: StepTrace) -> list[ForwardStep]:
    """Return the steps that lead to `ends` and these, in their order; inputs are left out."""
    wanted = set(ends)
    found = []
    for step in reversed(followed.steps):
        if step in wanted:
            wanted.update(step.sources)
            found.append(step)
    return [step for step in reversed(found) if step.kind != "input"]


def after(start: ForwardStep, output: Any, followed: StepTrace) -> list[ForwardStep] | None:
    """Return the steps from `start` (left out) to an output, or None if they read more than it.

    How many rows the inputs have and where they lie is no more: the features say it, too.
    """
    wanted = set(steps_in(output))
    found = []
    meets = start in wanted
    for step in reversed(followed.steps):
        if step is start or step not in wanted:
            continue
        if step.kind == "input":
            return None
        found.append(step)
        if not _is_of_batch(step):
            wanted.update(step.sources)
            meets = meets or start in wanted
    return list(reversed(found)) if meets else None


def part_after(start: ForwardStep, output: Any, followed: StepTrace) -> list[ForwardStep] | None:
    """Return `after`, ready to be planned: what it asks of the inputs is asked of `start`."""
    steps = after(start, output, followed)
    for step in steps or ():
        if _is_of_batch(step):
            step.target = _device_of if _is_read(step, "device") else _rows_of
            step.kind, step.args, step.kwargs = "function", (start,), {}
    return steps


def intruder(start: ForwardStep, followed: StepTrace) -> ForwardStep | None:
    """Return the first step that reads `start`, or what comes of it, and the inputs besides."""
    ours, others = {start}, set[ForwardStep]()
    for step in followed.steps:
        if step is start:
            continue
        reads = list(step.sources)
        is_other = step.kind == "input" or any(source in others for source in reads)
        if is_other and any(source in ours for source in reads):
            return step
        if any(source in ours for source in reads):
            ours.add(step)
        elif is_other:
            others.add(step)
    return None


def is_tensor(result: object, followed: StepTrace) -> bool:
    """Return whether what a module returned is one tensor, by the way it is used."""
    if not isinstance(result, ForwardStep):
        return False
    return not any(_takes_apart(step) for step in followed.steps if step.args[:1] == (result,))


def _takes_apart(step: ForwardStep) -> bool:
    """Return whether a step does to its first argument what one does to no tensor of rows."""
    if step.kind != "function" or len(step.args) < 2:
        return False
    key = step.args[1]
    if step.target is operator.getitem:
        return isinstance(key, int | str)
    return step.target is getattr and isinstance(key, str) and not hasattr(Tensor, key)


def _is_of_batch(step: ForwardStep) -> bool:
    """Return whether a step asks an input how many rows it has, or where it lies."""
    if _is_read(step, "device"):
        return _is_input(step.args[0])
    if step.kind == "method" and step.target == "size":
        dim = step.args[1:] or tuple(step.kwargs.values())
        return dim == (0,) and _is_input(step.args[0])
    if step.kind != "function" or step.target is not operator.getitem:
        return False
    shape, index = step.args
    if not isinstance(shape, ForwardStep) or index != 0 or not isinstance(index, int):
        return False
    is_size = shape.kind == "method" and shape.target == "size" and len(shape.args) == 1
    return (is_size or _is_read(shape, "shape")) and _is_input(shape.args[0])


def _is_read(step: ForwardStep, attribute: str) -> bool:
    return step.kind == "function" and step.target is getattr and step.args[1] == attribute


def _is_input(value: object) -> bool:
    return isinstance(value, ForwardStep) and value.kind == "input"


def _rows_of(features: Any) -> Any:
    return features.shape[0]


def _device_of(features: Any) -> Any:
    return features.device
