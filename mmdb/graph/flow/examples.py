"""Inputs that a module's forward may take, found without running it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from mmdb.graph.flow.config_inputs import inputs_of_config
from mmdb.graph.flow.inputs import Inputs
from mmdb.graph.flow.untraceable import CannotTrace

BATCH = 2  # above 1, so that a batch is told from a size that broadcasts
TOKENS = 16  # the length of sequences
_Shape: TypeAlias = tuple[int, ...]
_MOST_LAYERS = 3  # kinds of first layers that are tried


def example_inputs(module: nn.Module, input_shape: Sequence[int] | None = None) -> Inputs:
    """Return the inputs that the module most likely takes, a batch of 2.

    Args:
        input_shape: of one input without the batch, if it is known.

    Raises:
        CannotTrace: nothing is known about them.
    """
    for inputs in candidates(module, input_shape):
        return inputs
    raise CannotTrace("no inputs are known for it; pass inputs, or the shape of its input")


def candidates(module: nn.Module, input_shape: Sequence[int] | None = None) -> Iterator[Inputs]:
    """Yield inputs, the most likely first.

    In this order: the shape that is given; a transformers model's config; the size that a model of
    timm (`pretrained_cfg`) or pytorchcv (`in_size`) was made for; usual sizes for the first layer.
    Floats are on the meta device; tokens are ones.
    """
    if input_shape is not None:
        takes_tokens = any(kind is _embedding for kind, _ in _first_layers(module))
        yield _inputs(module, tuple(input_shape), tokens=takes_tokens)
        return
    yield from inputs_of_config(module)
    for size in _library_sizes(module):
        yield _inputs(module, size)
    for kind, layer in _first_layers(module):
        for shape in kind(layer):
            yield _inputs(module, shape, tokens=kind is _embedding)


def _inputs(module: nn.Module, shape: _Shape, *, tokens: bool = False) -> Inputs:
    """Return a tensor of the shape for each argument that the forward must be given."""
    dtype = torch.int64 if tokens else torch.float32
    count, names = _required(module)

    def one() -> Tensor:
        if tokens:
            return torch.ones((BATCH, *shape), dtype=dtype)
        return torch.empty((BATCH, *shape), dtype=dtype, device="meta")

    return Inputs(tuple(one() for _ in range(count)), {name: one() for name in names})


def _required(module: nn.Module) -> tuple[int, list[str]]:
    """Return how many arguments the forward must be given by position, and the names of others."""
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):  # written in C
        return 1, []
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in by_position and one.default is one.empty]
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    return max(len(needed), 0 if named else 1), named


def _library_sizes(module: nn.Module) -> list[_Shape]:
    """Return the input's shapes as timm or pytorchcv keep them with the model."""
    for name in ("pretrained_cfg", "default_cfg"):
        config = getattr(module, name, None)
        size = config.get("input_size") if isinstance(config, Mapping) else None
        if size is not None:
            return [tuple(size)]
    size = getattr(module, "in_size", None)
    if not isinstance(size, tuple | list) or len(size) != 2:
        return []
    first = next((part for part in module.modules() if isinstance(part, nn.Conv2d)), None)
    channels = [getattr(module, "in_channels", 3), 3 if first is None else first.in_channels]
    if first is not None and first.in_channels == 1:
        channels.reverse()
    return [(number, *size) for number in dict.fromkeys(channels)]


# -- usual sizes for a first layer ---------------------------------------------------


def _embedding(layer: nn.Module) -> list[_Shape]:
    return [(TOKENS,), ()]


def _conv1d(layer: Any) -> list[_Shape]:
    return [(layer.in_channels, length) for length in (128, 1024, 16000)]


def _conv2d(layer: Any) -> list[_Shape]:
    sides = (28, 32, 224) if layer.in_channels == 1 else (224, 32, 64, 299, 96)
    return [(layer.in_channels, side, side) for side in sides]


def _conv3d(layer: Any) -> list[_Shape]:
    return [(layer.in_channels, *size) for size in ((16, 112, 112), (16, 32, 32), (8, 8, 8))]


def _transposed(layer: Any) -> list[_Shape]:
    space = len(layer.kernel_size)
    return [(layer.in_channels, *(side,) * space) for side in (1, 8, 4)]


def _linear(layer: Any) -> list[_Shape]:
    return [(layer.in_features,), (TOKENS, layer.in_features)]


def _recurrent(layer: Any) -> list[_Shape]:
    return [(TOKENS, layer.input_size), (layer.input_size,)]


def _attention(layer: Any) -> list[_Shape]:
    return [(TOKENS, layer.embed_dim)]


def _layer_norm(layer: Any) -> list[_Shape]:
    return [(TOKENS, *layer.normalized_shape), tuple(layer.normalized_shape)]


def _batch_norm(layer: Any) -> list[_Shape]:
    space = {nn.BatchNorm1d: 0, nn.BatchNorm2d: 2, nn.BatchNorm3d: 3}.get(type(layer), 2)
    return [(layer.num_features, *(side,) * space) for side in (32, 224)]


_Sizes: TypeAlias = Callable[[Any], list[_Shape]]
_KINDS: Mapping[type[nn.Module], _Sizes] = {
    nn.Embedding: _embedding,
    nn.EmbeddingBag: _embedding,
    nn.Conv1d: _conv1d,
    nn.Conv2d: _conv2d,
    nn.Conv3d: _conv3d,
    nn.modules.conv._ConvTransposeNd: _transposed,
    nn.Linear: _linear,
    nn.RNNBase: _recurrent,
    nn.RNNCellBase: _recurrent,
    nn.MultiheadAttention: _attention,
    nn.LayerNorm: _layer_norm,
    nn.modules.batchnorm._BatchNorm: _batch_norm,
}


def _first_layers(module: nn.Module) -> Iterator[tuple[_Sizes, nn.Module]]:
    """Yield the first layers of different kinds, in the order of the module tree."""
    seen: set[_Sizes] = set()
    for part in module.modules():
        kind = next((sizes for cls, sizes in _KINDS.items() if isinstance(part, cls)), None)
        if kind is not None and kind not in seen:
            seen.add(kind)
            yield kind, part
        if len(seen) == _MOST_LAYERS:
            return
