"""Factories of networks by name, and the kinds of values that their arguments may have.

A kind returns its value, or raises ValueError that says what fits. Arguments come from JSON that
any user may write, so nothing here trusts a type, a sign or a size.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from mmdb.arguments import is_number, is_whole
from mmdb.errors import FactoryFailed
from mmdb.graph.tabular import ColumnInput, Columns, Scaled, check_columns, tabular
from mmdb.messages import show

Kind = Callable[[object], object]

MAX_WHOLE = 2**31 - 1  # sizes above this overflow the kernels' 32-bit indices


def whole(least: int, most: int = MAX_WHOLE) -> Kind:
    """Return the kind of whole numbers from `least` to `most`."""

    def check(value: object) -> object:
        if not is_whole(value, least, most):
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return check


def real(least: float, below: float = math.inf) -> Kind:
    """Return the kind of numbers in [least, below)."""

    def check(value: object) -> object:
        if not is_number(value, least) or value >= below:
            raise ValueError(f"must be a number from {least:g} to below {below:g}")
        return value

    return check


def flag(value: object) -> object:
    """Return `value` if it is true or false."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def one_of(*choices: str) -> Kind:
    """Return the kind of the strings `choices`."""

    def check(value: object) -> object:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return check


def pair(kind: Kind) -> Kind:
    """Return the kind of one `kind`, or of a list of two (height, width)."""

    def check(value: object) -> object:
        if not isinstance(value, list | tuple):
            return kind(value)
        if len(value) != 2:
            raise ValueError("must be one number or a list of two")
        return tuple(kind(item) for item in value)

    return check


def several(kind: Kind) -> Kind:
    """Return the kind of one `kind`, or of a list of 1 to 8 of them; the value is a tuple."""

    def check(value: object) -> object:
        items = value if isinstance(value, list | tuple) else [value]
        if not 1 <= len(items) <= 8:
            raise ValueError("must be a list of 1 to 8 numbers")
        return tuple(kind(item) for item in items)

    return check


def either(*kinds: Kind) -> Kind:
    """Return the kind of what any of `kinds` takes."""

    def check(value: object) -> object:
        reasons = []
        for kind in kinds:
            try:
                return kind(value)
            except ValueError as exc:
                reasons.append(str(exc))
        raise ValueError(", or ".join(reasons))

    return check


size = whole(1)
count = whole(0)
dim = whole(-8, 8)
shape = several(either(size, whole(-1, -1)))
probability = real(0.0, 1.0)
positive = real(1e-30, 1e30)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


def linear(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    columns: Columns | None = None,
    scale: Sequence[float] | None = None,
) -> nn.Module:
    """Return one linear layer over the flattened input.

    Args:
        columns, scale: as of `tabular`; a run fills them in from its dataset.
    """
    flatten, width = _flattened(input_shape, columns)
    parts: dict[str, nn.Module] = {"flatten": flatten, "head": nn.Linear(width, outputs)}
    if scale is not None:
        parts["scale"] = Scaled(scale)
    return nn.Sequential(OrderedDict(parts))


def mlp(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    hidden: int | Sequence[int] = 64,
    depth: int | None = None,
    dropout: float = 0.0,
    activation: str = "relu",
    batch_norm: bool = False,
    columns: Columns | None = None,
    scale: Sequence[float] | None = None,
) -> nn.Module:
    """Return a multi-layer perceptron over the flattened input.

    Args:
        columns, scale: as of `tabular`; a run fills them in from its dataset.
        hidden: units of each hidden layer, or one number for all of them.
        depth: number of hidden layers; 1 by default, the length of `hidden` if that is a list.
        dropout: probability in [0, 1), after each activation.
        activation: a key of ACTIVATIONS.
    Raises:
        FactoryFailed: an argument is out of range, or `depth` contradicts `hidden`.
    """
    _check("dropout", dropout, probability)
    _check("activation", activation, one_of(*ACTIVATIONS))
    _check("batch_norm", batch_norm, flag)
    flatten, width = _flattened(input_shape, columns)
    widths = [width, *_hidden_widths(hidden, depth)]
    parts: list[nn.Module] = [flatten]
    for before, after in pairwise(widths):
        parts.append(nn.Linear(before, after))
        if batch_norm:
            parts.append(nn.BatchNorm1d(after))
        parts += [ACTIVATIONS[activation](), *_dropout(dropout)]
    parts.append(nn.Linear(widths[-1], outputs))
    return nn.Sequential(*parts, *([] if scale is None else [Scaled(scale)]))


