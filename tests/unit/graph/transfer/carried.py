"""Transfers between modules whose layers are paired by their paths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.op_contraction import skeleton_of
from mmdb.graph.ops.skeleton import LayerSkeleton
from mmdb.graph.transfer import TensorTransfer, transfer


def rows(count: int = 2) -> Tensor:
    """Return random rows of six numbers."""
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, 6, generator=generator, dtype=torch.float64)


def images(count: int = 2, size: int = 8) -> Tensor:
    """Return random images."""
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, 3, size, size, generator=generator, dtype=torch.float64)


def vectors(count: int = 2, tokens: int = 5) -> Tensor:
    """Return random sequences of vectors of four numbers."""
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, tokens, 4, generator=generator, dtype=torch.float64)


def tokens(count: int = 2, length: int = 6) -> Tensor:
    """Return random tokens below 11."""
    return torch.randint(11, (count, length), generator=torch.Generator().manual_seed(7))


def trained(module: nn.Module, seed: int = 0) -> nn.Module:
    """Return the module in float64, evaluating, with numbers as a trained one may have."""
    generator = torch.Generator().manual_seed(seed)
    module = module.double().eval()
    for name, tensor in module.state_dict().items():
        if not tensor.is_floating_point():
            tensor.fill_(17)
        elif name.endswith("running_var"):
            tensor.uniform_(0.5, 2.0, generator=generator)
        elif tensor.ndim < 2 and name.endswith("weight"):
            tensor.uniform_(0.5, 1.5, generator=generator)
        elif tensor.ndim < 2:
            tensor.normal_(0.0, 0.3, generator=generator)
        else:
            spread = max(1, tensor[0].numel()) ** -0.5
            tensor.normal_(0.0, spread, generator=generator)
    return module


def paired(
    child: LayerSkeleton, parent: LayerSkeleton, names: Mapping[str, str] | None = None
) -> list[tuple[int, int]]:
    """Return layers with tensors of the same path and kind; `names` gives the parent's path."""
    waiting: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for layer in parent.layers:
        if layer.tensors:
            waiting[layer.kind, layer.path].append(layer.ordinal)
    found = []
    for layer in child.layers:
        path = layer.path if names is None else names.get(layer.path, layer.path)
        if layer.tensors and waiting[layer.kind, path]:
            found.append((layer.ordinal, waiting[layer.kind, path].pop(0)))
    return found


def carry(
    child: nn.Module,
    parent: nn.Module,
    x: Tensor,
    *,
    names: Mapping[str, str] | None = None,
    child_x: Tensor | None = None,
    **options: Any,
) -> TensorTransfer:
    """Transfer from parent to child, and load the result into the child."""
    flows = capture(child, (x if child_x is None else child_x,)), capture(parent, (x,))
    outlines = skeleton_of(flows[0]), skeleton_of(flows[1])
    pairs = paired(*outlines, names)
    fresh = child.state_dict()
    made = transfer(*flows, pairs, *outlines, parent.state_dict(), fresh, **options)
    assert list(made.tensors) == list(fresh)
    for path, tensor in made.tensors.items():
        assert tensor.shape == fresh[path].shape and tensor.dtype == fresh[path].dtype
    child.load_state_dict(dict(made.tensors))
    return made


def relative_error(child: nn.Module, parent: nn.Module, x: Tensor) -> float:
    """Return the greatest difference of outputs, of their root mean square."""
    with torch.no_grad():
        a, b = child.eval()(x), parent.eval()(x)
    return float((a - b).abs().max() / b.square().mean().sqrt())


def error_of(make: Callable[[], nn.Module], parent: nn.Module, x: Tensor, **options: Any) -> float:
    """Return the error of a child that is made, after a transfer that says it is exact."""
    child = trained(make(), seed=1)
    made = carry(child, parent, x, **options)
    assert made.exact, made.reasons
    return relative_error(child, parent, x)
