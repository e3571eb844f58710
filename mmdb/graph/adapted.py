"""A network whose layers are frozen and adapted: two small matrices in each, and what else trains.

Its frozen tensors have the paths of the network's own, so that a version of such a model stores but
the adapter where its parent is the network. So that they stay as they are, frozen batch
normalisations go by the statistics that they have, and learn no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmdb.errors import HeadMismatch
from mmdb.graph.cut.adapter import adapt, chosen
from mmdb.graph.spec.build import BuildRequest
from mmdb.graph.spec.parse import ADAPTER_ARGUMENTS, is_adapter
from mmdb.messages import show

_IS_KEPT = "_is_kept"


def build_adapted(parsed: Mapping[str, Any], request: BuildRequest) -> nn.Module:
    """Return the module of {"adapted", "adapter"}.

    The adapter is that of `mmdb.graph.cut.adapter.adapt`; its "train" are glob patterns of the
    modules beside it that train as a whole, such as a classifier.

    Raises:
        ArchitectureError: as `build`. HeadMismatch: the adapter does not fit.
    """
    own = {k: request.arguments[k] for k in ADAPTER_ARGUMENTS if k in request.arguments}
    others = {key: value for key, value in request.arguments.items() if key not in own}
    module = request.build(parsed["adapted"], arguments=others)
    adapter = {**parsed["adapter"], **own}
    patterns = adapter.pop("train", [])
    trained = [name for name, _ in module.named_modules() if name and _matches(name, patterns)]
    unknown = [one for one in patterns if not any(fnmatchcase(name, one) for name in trained)]
    if unknown:
        known = ", ".join(name for name, _ in module.named_children())
        raise HeadMismatch(
            f"no module that trains is named {show(unknown[0])}",
            hint=f"Give paths or patterns of modules, such as {known}.",
        )
    whole = tuple(f"{name}." for name in trained)
    layers = [path for path in chosen(module, adapter) if not f"{path}.".startswith(whole)]
    if not layers:
        raise HeadMismatch(
            "every layer that the adapter could be put into trains as a whole",
            hint="Choose other layers for the adapter, or leave some out of train.",
        )
    adapt(module, {**adapter, "layers": layers}, apart=True)
    for path, parameter in module.named_parameters():
        parameter.requires_grad_(is_adapter(path))
    for name in trained:
        module.get_submodule(name).requires_grad_(True)
    for name, part in module.named_modules():
        if isinstance(part, _BatchNorm) and not f"{name}.".startswith(whole):
            cls: Any = type(part)
            part.__class__ = _kept(cls)
            part.eval()
    return module


def frozen_paths(module: nn.Module) -> frozenset[str]:
    """Return the paths, in its state dict, of an adapted network's tensors that never change."""
    paths = {
        path for path, p in module.named_parameters(remove_duplicate=False) if not p.requires_grad
    }
    for name, part in module.named_modules(remove_duplicate=False):
        if hasattr(type(part), _IS_KEPT):
            paths |= {f"{name}.{path}" for path, _ in part.named_buffers(recurse=False)}
    return frozenset(paths & module.state_dict().keys())


@cache
def _kept(cls: type[nn.Module]) -> Any:
    """Return the class of a normalisation that goes by its statistics also while others train."""

    def train(self: nn.Module, mode: bool = True) -> nn.Module:
        return cls.train(self, False)

    body = {"train": train, "__module__": cls.__module__, _IS_KEPT: True}
    return type(f"Kept{cls.__name__}", (cls,), body)


def _matches(name: str, patterns: object) -> bool:
    if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
        raise HeadMismatch(
            f"what trains beside an adapter are patterns, not {show(patterns)}",
            hint='Give a list of paths, such as ["classifier"].',
        )
    return any(fnmatchcase(name, one) for one in patterns)
