"""From a torch module to its flow: one forward is followed, without weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.graph.flow.examples import candidates
from mmdb.graph.flow.flow import Flow
from mmdb.graph.flow.forward import Forward
from mmdb.graph.flow.inputs import Inputs
from mmdb.graph.flow.known import InMemory
from mmdb.graph.flow.twins import empty_twin, random_twin, single
from mmdb.graph.flow.untraceable import CannotTrace, TooManyOperations

_MOST_IN_MEMORY = 64_000_000  # elements of a module that is run with values
_MOST_CANDIDATES = 8


def record(
    module: nn.Module, inputs: Inputs | Sequence[Tensor] | Mapping[str, Any] | None = None
) -> Flow:
    """Return the flow of what the module computes when it is evaluated; see `recorded`."""
    return recorded(module, inputs)[0]


def recorded(
    module: nn.Module, inputs: Inputs | Sequence[Tensor] | Mapping[str, Any] | None = None
) -> tuple[Flow, Inputs]:
    """Return the flow of what the module computes when it is evaluated, and of which inputs.

    A copy runs on the meta device with every float as float32, then, if that fails, with the
    module's own dtypes. There a selection by values (the experts that a router chooses, the boxes
    that pass a threshold) is taken to select all. A forward that reads values otherwise is run on
    the CPU with random weights, where the module has at most 64 million elements; the flow is then
    one of those that it may take.
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


def _on_meta(module: nn.Module, inputs: Inputs) -> Flow:
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


def _in_memory(module: nn.Module, inputs: Inputs) -> Flow:
    if sum(one.numel() for one in _tensors(module)) > _MOST_IN_MEMORY:
        raise CannotTrace("it needs values, and has too many parameters to be run with some")
    generator = torch.Generator().manual_seed(0)
    return Forward(
        module,
        lambda one: random_twin(one, single(one.dtype), generator),
        memory=InMemory(generator),
    ).follow(inputs)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    return chain(module.parameters(), module.buffers())
