"""Networks of layers one after the other, and which of them can grow out of which."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from mmdb.graph.factories import ACTIVATIONS

#: Widths of layers, None for a pool.
Layers = Sequence[int | None]


def sequence(
    layers: Layers, *, norm: bool, bends: str, kernel: int | None = None, flat: bool = False
) -> nn.Sequential:
    """Return a perceptron over six numbers, or with a kernel a network for images of 8 x 8.

    Args:
        norm: each layer has a batch norm.
        bends: the name of its activation.
        flat: the head reads every place of the image, and not their mean.
    """
    parts: list[nn.Module] = []
    before, side = (6, 1) if kernel is None else (3, 8)
    for width in layers:
        if width is None:
            parts.append(nn.MaxPool2d(2))
            side //= 2
            continue
        if kernel is None:
            parts.append(nn.Linear(before, width, bias=not norm))
        else:
            parts.append(nn.Conv2d(before, width, kernel, padding=kernel // 2, bias=not norm))
        if norm:
            parts.append(nn.BatchNorm1d(width) if kernel is None else nn.BatchNorm2d(width))
        parts.append(ACTIVATIONS[bends]())
        before = width
    if kernel is not None:
        parts += [nn.Flatten()] if flat else [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(before * (side**2 if flat else 1), 5))


def grows_out_of(child: Layers, parent: Layers, *, is_idle: bool) -> bool:
    """Whether the child has all layers of the parent, as wide, and others that can hand on.

    Args:
        is_idle: an activation behind another one changes nothing, so that new layers may be.
    """
    kept: list[int | None] = [None]  # what is read once so many of the parent's layers are there
    for one in parent:
        kept.append(one or kept[-1])
    places = {0}
    for width in child:
        on = {
            at + 1
            for at in places
            if at < len(parent) and _holds(width, parent[at])
        }  # fmt: skip
        idle = {at for at in places if is_idle and width and (least := kept[at]) and width >= least}
        places = on | idle
    return len(parent) in places


def _holds(width: int | None, other: int | None) -> bool:
    return width == other if width is None or other is None else width >= other
