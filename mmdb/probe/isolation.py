"""What a probe borrows and gives back: the module's state, torch's switches, the generators."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from mmdb.train.compute.exact import compute_deterministically, exact


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Put a module back as it was after the block, whatever happened in it.

    Restores the bits of its tensors, their gradients, which tensors stand where, training flags,
    hooks, and attributes that were set, rebound or deleted. The contents of lists and other
    objects that an attribute holds are the module's own business.
    """
    parts = [_ModuleState(part) for part in module.modules()]
    tensors = {id(t): t for part in parts for t in part.tensors()}
    values = [_Value(tensor) for tensor in tensors.values()]
    try:
        yield
    finally:
        for part in parts:
            part.restore()
        for value in values:
            value.restore()


class _ModuleState:
    """The attributes of one module."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._attributes = dict(module.__dict__)
        #: parameters, buffers, children and hooks: what torch keeps in mappings of its own
        self._mappings = [
            (mapping, dict(mapping))
            for mapping in self._attributes.values()
            if isinstance(mapping, dict)
        ]

    def tensors(self) -> Iterator[torch.Tensor]:
        for held in (self._attributes, *(copy for _, copy in self._mappings)):
            yield from (value for value in held.values() if isinstance(value, torch.Tensor))

    def restore(self) -> None:
        self._module.__dict__.clear()
        self._module.__dict__.update(self._attributes)
        for mapping, copy in self._mappings:
            mapping.clear()
            mapping.update(copy)


class _Value:
    """The bits and the gradient of one tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self._copy = tensor.detach().clone()
        self._learns = tensor.requires_grad
        self._grad = tensor.grad if tensor.is_leaf else None
        if tensor.is_leaf:
            tensor.grad = None  # or the backward pass would add to it

    def restore(self) -> None:
        tensor = self._tensor
        if tensor.is_leaf:
            tensor.requires_grad_(self._learns)
            tensor.grad = self._grad
        # An expanded tensor cannot be written to, by a layer no more than here.
        if all(stride or size <= 1 for stride, size in _axes(tensor)):
            tensor.data.copy_(self._copy)  # not through the graph, nor counted as a version


def _axes(tensor: torch.Tensor) -> list[tuple[int, int]]:
    if tensor.layout != torch.strided:
        return []
    return list(zip(tensor.stride(), tensor.shape, strict=True))


@contextmanager
def reproducing(
    seed: int,
    devices: Collection[torch.device],
    *,
    threads: int | None = None,
    deterministic: bool = True,
) -> Iterator[None]:
    """Inside the block torch is deterministic and every generator draws from `seed`.

    Args:
        devices: those whose generators are seeded, beside the CPU's.
        threads: of torch; as they are by default.
        deterministic: False lets operations run that have no deterministic algorithm.
    """
    warns_only = torch.is_deterministic_algorithms_warn_only_enabled()
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    tries_kernels = torch.backends.cudnn.benchmark
    states = random.getstate(), np.random.get_state()
    try:
        with ExitStack() as stack:
            stack.enter_context(exact(seed, threads or torch.get_num_threads()))
            stack.enter_context(torch.inference_mode(False))
            for device in devices:
                if device.type != "cpu":
                    stack.enter_context(_seeded(device, seed))
            if not deterministic:
                compute_deterministically(False)
            torch.backends.cudnn.benchmark = False  # it would choose kernels by their speed
            random.seed(seed)
            np.random.seed(seed % (1 << 32))
            yield
    finally:
        compute_deterministically(was_deterministic, warn_only=warns_only)
        torch.backends.cudnn.benchmark = tries_kernels
        random.setstate(states[0])
        np.random.set_state(states[1])


@contextmanager
def _seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Seed the generator of one accelerator for the block."""
    backend: Any = torch.get_device_module(device)
    before = backend.get_rng_state(device)
    try:
        with backend.device(device):
            backend.manual_seed(seed)
        yield
    finally:
        backend.set_rng_state(before, device)