def _flattened(input_shape: tuple[int, ...], columns: Columns | None) -> tuple[nn.Module, int]:
    """Return what makes one row of numbers of an input, and how many they are."""
    if columns is None:
        return nn.Flatten(), math.prod(input_shape)
    check_columns(columns, math.prod(input_shape))
    found = ColumnInput(columns)
    return found, found.width


def cnn(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    width: int = 32,
    depth: int = 2,
    dropout: float = 0.0,
) -> nn.Module:
    """Return a small convolutional network; each convolution after the first halves the sides.

    Args:
        input_shape: (C, H, W) or (H, W).
        width: channels of the first convolution, doubled by each that follows.
        depth: number of 3x3 convolutions, 1 to 16.
        dropout: probability in [0, 1), before the last layer.
    Raises:
        FactoryFailed: the input is not an image, or an argument is out of range.
    Source: Springenberg et al. 2015, "Striving for Simplicity", strides in place of pooling.
    """
    channels, height, side = _image_shape("cnn", input_shape)
    _check("width", width, size)
    _check("depth", depth, whole(1, 16))
    _check("dropout", dropout, probability)
    parts = _to_image(input_shape)
    for level in range(depth):
        stride = 1 if level == 0 else 2
        parts += [nn.Conv2d(channels, width << level, 3, stride, padding=1), nn.ReLU()]
        channels = width << level
        height, side = -(-height // stride), -(-side // stride)
    head = nn.Linear(channels * height * side, outputs)
    return nn.Sequential(*parts, nn.Flatten(), *_dropout(dropout), head)


def resnet(
    input_shape: tuple[int, ...], outputs: int, *, width: int = 16, blocks: int = 1
) -> nn.Module:
    """Return a small residual network of three stages with BatchNorm.

    Args:
        input_shape: (C, H, W) or (H, W).
        width: channels of the first stage; the stages have width, 2 width, 4 width.
        blocks: residual blocks in each stage; 6 * blocks + 2 layers in all.
    Raises:
        FactoryFailed: the input is not an image, or an argument is out of range.
    Source: He et al. 2016, "Deep Residual Learning", section 4.2, shortcuts B.
    """
    channels = _image_shape("resnet", input_shape)[0]
    _check("width", width, size)
    _check("blocks", blocks, whole(1, 100))
    parts = [*_to_image(input_shape), nn.Conv2d(channels, width, 3, padding=1, bias=False)]
    parts += [nn.BatchNorm2d(width), nn.ReLU()]
    before = width
    for stage in range(3):
        for block in range(blocks):
            after = width << stage
            parts.append(_Residual(before, after, stride=2 if stage and not block else 1))
            before = after
    return nn.Sequential(*parts, _SpatialMean(), nn.Linear(before, outputs))


def transformer(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    d_model: int = 64,
    heads: int = 4,
    layers: int = 2,
    dropout: float = 0.0,
) -> nn.Module:
    """Return a small pre-norm transformer encoder, averaged over its tokens.

    Args:
        input_shape: (T, D), T tokens of D numbers; or (F,), each feature a token of its own.
        d_model: width of a token; a multiple of `heads`.
        layers: number of encoder layers; the feed-forward width is 4 d_model.
        dropout: probability in [0, 1), inside the encoder layers.
    Raises:
        FactoryFailed: the input has three or more dimensions, or an argument is out of range.
    """
    if len(input_shape) > 2:
        raise FactoryFailed(
            f"transformer reads a sequence (T, D) or flat features, not shape {input_shape}",
            hint="Set the dataset's options.shape to [T, D], or use cnn or resnet.",
        )
    for name, value in (("d_model", d_model), ("heads", heads)):
        _check(name, value, size)
    _check("layers", layers, whole(1, 100))
    _check("dropout", dropout, probability)
    if d_model % heads:
        raise FactoryFailed(
            f"d_model {d_model} is not a multiple of heads {heads}",
            hint="Choose d_model = heads x the width of one head.",
        )
    tokens, token_width = (*input_shape, 1)[:2]
    parts: list[nn.Module] = [nn.Unflatten(1, (tokens, 1))] if len(input_shape) == 1 else []
    parts += [nn.Linear(token_width, d_model), Position(tokens, d_model)]
    parts += [_encoder_layer(d_model, heads, dropout) for _ in range(layers)]
    return nn.Sequential(*parts, nn.LayerNorm(d_model), _TokenMean(), nn.Linear(d_model, outputs))


SHIPPED: dict[str, str] = {
    factory.__name__: f"{__name__}:{factory.__name__}"
    for factory in (linear, mlp, cnn, resnet, transformer, tabular)
}


class Position(nn.Module):
    """Adds a learned vector to each position: (n, T, D) -> (n, T, D)."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(tokens, width))
        nn.init.normal_(self.weight, std=0.02)  # as in BERT and ViT

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight


class _Residual(nn.Module):
    """Two 3x3 convolutions added to their input.

    (n, before, H, W) -> (n, after, ceil(H / stride), ceil(W / stride)).
    """

    def __init__(self, before: int, after: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            projection = nn.Conv2d(before, after, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y)) + self.shortcut(x)
        return torch.relu(y)


class _SpatialMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))  # (n, C, H, W) -> (n, C)


class _TokenMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=1)  # (n, T, D) -> (n, D)


def _encoder_layer(d_model: int, heads: int, dropout: float) -> nn.Module:
    return nn.TransformerEncoderLayer(
        d_model, heads, 4 * d_model, dropout, "gelu", batch_first=True, norm_first=True
    )


def _dropout(probability: float) -> list[nn.Module]:
    return [nn.Dropout(probability)] if probability else []


def _hidden_widths(hidden: int | Sequence[int], depth: int | None) -> list[int]:
    if depth is not None:
        _check("depth", depth, whole(1, 1000))
    widths = list(hidden) if isinstance(hidden, Sequence) else [hidden] * (depth or 1)
    for width in widths:
        _check("hidden", width, size)
    if not widths or len(widths) != (depth or len(widths)):
        raise FactoryFailed(
            f"hidden {show(hidden)} and depth {depth} contradict each other",
            hint="Give hidden as one number with depth, or as a list without depth.",
        )
    return widths


def _image_shape(factory: str, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return (C, H, W); an input (H, W) has one channel."""
    if len(input_shape) == 2:
        return (1, *input_shape)
    if len(input_shape) == 3:
        return input_shape
    raise FactoryFailed(
        f"{factory} reads images, (C, H, W) or (H, W), not an input of shape {input_shape}",
        hint="Create the dataset with options => "
        f"'{{\"shape\": {_likely_image(math.prod(input_shape))}}}', or use mlp or transformer.",
    )


def _likely_image(features: int) -> str:
    """Return a shape to suggest for `features` numbers: a square picture if they make one."""
    for channels in (1, 3, 4):
        side = math.isqrt(features // channels)
        if side > 1 and channels * side * side == features:
            return f"[{channels}, {side}, {side}]"
    return "[channels, height, width]"


def _to_image(input_shape: tuple[int, ...]) -> list[nn.Module]:
    return [nn.Unflatten(1, (1, input_shape[0]))] if len(input_shape) == 2 else []


def _check(name: str, value: object, kind: Kind) -> None:
    try:
        kind(value)
    except ValueError as exc:
        raise FactoryFailed(f"{name} {exc}, not {show(value)}") from exc
