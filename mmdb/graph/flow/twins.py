"""A copy of a module whose tensors are twins of the module's: same shapes, other values or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mmdb.graph.flow.untraceable import CannotTrace
from mmdb.graph.module_copy import Reports, WeightlessCopy

#: Makes what the forward sees in place of a tensor of the module.
Twin = Callable[[Tensor], Tensor]


class TwinCopy(WeightlessCopy):
    """The copy; the module is only read.

    Attributes:
        originals: the module's tensor, by the id of its twin.
    """

    def __init__(self, module: nn.Module, reports: Reports, twin: Twin) -> None:
        super().__init__(module, reports, training=False)
        self.originals: dict[int, Tensor] = {}
        self._make = twin

    def _twin(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._twins:
            twin = self._make(tensor)
            self._twins[id(tensor)] = twin
            self.originals[id(twin)] = tensor
        return self._twins[id(tensor)]

    def _own(self, value: object) -> object:
        if type(value) is partial:
            args = [self._own(arg) for arg in value.args]
            kwargs = {name: self._own(arg) for name, arg in value.keywords.items()}
            return partial(cast("Callable[..., object]", self._own(value.func)), *args, **kwargs)
        return super()._own(value)


class TensorPaths:
    """The paths in the state dict of a module's tensors, non-persistent buffers included.

    Attributes:
        first: the first path of each parameter and buffer, in the order of the module tree.
        ties: its further paths, with the first one.

    Raises:
        CannotTrace: a parameter has no shape yet.
    """

    def __init__(self, module: nn.Module) -> None:
        self.first: dict[str, Tensor] = {}
        self.ties: dict[str, str] = {}
        self.buffers: dict[str, bool] = {}  # whether each one is persistent
        self._by_id: dict[int, str] = {}
        for path, part in module.named_modules(remove_duplicate=False):
            for name, tensor, is_buffer in _tensors(part):
                self._add(f"{path}.{name}" if path else name, tensor)
                if is_buffer:
                    full = self._by_id[id(tensor)]
                    self.buffers.setdefault(full, name not in part._non_persistent_buffers_set)

    def of(self, tensor: Tensor) -> str | None:
        """Return the path of a tensor, None if it is not the module's."""
        return self._by_id.get(id(tensor))

    def _add(self, path: str, tensor: Tensor) -> None:
        if is_lazy(tensor):
            raise CannotTrace("a parameter has no shape before the first forward", path=path)
        known = self._by_id.setdefault(id(tensor), path)
        if known == path:
            self.first[path] = tensor
        else:
            self.ties[path] = known


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield name, tensor and whether it is a buffer, of those that the module itself holds."""
    held: Sequence[tuple[Mapping[str, Tensor | None], bool]]
    held = ((module._parameters, False), (module._buffers, True))
    for tensors, is_buffer in held:
        for name, tensor in tensors.items():
            if tensor is not None:
                yield name, tensor, is_buffer


def run_weight_hooks(module: nn.Module, copy: nn.Module, args: Sequence[Any]) -> None:
    """Run on the copy those hooks of the module that compute a weight from parameters."""
    for hook in module._forward_pre_hooks.values():
        if type(hook).__module__.startswith("torch.nn.utils."):
            cast("Any", hook)(copy, args)


def empty_twin(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a twin on the meta device, which holds nothing."""
    return _as(tensor, torch.empty(tensor.shape, dtype=dtype, device="meta"))


def random_twin(tensor: Tensor, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return a twin in memory: random numbers that keep activations small; zeros if no floats."""
    twin = torch.zeros(tensor.shape, dtype=dtype)
    if dtype.is_floating_point and tensor.ndim < 2:
        twin.uniform_(0.5, 1.0, generator=generator)  # a variance must not be negative
    elif dtype.is_floating_point:
        twin.normal_(0.0, max(1, tensor[0].numel()) ** -0.5, generator=generator)
    return _as(tensor, twin)


def _as(tensor: Tensor, twin: Tensor) -> Tensor:
    is_parameter = isinstance(tensor, nn.Parameter)
    return nn.Parameter(twin, requires_grad=False) if is_parameter else twin


def single(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for every kind of float, other dtypes as they are."""
    return torch.float32 if dtype.is_floating_point else dtype
