"""Captures the op graph of a torch module: one forward is traced, without weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.errors import stops_the_caller
from mmdb.graph.ops.capture_mode import CaptureMode, ForwardPlace, tidy
from mmdb.graph.ops.example_inputs import candidates
from mmdb.graph.ops.known_values import Inputs, Readable, RunInMemory, RunOnMeta
from mmdb.graph.ops.op_graph import CannotTrace, OpGraph, TooManyOperations
from mmdb.graph.ops.tensor_contents import (
    TensorPaths,
    Twin,
    TwinCopy,
    empty_twin,
    random_twin,
    run_weight_hooks,
    single,
)
from mmdb.graph.trace.stand_ins import TRANSPARENT, python_generator_kept


class Forward:
    """A forward of a module's copy; the module is only read.

    Args:
        twin: makes what the forward sees in place of a tensor of the module.
        dtype: of inputs that are floats.
        memory: computes with values, for twins that have some; without it nothing has values.

    Raises:
        CannotTrace: a parameter has no shape yet.
    """

    def __init__(
        self,
        module: nn.Module,
        twin: Twin,
        *,
        dtype: torch.dtype = torch.float32,
        memory: RunInMemory | None = None,
    ) -> None:
        self._module, self._dtype = module, dtype
        self._paths, self._place = TensorPaths(module), ForwardPlace()
        self._copy = TwinCopy(module, self, twin)
        self._on_meta = None if memory else RunOnMeta(self._copy.originals)
        self._runs = memory or self._on_meta or RunOnMeta({})
        self._capture = CaptureMode(self._place, self._paths, self._copy.originals, self._runs)

    def follow(self, inputs: Inputs) -> OpGraph:
        """Return the op graph; to be called once.

        Raises:
            CannotTrace: the forward fails.
        """
        capture = self._capture
        with python_generator_kept(), torch.inference_mode():
            try:
                root = self._copy.root()
                args, kwargs = self._given(inputs)
                with Readable(self._runs), capture:
                    result = root(*args, **kwargs)
            except Exception as exc:  # the forward is the user's code
                if stops_the_caller(exc):
                    raise
                error = self._place.error(exc)
                raise error from (None if error is exc else exc)
            outputs = [capture.value_of(tensor) for tensor in results_of(result)]
            unread = capture.add_unread()
        operations, values = tidy(capture.operations, outputs)
        return OpGraph(operations=operations, outputs=values, ties=self._paths.ties, unread=unread)

    # -- what the copy calls -------------------------------------------------------

    def weight(self, twin: Tensor) -> object:
        """As `Reports`."""
        return twin

    def enter(
        self, module: nn.Module, copy: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        """As `Reports`."""
        before, self._place.path = self._place.path, self._copy.paths[id(module)]
        try:
            held = TRANSPARENT.get(type(module).__name__, "")
            if held in module._modules:
                return copy.get_submodule(held)(*args, **kwargs)
            run_weight_hooks(module, copy, args)
            return copy.forward(*args, **kwargs)
        except Exception as exc:
            self._place.note(exc)
            raise
        finally:
            self._place.path = before

    # -- inputs --------------------------------------------------------------------

    def _given(self, inputs: Inputs) -> tuple[list[Any], dict[str, Any]]:
        names = _names(self._module, len(inputs.args))
        args = [self._input(*pair) for pair in zip(names, inputs.args, strict=True)]
        return args, {name: self._input(name, value) for name, value in inputs.kwargs.items()}

    def _input(self, name: str, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(self._input(f"{name}.{i}", item) for i, item in enumerate(value))
        if not isinstance(value, Tensor):
            return value
        dtype = self._dtype if value.is_floating_point() else value.dtype
        if self._on_meta is None:
            zeros = torch.zeros(value.shape, dtype=value.dtype)
            tensor = (zeros if value.is_meta else value.detach().to("cpu", copy=True)).to(dtype)
        else:
            tensor = torch.empty(value.shape, dtype=dtype, device="meta")
            if not dtype.is_floating_point and not value.is_meta:
                self._on_meta.learn(tensor, value.detach().to("cpu", copy=True))
        self._capture.add_input(name, tensor)
        return tensor


def _names(module: nn.Module, count: int) -> list[str]:
    """Return names for arguments that are given by position."""
    try:
        names = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):  # written in C
        names = []
    return [*names, *(f"input{i}" for i in range(len(names), count))][:count]


def results_of(value: object) -> Iterator[Tensor]:
    """Yield the tensors that a forward returned."""
    held: Callable[[], Iterator[object]] | None = None
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        held = value.values().__iter__
    elif isinstance(value, tuple | list):
        held = value.__iter__
    elif is_dataclass(value):
        held = (getattr(value, field.name) for field in fields(value)).__iter__
    if held is not None:
        for item in held():
            yield from results_of(item)


_MOST_IN_MEMORY = 64_000_000  # elements of a module that is run with values
_MOST_CANDIDATES = 8


def capture(
    module: nn.Module, inputs: Inputs | Sequence[Tensor] | Mapping[str, Any] | None = None
) -> OpGraph:
    """Return the op graph of the module in eval mode; see `capture_with_inputs`."""
    return capture_with_inputs(module, inputs)[0]


def capture_with_inputs(
    module: nn.Module, inputs: Inputs | Sequence[Tensor] | Mapping[str, Any] | None = None
) -> tuple[OpGraph, Inputs]:
    """Return the op graph of the module in eval mode, and the inputs that its forward took.

    A copy runs on the meta device with every float as float32, then, if that fails, with the
    module's own dtypes. There a selection by values (the experts that a router chooses, the boxes
    that pass a threshold) is taken to select all. A forward that reads values otherwise is run on
    the CPU with random weights, where the module has at most 64 million elements; the op graph is
    then one of those that it may take.
    Nothing of the module or of a generator changes.

    Args:
        inputs: of the forward, by position or by name, of any device and with any values; by
            default the first of `candidates` that the forward takes.

    Raises:
        CannotTrace: the forward fails, reads values that are not known, or has more than 50,000
            operations.
    """
    found: Iterable[Inputs] = [_as_inputs(inputs)]
    if inputs is None:
        found = islice(candidates(module), _MOST_CANDIDATES)
    failures: list[CannotTrace] = []
    no_values: list[Inputs] = []
    for given in found:
        try:
            return _on_meta(module, given), given
        except TooManyOperations:
            raise
        except CannotTrace as exc:
            failures.append(exc)
            if exc.wants_values:
                no_values.append(given)
    for given in no_values[:2]:
        try:
            return _in_memory(module, given), given
        except CannotTrace as exc:
            failures.append(exc)
    if not failures:
        raise CannotTrace("no inputs are known for it; pass inputs, or the shape of its input")
    raise failures[0]


def _as_inputs(inputs: Inputs | Sequence[Tensor] | Mapping[str, Any] | None) -> Inputs:
    if isinstance(inputs, Inputs):
        return inputs
    if isinstance(inputs, Mapping):
        return Inputs(kwargs=inputs)
    return Inputs(tuple(inputs or ()))


def _on_meta(module: nn.Module, inputs: Inputs) -> OpGraph:
    try:
        return Forward(module, lambda one: empty_twin(one, single(one.dtype))).follow(inputs)
    except CannotTrace as exc:
        dtypes = {one.dtype for one in _tensors(module) if one.dtype.is_floating_point}
        if dtypes <= {torch.float32} or isinstance(exc, TooManyOperations):
            raise
        first = next(one.dtype for one in _tensors(module) if one.dtype in dtypes)
        try:
            own = Forward(module, lambda one: empty_twin(one, one.dtype), dtype=first)
            return own.follow(inputs)
        except CannotTrace:
            raise exc from None


def _in_memory(module: nn.Module, inputs: Inputs) -> OpGraph:
    if sum(one.numel() for one in _tensors(module)) > _MOST_IN_MEMORY:
        raise CannotTrace("it needs values, and has too many parameters to be run with some")
    generator = torch.Generator().manual_seed(0)
    return Forward(
        module,
        lambda one: random_twin(one, single(one.dtype), generator),
        memory=RunInMemory(generator),
    ).follow(inputs)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    return chain(module.parameters(), module.buffers())
