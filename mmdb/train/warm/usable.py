"""What a module must be like before another's tensors can be found for it and copied into it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mmdb.errors import ArchitectureError, InvalidOption
from mmdb.messages import show


def check_module(module: object) -> None:
    """Check that a module has the shapes by which others are compared with it.

    Raises:
        InvalidOption: it is no module.
        ArchitectureError: it is lazy.
    """
    if not isinstance(module, nn.Module):
        raise InvalidOption(f"The module is {show(module)}.", hint="Pass a torch.nn.Module.")
    for path, tensor in _tensors(module):
        if is_lazy(tensor):
            raise ArchitectureError(
                f"{path} has no shape yet.", hint="Call the module with a batch once before."
            )


def check_fillable(module: object) -> None:
    """Check that a module can be followed, and that tensors can be copied into all of it.

    Raises:
        InvalidOption, ArchitectureError
    """
    check_module(module)
    assert isinstance(module, nn.Module)
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            what = f"module {path!r}" if path else "the module"
            raise ArchitectureError(
                f"The forward of {what} is compiled to TorchScript, and cannot be followed.",
                hint="Pass the module that it was made from, and compile that afterwards.",
            )
    for path, tensor in _tensors(module):
        if tensor.is_meta:
            raise ArchitectureError(
                f"{path} is on the meta device and has no memory.",
                hint='Call module.to_empty(device="cpu"), and initialize it.',
            )
        if tensor.layout == torch.strided and _repeats(tensor):
            raise ArchitectureError(
                f"Elements of {path} share their memory, so that it cannot be written.",
                hint="Give it memory of its own, such as nn.Parameter(weight.clone()).",
            )


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


def _repeats(tensor: Tensor) -> bool:
    return any(
        size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )
