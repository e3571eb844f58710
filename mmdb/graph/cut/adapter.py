"""Adapters: a few numbers that change a frozen layer, and can be folded into it afterwards."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn

from mmdb.arguments import is_number, is_whole
from mmdb.errors import HeadMismatch
from mmdb.graph.cut.cut import rest_of
from mmdb.graph.cut.forward_steps import TracedInputs
from mmdb.graph.cut.segment import Segment
from mmdb.graph.spec.parse import ADAPTER_TENSORS
from mmdb.messages import show

_A, _B = ADAPTER_TENSORS
_SCALE = "_adapter_scale"
_MOST_RANK = 4096
_HINTED = 12
_ADAPTER = 'Such as {"name": "lora", "rank": 8, "alpha": 16, "layers": ["layer4.*"]}.'


def adapt(
    module: nn.Module,
    adapter: Mapping[str, Any],
    after: str | None = None,
    *,
    apart: bool = False,
    inputs: TracedInputs = None,
) -> tuple[str, ...]:
    """Put an adapter into Linear and Conv2d layers, in place; return their paths, in order.

    So it does into the Conv1D of transformers, a Linear whose weight is (in, out).

    A layer's `weight` becomes weight + alpha / rank * B A, also for code that reads the weight
    without calling the layer. Its own weight and bias stay where they are and are not trained;
    `adapter_a` and `adapter_b` are, and stand beside them. B is zero, so that at first nothing
    changes; A is drawn from torch's current generator.

    Args:
        module: what comes after a cut, or a whole network.
        adapter: {"name": "lora", "rank": 8, "alpha": 16, "layers": ["layer4.*"]}; layers are
            glob patterns of paths, by default all.
        after: in a whole network, the cut before which nothing is adapted.
        apart: rows pass the two matrices of such a Linear by themselves, beside its weight: that
            takes fewer operations than to learn through the sum, and equals it but for rounding.
    Raises:
        HeadMismatch: the adapter is not well formed, or no layer has such a path.
        CutNotFound, NotACut
    Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1.
    """
    rank, alpha, _ = _read(adapter)
    paths = chosen(module, adapter, after, inputs=inputs)
    parts = {id(part): part for path in paths for part in [module.get_submodule(path)]}
    for part in parts.values():  # a layer with two paths is one
        _put_in(part, rank, alpha / rank, apart=apart)
    return paths


def chosen(
    module: nn.Module,
    adapter: Mapping[str, Any],
    after: str | None = None,
    *,
    inputs: TracedInputs = None,
) -> tuple[str, ...]:
    """Return the paths of the layers that `adapt` would put an adapter into, in order.

    Raises:
        HeadMismatch, CutNotFound, NotACut: as `adapt`.
    """
    _, _, patterns = _read(adapter)
    there = adaptable(module, after, inputs=inputs)
    found = tuple(path for path in there if any(fnmatchcase(path, one) for one in patterns))
    if not found:
        known = ", ".join(there[:_HINTED])
        raise HeadMismatch(
            f"no layer for the adapter is named {show(patterns)}",
            hint=f"Layers that can be adapted: {known}." if known else "There is none to adapt.",
        )
    return found


def adaptable(
    module: nn.Module, after: str | None = None, *, inputs: TracedInputs = None
) -> tuple[str, ...]:
    """Return the paths of the layers that an adapter can be put into, in order.

    Args:
        after: a cut of the module, before which there are none; in what `rest_of` returned all
            are after it.
    Raises:
        CutNotFound, NotACut
    """
    kinds = (nn.Linear, nn.Conv2d, *_transposed())
    paths = [p for p, part in module.named_modules() if isinstance(part, kinds)]
    if after is None or isinstance(module, Segment):
        return tuple(paths)
    rest = dict(rest_of(module, after, inputs=inputs).named_modules())
    return tuple(path for path in paths if path in rest)


def merge(module: nn.Module) -> nn.Module:
    """Fold the adapters into their layers' weights, and return the module.

    The weights are new tensors: those that were adapted may be shared. The paths in the state
    dict are those before `adapt`, and the module gives the same bits as with its adapters.
    """
    for part in list(module.modules()):
        if _SCALE in vars(part):
            weight = cast("Tensor", part.weight).detach()
            del part._parameters[_A], part._parameters[_B], part.__dict__[_SCALE]
            part.__class__ = type(part).__bases__[0]
            part._parameters["weight"] = nn.Parameter(weight)
    return module


def freeze(module: nn.Module, paths: Iterable[str]) -> None:
    """Let no gradient reach the parameters at these paths, or in the modules at them."""
    for path in paths:
        part, _, name = path.rpartition(".")
        if _has(module, path):
            module.get_submodule(path).requires_grad_(False)
        elif _has(module, part) or not part:
            tensor = getattr(module.get_submodule(part), name)
            if isinstance(tensor, nn.Parameter):
                tensor.requires_grad_(False)


def _read(adapter: Mapping[str, Any]) -> tuple[int, float, list[str]]:
    """Return rank, alpha and the patterns of an adapter's layers."""
    name, rank, alpha = adapter.get("name"), adapter.get("rank", 8), adapter.get("alpha", 16)
    if name != "lora":
        raise HeadMismatch(f"there is no adapter {show(name)}", hint="The adapter is 'lora'.")
    if not is_whole(rank, 1, _MOST_RANK):
        raise HeadMismatch(
            f"an adapter's rank is 1 to {_MOST_RANK}, not {show(rank)}", hint=_ADAPTER
        )
    if not is_number(alpha, 0) or alpha == 0:
        raise HeadMismatch(
            f"an adapter's alpha is a positive number, not {show(alpha)}", hint=_ADAPTER
        )
    layers = adapter.get("layers")
    patterns = ["*"] if layers is None else [layers] if isinstance(layers, str) else layers
    if not isinstance(patterns, list | tuple) or not all(isinstance(p, str) for p in patterns):
        raise HeadMismatch(
            f"an adapter's layers are patterns of paths, not {show(layers)}", hint=_ADAPTER
        )
    return rank, float(alpha), list(patterns)


def _transposed() -> tuple[type[nn.Module], ...]:
    """Return the class whose weight is (in, out), if anyone has loaded it."""
    library: Any = sys.modules.get("transformers.pytorch_utils")
    return () if library is None else (library.Conv1D,)


def _put_in(part: nn.Module, rank: int, scale: float, *, apart: bool) -> None:
    weight = cast("Tensor", part.weight)
    is_transposed = isinstance(part, _transposed())
    rows, columns = weight.shape[0], weight[0].numel()
    if is_transposed:
        rows, columns = columns, rows
    a = torch.empty(rank, columns)  # drawn on the CPU, so that it is the same on every device
    nn.init.kaiming_uniform_(a, a=math.sqrt(5))
    a = a.to(weight.device, weight.dtype)
    part.requires_grad_(False)
    part.register_parameter(_A, nn.Parameter(a))
    part.register_parameter(_B, nn.Parameter(weight.new_zeros(rows, rank)))
    vars(part)[_SCALE] = scale
    cls: Any = type(part)
    plain = {nn.Linear.forward, *(one.forward for one in _transposed())}
    part.__class__ = _adapted(cls, apart and cls.forward in plain, is_transposed)


@lru_cache(maxsize=64)
def _adapted(cls: type[nn.Module], apart: bool, is_transposed: bool) -> Any:
    """Return the class of a layer whose weight is the adapted one, however it is read."""

    def weight(part: nn.Module) -> Tensor:
        base, a, b, scale = _parts(part)
        low = b @ a
        return base + scale * (low.t() if is_transposed else low.view_as(base))

    def forward(part: nn.Module, x: Tensor) -> Tensor:
        (base, a, b, scale), linear = _parts(part), nn.functional.linear
        own = linear(x, base.t() if is_transposed else base, part._parameters["bias"])
        return own + scale * linear(linear(x, a), b)

    body = {"weight": property(weight), "__module__": cls.__module__}
    return type(f"Adapted{cls.__name__}", (cls,), body | ({"forward": forward} if apart else {}))


def _parts(part: nn.Module) -> tuple[Tensor, Tensor, Tensor, float]:
    """Return a layer's own weight, its two matrices, and what their product counts."""
    base, a, b = (cast("Tensor", part._parameters[name]) for name in ("weight", _A, _B))
    return base, a, b, vars(part)[_SCALE]


def _has(module: nn.Module, path: str) -> bool:
    try:
        return module.get_submodule(path) is not module
    except AttributeError:
        return False
