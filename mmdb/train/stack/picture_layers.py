"""Layers of pictures and series, of several networks at once: (members, channels, n, *space)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from mmdb.graph import factories
from mmdb.train.stack.flow import Flow, Form, Layer, Step, fill_rows
from mmdb.train.stack.layers import kept


def convolution(layer: Layer) -> Step:
    """Return the step of a convolution: a product of what each place sees.

    A grouped convolution's kernel is another for another number of groups, and so are its bits.
    """
    first = cast(nn.Conv1d | nn.Conv2d, layer.modules[0])
    layer.needs(first.groups == 1 and first.padding_mode == "zeros")
    size, stride, dilation = (
        _sides(numbers, 1) for numbers in (first.kernel_size, first.stride, first.dilation)
    )
    padding = _padding(layer, first, size, dilation)
    weight = layer.tensor("weight")
    bias = None if first.bias is None else layer.tensor("bias")

    def run(flow: Flow) -> Flow:
        x = flow.channels()
        members, channels, rows, *space = x.shape
        after = [
            (side + 2 * p - d * (k - 1) - 1) // s + 1
            for side, p, d, k, s in zip(
                _sides(space, 1), padding, dilation, size, stride, strict=True
            )
        ]
        places = after[0] * after[1]
        x = fill_rows(x.flatten(0, 1), places, layer.unit)
        pictures = x.reshape(1, -1, *_sides(space, 1))
        seen = functional.unfold(pictures, size, dilation, padding, stride)
        seen = seen.view(members, channels, x.shape[1], -1, places).transpose(2, 3)
        matrix = weight.flatten(2)
        seen = seen.reshape(members, matrix.shape[2], -1)
        # Of a width of 1 the product of one member's batch is computed otherwise.
        y = matrix * seen if matrix.shape[2] == 1 else torch.bmm(matrix, seen)
        if bias is not None:
            y = y + bias[:, : first.out_channels, None]
        y = y.view(members, -1, x.shape[1], *after[-len(space) :])
        return Flow(y[:, :, :rows], turned=True)

    return run


def _sides(numbers: Sequence[int], of_series: int) -> tuple[int, int]:
    """Return what is of the height and of the width; a series has a height of 1."""
    first, second = (of_series, *numbers)[-2:]
    return first, second


def _padding(
    layer: Layer, first: nn.Conv1d | nn.Conv2d, size: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int]:
    if not isinstance(first.padding, str):
        return _sides(first.padding, 0)
    if first.padding == "valid":
        return 0, 0
    more = [d * (k - 1) for d, k in zip(dilation, size, strict=True)]
    layer.needs(not any(one % 2 for one in more))  # else one side has more than the other
    return more[0] // 2, more[1] // 2


def batch_norm(layer: Layer) -> Step:
    """Return the step of batch norm: of each member's rows by themselves."""
    first = cast(nn.BatchNorm1d | nn.BatchNorm2d, layer.modules[0])
    layer.needs(first.track_running_stats)
    momentum, width = first.momentum, first.num_features
    count = layer.tensor("num_batches_tracked")
    mean, variance = (layer.tensor(f"running_{name}").view(-1) for name in ("mean", "var"))
    own = [layer.tensor(name) for name in ("weight", "bias")] if first.affine else []

    def run(flow: Flow) -> Flow:
        count.add_(1)
        share = float(1 / count[0]) if momentum is None else momentum
        x = flow.channels()
        # Each member's channels are channels.
        flat = x.reshape(1, x.shape[0] * x.shape[1], -1).contiguous()
        weight, bias = [one[:, :width].flatten().contiguous() for one in own] or (None, None)
        y = functional.batch_norm(
            flat, mean, variance, weight, bias, training=True, momentum=share, eps=first.eps
        )
        return Flow(y.view(x.shape), turned=True)

    return run


def group_norm(layer: Layer) -> Step:
    """Return the step of group norm: of each row by itself."""
    first = cast(nn.GroupNorm, layer.modules[0])
    own = [layer.tensor(name) for name in ("weight", "bias")] if first.affine else []

    def run(flow: Flow) -> Flow:
        x = flow.plain()
        flat = functional.group_norm(x.flatten(0, 1), first.num_groups, eps=first.eps)
        y = flat.unflatten(0, x.shape[:2]).transpose(1, 2)
        if own:
            weight, bias = (
                one[:, : first.num_channels].unflatten(1, (-1, *(1,) * (x.ndim - 2))) for one in own
            )
            y = y * weight + bias
        return Flow(y, turned=True)

    return run


def pooling(layer: Layer) -> Step:
    """Return the step of a layer that computes each channel of a row by itself."""
    (module, *_) = layer.modules

    def run(flow: Flow) -> Flow:
        x = flow.channels()
        return Flow(module(x.flatten(0, 1)).unflatten(0, x.shape[:2]), turned=True)

    return run


def channel_dropout(layer: Layer) -> Step:
    """Return the step of dropout of whole channels."""
    shares = [cast(nn.Dropout2d, module).p for module in layer.modules]

    def run(flow: Flow) -> Flow:
        x = flow.channels()
        mask = kept(layer, shares, x.shape[:3]) if any(shares) else torch.ones(1, 1, 1)
        return Flow(x * mask[..., None, None], turned=True)

    return run


def residual(layer: Layer) -> Step:
    """Return the step of two convolutions added to their input."""
    names = ("conv1", "norm1", "conv2", "norm2", "shortcut")
    conv1, norm1, conv2, norm2, shortcut = (layer.child(name).step() for name in names)

    def run(flow: Flow) -> Flow:
        y = norm1(conv1(flow))
        y = norm2(conv2(Flow(torch.relu(y.x), turned=True)))
        return Flow(torch.relu(y.x + shortcut(flow).channels()), turned=True)

    return run


def spatial_mean(layer: Layer) -> Step:
    """Return the step of a mean over all places."""
    return lambda flow: Flow(flow.channels().flatten(3).mean(3), turned=True)


FORMS: dict[type[nn.Module], Form] = {
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.GroupNorm: group_norm,
    nn.MaxPool1d: pooling,
    nn.MaxPool2d: pooling,
    nn.AvgPool1d: pooling,
    nn.AvgPool2d: pooling,
    nn.AdaptiveAvgPool1d: pooling,
    nn.AdaptiveAvgPool2d: pooling,
    nn.Dropout2d: channel_dropout,
    factories._Residual: residual,
    factories._SpatialMean: spatial_mean,
}
