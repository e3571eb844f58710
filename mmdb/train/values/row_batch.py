"""Rows on their way through a module: taken out by index, called by name, compared by target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from mmdb.data.arrays import Decoded
from mmdb.data.decoding import Target
from mmdb.errors import OutputMismatch

#: float32 or int64 (n, *shape): one input's, or those of several by name.
Inputs = Tensor | dict[str, Tensor]
#: int64 (n,), float32 (n,) or (n, size): one target's, or those of several in order.
Labels = Tensor | tuple[Tensor, ...]
#: What a pass takes: the rows of a partition, or features of them, with their labels.
Partition = tuple[Inputs, Labels]


def tensors_of(decoded: Decoded) -> tuple[Inputs, Labels]:
    """Return a decoded partition as tensors that share its memory."""
    x, y = decoded
    inputs: Inputs
    if isinstance(x, dict):
        inputs = {name: torch.from_numpy(array) for name, array in x.items()}
    else:
        inputs = torch.from_numpy(x)
    if isinstance(y, tuple):
        return inputs, tuple(torch.from_numpy(array) for array in y)
    return inputs, torch.from_numpy(y)


def tensors_in(rows: Inputs | Labels) -> tuple[Tensor, ...]:
    """Return the tensors of inputs or labels, in their order."""
    if isinstance(rows, Tensor):
        return (rows,)
    return tuple(rows.values()) if isinstance(rows, dict) else rows


def row_count(rows: Inputs | Labels) -> int:
    """Return the number of rows."""
    return len(tensors_in(rows)[0])


def take_inputs(x: Inputs, index: Tensor) -> Inputs:
    """Return the rows of some indices, int64 (m,), in their order.

    index_select copies whole rows: a quarter of the time of x[index].
    """
    if isinstance(x, dict):
        return {name: tensor.index_select(0, index) for name, tensor in x.items()}
    return x.index_select(0, index)


def take_labels(y: Labels, index: Tensor) -> Labels:
    """Return the labels of some indices, int64 (m,), in their order."""
    if isinstance(y, tuple):
        return tuple(tensor.index_select(0, index) for tensor in y)
    return y.index_select(0, index)


def inputs_to(x: Inputs, device: torch.device) -> Inputs:
    """Return the inputs on a device; the same objects where they are there already."""
    if isinstance(x, dict):
        return {name: tensor.to(device, non_blocking=True) for name, tensor in x.items()}
    return x.to(device, non_blocking=True)


def labels_to(y: Labels, device: torch.device) -> Labels:
    """Return the labels on a device; the same objects where they are there already."""
    if isinstance(y, tuple):
        return tuple(tensor.to(device, non_blocking=True) for tensor in y)
    return y.to(device, non_blocking=True)


def call(module: nn.Module, x: Inputs) -> object:
    """Return what the module makes of a batch; several inputs are passed by their names."""
    return module(**x) if isinstance(x, dict) else module(x)


def outputs_of(result: object, targets: Sequence[Target]) -> tuple[Tensor, ...]:
    """Return a module's outputs in the targets' order.

    Args:
        result: for one target a tensor; for several a mapping by target or a sequence in order.
    Raises:
        OutputMismatch: it is something else.
    """
    if len(targets) == 1 and isinstance(result, Tensor):
        return (result,)
    found: Sequence[object] = ()
    if isinstance(result, Mapping):
        found = [result.get(target.name) for target in targets]
    elif isinstance(result, tuple | list):
        found = result
    tensors = tuple(output for output in found if isinstance(output, Tensor))
    if len(tensors) != len(targets) or len(found) != len(targets):
        names = ", ".join(target.name for target in targets)
        raise OutputMismatch(
            f"The model returns a {_described(result)}; the labels are {names}.",
            hint="Return one tensor for one label; for several a dict by label, or a tuple.",
        )
    return tensors


def _described(result: object) -> str:
    if isinstance(result, Mapping):
        return f"dict of {', '.join(map(str, result))}"
    if isinstance(result, tuple | list):
        return f"{type(result).__name__} of {len(result)}"
    return type(result).__name__


def fitted(output: Tensor, y: Tensor) -> Tensor:
    """Drop the last axis of a regression's (n, 1) output, so that it cannot broadcast."""
    return output.squeeze(-1) if y.is_floating_point() and output.ndim > y.ndim else output
