"""Computes a flow, operation by operation; constants are zeros."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mmdb.graph.ops.op_graph import BUFFER, CONSTANT, INPUT, PARAMETER, Operation, OpGraph, Value


def replay(
    flow: OpGraph, state: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
) -> list[Tensor]:
    """Return the outputs.

    Args:
        state: parameters and buffers by path.
        inputs: by name.
    """
    results: list[Any] = []

    def value_of(argument: object) -> Any:
        if isinstance(argument, Value):
            found = results[argument.operation]
            return found[argument.output] if isinstance(found, tuple | list) else found
        if isinstance(argument, tuple):
            return [value_of(item) for item in argument]
        return argument

    for op in flow.operations:
        if op.op == INPUT:
            results.append(inputs[str(op.arguments["name"])])
        elif op.op in (PARAMETER, BUFFER):
            results.append(state[op.path])
        elif op.op == CONSTANT:
            results.append(torch.zeros(op.shape))
        else:
            results.append(_compute(op, {k: value_of(v) for k, v in op.arguments.items()}))
            shapes = [one.shape for one in _listed(results[-1])]
            assert shapes == list(op.shapes), op
    return [value_of(value) for value in flow.outputs]


def _listed(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _compute(op: Operation, given: dict[str, Any]) -> Any:
    if op.op in _FORMS:
        return _FORMS[op.op](**given)
    texts = {name for name, value in given.items() if value is None or isinstance(value, str)}
    plain = {name: value for name, value in given.items() if name not in texts}
    return getattr(torch.ops.aten, op.op)(**plain)


def _attention(**given: Any) -> Tensor:
    tensors = [given.pop(name) for name in ("query", "key", "value")]
    result: Tensor = functional.scaled_dot_product_attention(*tensors, **given)
    return result


_FORMS: dict[str, Callable[..., Any]] = {
    "convolution": torch.convolution,
    "linear": functional.linear,
    "matmul": lambda self, other: self @ other,
    "batch_norm": lambda input, running_mean, running_var, **rest: functional.batch_norm(
        input, running_mean, running_var, **rest
    ),
    "layer_norm": functional.layer_norm,
    "group_norm": functional.group_norm,
    "scaled_dot_product_attention": _attention,
    "view": lambda self, size: self.reshape(size),
    "permute": lambda self, dims: self.permute(dims),
    "expand": lambda self, size: self.expand(size),
    "split_with_sizes": lambda self, split_sizes, dim: self.split(split_sizes, dim),
    "slice": lambda self, dim, start, end, step: self[
        (slice(None),) * dim + (slice(start, end, step),)
    ],
    "slice_scatter": lambda self, src, **where: torch.slice_scatter(self, src, **where),
    "as_strided": lambda self, **where: self.contiguous().as_strided(**where),
    "squeeze": lambda self, dims: self.squeeze(dims),
    "softmax": lambda self, dim, **_: self.softmax(dim),
}
