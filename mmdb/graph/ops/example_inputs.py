"""Inputs that a module's forward may take, found without running it.

Some are read off a transformers config; nothing of transformers is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from math import prod
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from mmdb.graph.ops.known_values import Inputs
from mmdb.graph.trace.stand_ins import required_arguments

_BATCHES = (2, 1)  # some classifiers take one text at a time
_TOKENS, _SAMPLES, _FRAMES, _SIDE = 16, 16_000, 128, 224
_GRID = (1, 4, 4)  # time, height and width of an image, in patches
_MOST_CONFIGS = 8
_MOST_SHAPES = 4
_FIRST_TOKEN = 5  # below it are tokens of special meaning
_Shape: TypeAlias = tuple[int, ...]
#: Names of the main input that need another one beside them.
_BESIDE = ("decoder_input_ids", "bbox", "image")
_MODALITIES = ("pixel_values", "input_ids", "input_features", "input_values")


def inputs_of_config(module: nn.Module) -> Iterator[Inputs]:
    """Yield inputs for a model with a transformers config, nothing for others.

    First the main input (`main_input_name`) with what must be given beside it, in the shapes that
    models give it, then the inputs of the other modalities too, then one example at a time.
    """
    config = getattr(module, "config", None)
    if getattr(config, "model_type", None) is None:
        return
    names = [one.name for one in _parameters(module)]
    main = getattr(module, "main_input_name", "input_ids")
    mains = [main] if isinstance(main, str) else list(main)
    taken = [one for one in mains if one in names] or [one for one in names if one in _MAKERS][:1]
    beside = [one for one in (*_required(module), *_BESIDE) if one in names and one not in taken]
    others = [one for one in _MODALITIES if one in names and one not in (*taken, *beside)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in _parameters(module))
    has_cache = "use_cache" in names or (takes_any and hasattr(config, "use_cache"))
    options = {"use_cache": False} if has_cache else {}
    sizes = _ConfigSizes(module, config, names)
    for batch in _BATCHES:
        for asked in ([*taken, *beside], [*taken, *beside, *others]):
            known = [name for name in asked if name in _MAKERS]
            makes = [_MAKERS[name](sizes) for name in known]
            for shapes in islice(product(*makes), _MOST_SHAPES):
                found = {n: make(batch) for n, make in zip(known, shapes, strict=True)}
                yield Inputs(kwargs={**found, **options})
            if not others:
                break


def _parameters(module: nn.Module) -> list[inspect.Parameter]:
    return list(inspect.signature(module.forward).parameters.values())


def _required(module: nn.Module) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = _parameters(module)
    return [one.name for one in found if one.default is one.empty and one.kind not in kinds]


class _ConfigSizes:
    """Numbers of a config, and of the configs in it.

    Attributes:
        names: of the forward's arguments.
    """

    def __init__(self, module: nn.Module, config: Any, names: Sequence[str]) -> None:
        self.names = names
        self._module, self._configs = module, [config]
        for one in self._configs[:_MOST_CONFIGS]:
            self._configs += [c for c in vars(one).values() if hasattr(c, "model_type")]

    def find(self, *names: str, default: Any = None, within: str = "") -> Any:
        """Return the first of these attributes, those of configs named `within` first."""
        ordered = sorted(self._configs, key=lambda one: within not in type(one).__name__)
        for config in ordered:
            for name in names:
                value = getattr(config, name, None)
                if value is not None:
                    return value
        return default

    def number(self, *names: str, default: int, within: str = "") -> int:
        """Return the first that is a number."""
        value = self.find(*names, default=default, within=within)
        while isinstance(value, list | tuple) and value:
            value = value[0]
        return value if isinstance(value, int) else default

    @property
    def image(self) -> _Shape:
        """Channels, height and width."""
        channels = self.number("num_channels", "in_channels", "in_chans", default=3, within="Vis")
        side = self.find("image_size", "img_size", "input_size", default=_SIDE, within="Vis")
        if isinstance(side, Mapping):
            side = [side.get("height", _SIDE), side.get("width", _SIDE)]
        sides = list(side) if isinstance(side, list | tuple) else [side, side]
        return channels, *(int(one) for one in sides[-2:])

    @property
    def own_side(self) -> int:
        """The side that a part of the module was made for."""
        for part in self._module.modules():
            size = getattr(part, "img_size", None)
            if isinstance(size, tuple | list) and size:
                return int(size[0])
        return _SIDE

    @property
    def patch(self) -> _Shape:
        """Elements of a patch as a row."""
        channels = self.number("in_channels", "in_chans", "num_channels", default=3)
        side = self.number("patch_size", "spatial_patch_size", default=14)
        return (channels * self.number("temporal_patch_size", default=1) * side * side,)


_Make: TypeAlias = Callable[[int], Tensor]


def _floats(*shapes: _Shape) -> list[_Make]:
    def of(shape: _Shape) -> _Make:
        return lambda batch: torch.empty((batch, *shape), device="meta")

    return [of(shape) for shape in shapes]


def _tokens(sizes: _ConfigSizes) -> list[_Make]:
    vocabulary = sizes.number("vocab_size", default=32, within="Text")
    end = sizes.number("eos_token_id", default=vocabulary - 1, within="Text")

    def make(batch: int) -> Tensor:
        ids = [min(_FIRST_TOKEN + i, vocabulary - 1) for i in range(_TOKENS - 1)]
        return torch.tensor([[*ids, min(max(end, 0), vocabulary - 1)]]).repeat(batch, 1)

    return [make]


def _images(sizes: _ConfigSizes) -> list[_Make]:
    if "grid_thw" in sizes.names:
        return _rows(sizes)
    if "spatial_shapes" in sizes.names:
        return _floats((prod(_GRID), *sizes.patch))
    image = sizes.image
    frames = sizes.find("num_frames")
    shapes = [image, *((image[0], side, side) for side in (sizes.own_side, _SIDE)), (1, *image)]
    found = _floats(*dict.fromkeys(shapes))
    return [*_floats((frames, *image)), *found] if isinstance(frames, int) else found


def _videos(sizes: _ConfigSizes) -> list[_Make]:
    frames = sizes.number("num_frames", "frames_per_clip", default=8)
    image, side = sizes.image, sizes.own_side
    return _floats((frames, *image), (frames, image[0], side, side))


def _audio(sizes: _ConfigSizes) -> list[_Make]:
    channels = sizes.find("audio_channels")
    bins, length = sizes.find("num_mel_bins"), sizes.find("max_length")
    found = _floats((_SAMPLES,), (1, _SAMPLES))
    if isinstance(channels, int):
        found = [*_floats((channels, _SAMPLES)), *found]
    if isinstance(bins, int):
        frames = length if isinstance(length, int) and length > _FRAMES else _FRAMES
        found = [*_floats((frames, bins)), *found]
    return found


def _features(sizes: _ConfigSizes) -> list[_Make]:
    bins = sizes.number(
        "num_mel_bins", "feature_size", "feature_projection_input_dim", "input_feat_per_channel",
        "input_dim", default=80,
    )  # fmt: skip
    positions = sizes.number("max_source_positions", default=_FRAMES // 2)
    return _floats((bins, 2 * positions), (_FRAMES, bins), (1, 1024, bins))


def _series(sizes: _ConfigSizes) -> list[_Make]:
    lags = sizes.find("lags_sequence", default=[0])
    length = sizes.number("context_length", default=32) + max(lags)
    channels = sizes.number("num_input_channels", "input_size", default=1)
    return _floats((length, channels), (length,))


def _boxes(sizes: _ConfigSizes) -> list[_Make]:
    return [lambda batch: torch.zeros((batch, _TOKENS, 4), dtype=torch.int64)]


def _rows(sizes: _ConfigSizes) -> list[_Make]:
    count = prod(_GRID)
    return [lambda batch: torch.empty((batch * count, *sizes.patch), device="meta")]


def _grid(sizes: _ConfigSizes) -> list[_Make]:
    return [lambda batch: torch.tensor([_GRID]).repeat(batch, 1)]


def _ints(*shape: int, value: int = 0) -> list[_Make]:
    return [lambda batch: torch.full((batch, *shape), value, dtype=torch.int64)]


def _latents(sizes: _ConfigSizes) -> list[_Make]:
    width = sizes.number("hidden_size", "d_model", default=512)
    return _floats((width, _TOKENS), (_TOKENS, width))


def _hidden(sizes: _ConfigSizes) -> list[_Make]:
    if "grid_thw" in sizes.names:
        return _rows(sizes)
    width = sizes.number("d_model", "hidden_size", default=768)
    return _floats((_TOKENS, width))


_MAKERS: Mapping[str, Callable[[_ConfigSizes], list[_Make]]] = {
    "input_ids": _tokens,
    "decoder_input_ids": _tokens,
    "pixel_values": _images,
    "image": _images,
    "pixel_values_videos": _videos,
    "input_values": _audio,
    "input_features": _features,
    "past_values": _series,
    "bbox": _boxes,
    "grid_thw": _grid,
    "spatial_shapes": lambda _: [lambda batch: torch.tensor([_GRID[1:]]).repeat(batch, 1)],
    "pixel_attention_mask": lambda _: _ints(prod(_GRID), value=1),
    "task_inputs": lambda sizes: _ints(sizes.number("task_seq_len", default=77)),
    "past_values_padding": lambda sizes: _ints(sizes.number("context_length", default=32)),
    "freq": lambda _: _ints(1),
    "latents": _latents,
    "inputs": _hidden,
    "hidden_states": _hidden,
    "inputs_embeds": _hidden,
}


BATCH = 2  # above 1, so that a batch is told from a size that broadcasts
TOKENS = 16  # the length of sequences
_MOST_LAYERS = 3  # kinds of first layers that are tried


def candidates(module: nn.Module, input_shape: Sequence[int] | None = None) -> Iterator[Inputs]:
    """Yield inputs that the module may take, a batch of 2, the most likely first.

    In this order: the shape that is given; a transformers model's config; the size that a model of
    timm (`pretrained_cfg`) or pytorchcv (`in_size`) was made for; usual sizes for the first layer.
    Floats are on the meta device; tokens are ones.

    Args:
        input_shape: of one input without the batch, if it is known.
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
    positional, names = required_arguments(module)

    def one() -> Tensor:
        if tokens:
            return torch.ones((BATCH, *shape), dtype=dtype)
        return torch.empty((BATCH, *shape), dtype=dtype, device="meta")

    return Inputs(tuple(one() for _ in positional), {name: one() for name in names})


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
