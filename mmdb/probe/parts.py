"""Which parts of a module are probed, by path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import torch
from torch import nn

from mmdb.errors import InvalidOption


def watched(module: nn.Module, layers: Sequence[str] | None) -> dict[nn.Module, str]:
    """Return the modules to write down and their paths."""
    found = {part: path for path, part in module.named_modules()}
    if layers is None:
        return {part: path for part, path in found.items() if not path or _is_layer(part)}
    for pattern in layers:
        if not any(fnmatchcase(path, pattern) for path in found.values()):
            raise InvalidOption(
                f"layers has {pattern!r}, which fits no path of the module.",
                hint="Paths are those of module.named_modules(), such as 'layer1.0.conv1'.",
            )
    return {
        part: path
        for part, path in found.items()
        if not path or any(fnmatchcase(path, pattern) for pattern in layers)
    }


def _is_layer(module: nn.Module) -> bool:
    own = module._parameters or module._buffers
    return bool(own) or next(module.children(), None) is None


def named_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield parameters by path, tied ones under each of their layers: a copy may untie them."""
    for path, part in module.named_modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                yield f"{path}.{name}".lstrip("."), parameter


def named_buffers(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield buffers by path, those that a state dict leaves out as well."""
    for path, part in module.named_modules():
        for name, buffer in part._buffers.items():
            if buffer is not None:
                yield f"{path}.{name}".lstrip("."), buffer


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return all parameters and buffers by path."""
    return dict(named_parameters(module)) | dict(named_buffers(module))
