"""Outlines of the well-known families of networks, of any depth and width, and changed copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod

import numpy as np

from mmdb.graph.ops.skeleton import ADD, CONCAT, MODEL_INPUT, MULTIPLY, LayerSkeleton, SkeletonLayer

LEAST_LAYERS, MOST_LAYERS = 40, 200


class Drawing:
    """An outline in the making: each method adds a layer and returns its ordinal."""

    def __init__(self) -> None:
        self._layers: list[SkeletonLayer] = []
        self._inputs: list[tuple[int, ...]] = []

    @property
    def outline(self) -> LayerSkeleton:
        """What has been added so far."""
        return LayerSkeleton(layers=tuple(self._layers), inputs=tuple(self._inputs))

    def layer(
        self, kind: str, shape: tuple[int, ...], *inputs: int, extra: int = 0, groups: int = 1
    ) -> int:
        """Add a layer whose weight has a shape; `extra` counts its other parameters."""
        path = f"layer{len(self._layers)}"
        self._layers.append(
            SkeletonLayer(
                ordinal=len(self._layers),
                kind=kind,
                path=path if shape else "",
                tensors=(("weight", f"{path}.weight"),) if shape else (),
                shape=shape,
                groups=groups,
                parameters=(prod(shape) if shape else 0) + extra,
            )
        )
        self._inputs.append(tuple(dict.fromkeys(inputs)) or (MODEL_INPUT,))
        return len(self._layers) - 1

    def conv(self, x: int, fan_in: int, fan_out: int, kernel: int = 1, groups: int = 1) -> int:
        """Add a convolution without bias, and its normalisation."""
        shape = (fan_out, fan_in // groups, kernel, kernel)
        kind = "depthwise2d" if groups == fan_in > 1 else "conv2d"
        x = self.layer(kind, shape, x, groups=groups)
        return self.layer("batch_norm", (fan_out,), x, extra=fan_out)

    def linear(self, x: int, fan_in: int, fan_out: int, *others: int) -> int:
        """Add a linear layer with bias."""
        return self.layer("linear", (fan_out, fan_in), x, *others, extra=fan_out)

    def norm(self, x: int, width: int) -> int:
        """Add a layer normalisation."""
        return self.layer("layer_norm", (width,), x, extra=width)

    def meet(self, kind: str, *inputs: int) -> int:
        """Add a place where results meet."""
        return self.layer(kind, (), *inputs)


def resnet(
    depths: list[int], width: int, *, bottleneck: bool = False, groups: int = 1
) -> LayerSkeleton:
    """Return a residual network of image classification, with grouped convolutions a ResNeXt."""
    draw = Drawing()
    x, fan_in = draw.conv(MODEL_INPUT, 3, width, 7), width
    for stage, depth in enumerate(depths):
        inner = width << stage
        fan_out = 4 * inner if bottleneck else inner
        for block in range(depth):
            shortcut = x
            if bottleneck:
                y = draw.conv(x, fan_in, inner)
                y = draw.conv(draw.conv(y, inner, inner, 3, groups), inner, fan_out)
            else:
                y = draw.conv(draw.conv(x, fan_in, inner, 3), inner, fan_out, 3)
            if not block and fan_in != fan_out:
                shortcut = draw.conv(x, fan_in, fan_out)
            x, fan_in = draw.meet(ADD, y, shortcut), fan_out
    draw.linear(x, fan_in, 1000)
    return draw.outline


def vgg(depths: list[int], width: int) -> LayerSkeleton:
    """Return a plain convolutional network with three linear layers at its end."""
    draw = Drawing()
    x, fan_in = MODEL_INPUT, 3
    for stage, depth in enumerate(depths):
        for _ in range(depth):
            fan_out = min(width << stage, 8 * width)
            x, fan_in = draw.conv(x, fan_in, fan_out, 3), fan_out
    x = draw.linear(draw.linear(x, 49 * fan_in, 64 * width), 64 * width, 64 * width)
    draw.linear(x, 64 * width, 1000)
    return draw.outline


def densenet(depths: list[int], growth: int) -> LayerSkeleton:
    """Return a densely connected network; each layer's result is appended to what it read."""
    draw = Drawing()
    width = 2 * growth
    x = draw.conv(MODEL_INPUT, 3, width, 7)
    for stage, depth in enumerate(depths):
        for _ in range(depth):
            y = draw.layer("batch_norm", (width,), x, extra=width)
            y = draw.conv(y, width, 4 * growth)
            y = draw.layer("conv2d", (growth, 4 * growth, 3, 3), y)
            x, width = draw.meet(CONCAT, x, y), width + growth
        x = draw.layer("batch_norm", (width,), x, extra=width)
        if stage + 1 < len(depths):
            x = draw.layer("conv2d", (width // 2, width, 1, 1), x)
            width //= 2
    draw.linear(x, width, 1000)
    return draw.outline


def mobilenet(depths: list[int], width: int, *, gated: bool = False) -> LayerSkeleton:
    """Return a network of inverted residual blocks, gated (squeeze and excitation) or not."""
    draw = Drawing()
    x, fan_in = draw.conv(MODEL_INPUT, 3, width, 3), width
    for stage, depth in enumerate(depths):
        fan_out = width * (2 + 3 * stage) // 2
        for block in range(depth):
            inner = 6 * fan_in
            y = draw.conv(draw.conv(x, fan_in, inner), inner, inner, 3 + 2 * (stage % 2), inner)
            if gated:
                gate = draw.linear(y, inner, fan_in // 4 + 1)
                y = draw.meet(MULTIPLY, y, draw.linear(gate, fan_in // 4 + 1, inner))
            y = draw.conv(y, inner, fan_out)
            x, fan_in = draw.meet(ADD, x, y) if block else y, fan_out
    draw.linear(draw.conv(x, fan_in, 4 * fan_in), 4 * fan_in, 1000)
    return draw.outline


def transformer(depth: int, width: int, *, vocabulary: int = 0, ratio: int = 4) -> LayerSkeleton:
    """Return a transformer that reads image patches, or tokens where it has a vocabulary."""
    draw = Drawing()
    if vocabulary:
        places = draw.layer("embedding", (1024, width))
        x = draw.meet(ADD, draw.layer("embedding", (vocabulary, width)), places)
    else:
        patches = draw.layer("conv2d", (width, 3, 16, 16), extra=width)
        x = draw.meet(ADD, patches, draw.layer("scale", (1, 197, width)))
    for _ in range(depth):
        y = draw.linear(draw.norm(x, width), width, 3 * width)
        x = draw.meet(ADD, x, draw.linear(y, width, width))
        y = draw.linear(draw.norm(x, width), width, ratio * width)
        x = draw.meet(ADD, x, draw.linear(y, ratio * width, width))
    x = draw.norm(x, width)
    if vocabulary:  # tied to the embedding: no parameters of its own
        draw.layer("linear", (vocabulary, width), x, extra=-vocabulary * width)
    else:
        draw.linear(x, width, 1000)
    return draw.outline


def gated_transformer(depth: int, width: int, heads: int, vocabulary: int) -> LayerSkeleton:
    """Return a decoder with apart queries, keys and values, grouped, and gated linear units."""
    draw = Drawing()
    x = draw.layer("embedding", (vocabulary, width))
    inner, shared = 8 * width // 3, width // heads
    for _ in range(depth):
        y = draw.layer("rms_norm", (width,), x)
        reads = [draw.layer("linear", (size, width), y) for size in (width, shared, shared)]
        x = draw.meet(ADD, x, draw.layer("linear", (width, width), *reads))
        y = draw.layer("rms_norm", (width,), x)
        gate, up = (draw.layer("linear", (inner, width), y) for _ in range(2))
        y = draw.meet(MULTIPLY, gate, up)
        x = draw.meet(ADD, x, draw.layer("linear", (width, inner), y))
    draw.layer("linear", (vocabulary, width), draw.layer("rms_norm", (width,), x))
    return draw.outline


def cells(kinds: list[int], depth: int, width: int) -> LayerSkeleton:
    """Return a network of equal cells: four nodes, with a convolution, or nothing, for each pair.

    Args:
        kinds: of each of the six edges: 0 none, 1 identity, 2 and 3 a kernel of 1 and 3.
    Source: Dong and Yang 2020, "NAS-Bench-201", section 2.1.
    """
    draw = Drawing()
    x = draw.conv(MODEL_INPUT, 3, width, 3)
    for stage in range(3):
        for _ in range(depth):
            nodes = [x]
            for target in range(1, 4):
                reads = []
                for source in range(target):
                    kernel = kinds[target * (target - 1) // 2 + source]
                    if kernel > 1:
                        reads.append(draw.conv(nodes[source], width, width, 2 * kernel - 3))
                    elif kernel or not source:
                        reads.append(nodes[source])
                total = reads[0]
                for read in reads[1:]:
                    total = draw.meet(ADD, total, read)
                nodes.append(total)
            x = nodes[3]
        if stage < 2:
            y = draw.conv(draw.conv(x, width, 2 * width, 3), 2 * width, 2 * width, 3)
            x = draw.meet(ADD, y, draw.layer("conv2d", (2 * width, width, 1, 1), x))
            width *= 2
    draw.linear(draw.layer("batch_norm", (width,), x, extra=width), width, 10)
    return draw.outline


def _some(source: np.random.Generator, low: int, high: int, count: int) -> list[int]:
    return [int(found) for found in source.integers(low, high, count, endpoint=True)]


def _one(source: np.random.Generator, low: int, high: int) -> int:
    return _some(source, low, high, 1)[0]


def _width(source: np.random.Generator, low: int, high: int) -> int:
    return 8 * _one(source, low // 8, high // 8)


_FAMILIES: tuple[Callable[[np.random.Generator], LayerSkeleton], ...] = (
    lambda s: resnet(_some(s, 2, 9, 4), _width(s, 16, 96)),
    lambda s: resnet(_some(s, 2, 6, 4), _width(s, 32, 96), bottleneck=True),
    lambda s: resnet(_some(s, 2, 6, 4), 32 * _one(s, 2, 4), bottleneck=True, groups=32),
    lambda s: vgg(_some(s, 3, 20, 5), _width(s, 32, 96)),
    lambda s: densenet(_some(s, 4, 12, 4), _width(s, 16, 48)),
    lambda s: mobilenet(_some(s, 2, 5, 5), _width(s, 16, 48)),
    lambda s: mobilenet(_some(s, 2, 4, 5), _width(s, 16, 48), gated=True),
    lambda s: transformer(_one(s, 6, 24), 64 * _one(s, 3, 16), ratio=_one(s, 3, 4)),
    lambda s: transformer(_one(s, 6, 24), 64 * _one(s, 3, 16), vocabulary=50257),
    lambda s: gated_transformer(_one(s, 4, 16), 64 * _one(s, 4, 16), 4, 32000),
    lambda s: cells(_some(s, 0, 3, 6), _one(s, 1, 5), _width(s, 8, 32)),
)


def draw(source: np.random.Generator, count: int) -> Iterator[LayerSkeleton]:
    """Yield different outlines of all families, of LEAST_LAYERS to MOST_LAYERS layers each."""
    seen: set[tuple[object, ...]] = set()
    while len(seen) < count:
        outline = _FAMILIES[int(source.integers(len(_FAMILIES)))](source)
        content = (*((layer.kind, layer.shape) for layer in outline.layers), outline.inputs)
        if LEAST_LAYERS <= len(outline.layers) <= MOST_LAYERS and content not in seen:
            seen.add(content)
            yield outline


def mutated(outline: LayerSkeleton, source: np.random.Generator, times: int = 3) -> LayerSkeleton:
    """Return a copy in which some stretches are wider or narrower, and some layers gone or new."""
    for _ in range(times):
        begin, end = sorted(source.integers(0, len(outline.layers) + 1, 2).tolist())
        change = int(source.integers(3))
        if change == 0:
            outline = _scaled(
                outline, begin, end, float(source.choice([0.5, 0.75, 1.25, 1.5, 2.0]))
            )
        elif change == 1:
            outline = _without(outline, begin, min(end, begin + 8))
        else:
            outline = _repeated(outline, begin, min(end, begin + 8))
    return outline


def _scaled(outline: LayerSkeleton, begin: int, end: int, by: float) -> LayerSkeleton:
    layers = list(outline.layers)
    for number, layer in enumerate(layers[begin:end], begin):
        if len(layer.shape) > 1:
            shape = tuple(max(1, round(size * by)) for size in layer.shape[:2]) + layer.shape[2:]
            bias = max(0, layer.parameters - prod(layer.shape))
            parameters = prod(shape) + round(bias * by) if layer.parameters else 0
            layers[number] = replace(layer, shape=shape, parameters=parameters)
    return replace(outline, layers=tuple(layers))


def _without(outline: LayerSkeleton, begin: int, end: int) -> LayerSkeleton:
    """Leave out the layers of a stretch that have one input."""
    stands_for: dict[int, int] = {MODEL_INPUT: MODEL_INPUT}
    layers: list[SkeletonLayer] = []
    inputs: list[tuple[int, ...]] = []
    for number, (layer, sources) in enumerate(zip(outline.layers, outline.inputs, strict=True)):
        found = tuple(dict.fromkeys(stands_for[source] for source in sources))
        if begin <= number < end and len(sources) == 1 and len(outline.layers) > 8:
            stands_for[number] = found[0]
            continue
        stands_for[number] = len(layers)
        layers.append(replace(layer, ordinal=len(layers)))
        inputs.append(found)
    return LayerSkeleton(layers=tuple(layers), inputs=tuple(inputs))


def _repeated(outline: LayerSkeleton, begin: int, end: int) -> LayerSkeleton:
    """Put a copy of each layer of a stretch that has one input behind it."""
    stands_for: dict[int, int] = {MODEL_INPUT: MODEL_INPUT}
    layers: list[SkeletonLayer] = []
    inputs: list[tuple[int, ...]] = []
    for number, (layer, sources) in enumerate(zip(outline.layers, outline.inputs, strict=True)):
        found = tuple(stands_for[source] for source in sources)
        for _ in range(2 if begin <= number < end and len(sources) == 1 else 1):
            stands_for[number] = len(layers)
            layers.append(replace(layer, ordinal=len(layers)))
            inputs.append(found)
            found = (stands_for[number],)
    return LayerSkeleton(layers=tuple(layers), inputs=tuple(inputs))
