"""Single operations of many shapes: what is measured, and what each of them does.

Their amounts are those that `mmdb.plan.step` counts, so that what they take is learned in
the terms in which a model's operations are asked for. Shapes are drawn once, by a fixed seed; a
case is known by its number. Whoever changes a case raises METHOD in `measurements.py`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_SEED = 7
_FLOAT = 4
#: Largest elements of a tensor, and multiplications of a product: none takes long.
_ELEMENTS, _PRODUCTS = 3_500_000, 4e8


class OperationCase(NamedTuple):
    """One operation of one shape.

    `shape` is what its measuring reads: see `mmdb.plan.profile.operation_measures`.
    """

    op: str
    shape: tuple[int, ...]


class KernelAmounts(NamedTuple):
    """What one kernel does, as in `mmdb.plan.step.counts.KernelWork`.

    The sides of a gradient are those of the product that it is a gradient of.
    """

    flops: float
    bytes: float
    sides: tuple[float, float, float] = (0.0, 0.0, 0.0)
    window: float = 0.0


#: Ways of a product: forward, and the gradients of either factor; of others forward and backward.
PRODUCTS = (
    "matmul", "batched", "convolution", "pointwise", "unrolled", "depthwise", "grouped",
)  # fmt: skip
_FACTORS = ("forward", "input", "weight")
_WAYS = ("forward", "backward", "input", "weight")
#: Elementwise functions, by torch's names; what is none of them costs as the kind's first.
ELEMENTWISE = (
    "add", "mul", "relu", "hardswish", "silu", "gelu", "tanh", "sigmoid", "softmax",
    "bernoulli", "cat", "copy", "mean",
)  # fmt: skip
OTHERS = ("attention", "batch_norm", "layer_norm", "max_pool2d", "avg_pool2d", "embedding")


def kind_of(op: str, way: str) -> str:
    """Return what an operation's way is called where something is learned of it."""
    return f"op_{op}" if way == "forward" else f"op_{op}_{way}"


def place_of(number: int, way: str) -> int:
    """Return the number under which a way of a case is kept."""
    return len(_WAYS) * number + _WAYS.index(way)


def at_place(place: int) -> tuple[int, str] | None:
    """Return the number of a case, and the way, that are kept under a number; None if none are."""
    number, way = divmod(place, len(_WAYS))
    return (number, _WAYS[way]) if 0 <= number < len(cases()) else None


def ways_of(op: str) -> tuple[str, ...]:
    """Return what is measured of an operation, one after the other."""
    if op in PRODUCTS:
        return _FACTORS
    return ("forward",) if op == "bernoulli" else ("forward", "backward")


@lru_cache(maxsize=1)
def cases() -> tuple[OperationCase, ...]:
    """Return all cases, in the order in which they are measured: the kinds take turns."""
    draw = _Draw()
    queues = [list(draw.of(op)) for op in (*PRODUCTS, *OTHERS, *ELEMENTWISE)]
    rounds = max(map(len, queues))
    # Each queue is spread over all rounds: whenever a calibration ends, it has some of each.
    placed = [
        ((place + 0.5) / len(queue) * rounds, number, case)
        for number, queue in enumerate(queues)
        for place, case in enumerate(queue)
    ]
    return tuple(case for _, _, case in sorted(placed, key=lambda one: one[:2]))


class _Draw:
    """Draws shapes of a fixed seed."""

    def __init__(self) -> None:
        self._random = random.Random(_SEED)

    def of(self, op: str) -> Iterator[OperationCase]:
        """Yield the cases of an operation."""
        counts = {"convolution": 90, "pointwise": 48, "unrolled": 48, "depthwise": 64, "matmul": 48,
                  "grouped": 40, "batched": 20, "batch_norm": 36, "max_pool2d": 14}  # fmt: skip
        if op in ELEMENTWISE:
            yield from (OperationCase(op, (2**e,)) for e in (8, 11, 13, 15, 17, 19, 20))
            return
        found = 0
        while found < counts.get(op, 12):
            shape = self._shape(op)
            if _fits(op, shape):
                found += 1
                yield OperationCase(op, shape)

    def _shape(self, op: str) -> tuple[int, ...]:
        pick, log = self._random.choice, self._log
        match op:
            case "matmul":
                return log(2, 4096), log(4, 2048), log(4, 2048)
            case "batched" | "attention":
                return log(4, 256), pick((8, 16, 32, 64, 128)), pick((8, 16, 32, 64))
            case "convolution" | "pointwise" | "unrolled" | "grouped":
                return self._convolution(op)
            case "depthwise":
                images, channels, side = pick((2, 4, 8, 16, 32)), self._channels(), pick(_SMALL)
                return images, channels, side, pick((3, 3, 5, 7)), pick((1, 1, 2))
            case "batch_norm":
                channels = pick((self._channels(), log(8, 1400)))
                return pick((2, 4, 8, 16, 32, 64, 128)), channels, pick((1, 2, *_SMALL))
            case "layer_norm":
                return log(16, 8192), pick((32, 64, 128, 256, 768))
            case "max_pool2d" | "avg_pool2d":
                return pick((4, 8, 16, 32)), log(8, 256), pick(_SIDES), pick((2, 3)), pick((1, 2))
        return pick((100, 1000, 8000, 30000)), pick((64, 128, 256)), log(32, 4096)

    def _convolution(self, op: str) -> tuple[int, ...]:
        pick = self._random.choice
        images = pick((2, 4, 8)) if op == "unrolled" else pick((16, 32, 64))
        first, second, side, groups = self._channels(), self._channels(), pick(_SIDES), 1
        kernel = stride = 1
        if op == "grouped":
            groups, images = pick((2, 4, 8, 16, 32)), pick((2, 4, 8, 16, 32))
            first, second = (groups * pick((2, 3, 4, 8, 16, 24)) for _ in range(2))
            kernel, stride = pick(((1, 1), (3, 1), (3, 1), (3, 2)))
        elif op == "convolution":
            images = pick((2, 4, 8, 16, 32, 64))
            kernel, stride = pick(((3, 1), (3, 1), (3, 1), (3, 1), (3, 2), (3, 2), (1, 2), (5, 1)))
            if not pick(range(4)):  # of an image
                first, side = pick((1, 3, 3)), pick((28, 32, 32, 64, 64))
                kernel, stride = pick(((3, 1), (3, 1), (3, 2), (7, 2), (4, 4)))
        return images, first, second, side, kernel, stride, groups

    def _channels(self) -> int:
        return self._random.choice(_CHANNELS) if self._random.random() < 0.85 else self._log(4, 400)

    def _log(self, low: int, high: int) -> int:
        return round(math.exp(self._random.uniform(math.log(low), math.log(high))))


#: What networks mostly have.
_CHANNELS = (8, 12, 16, 16, 24, 32, 32, 48, 64, 64, 96, 128, 128, 160, 192, 256, 320)
_SMALL = (2, 2, 4, 4, 7, 8, 8, 14, 16, 16, 28, 32, 56)
_SIDES = (2, 4, 7, 8, 14, 16, 28, 32, 56, 64)


def _fits(op: str, shape: tuple[int, ...]) -> bool:
    if op == "convolution" and shape[4] == shape[5] > shape[3]:
        return False  # patches larger than the image
    amounts = amounts_of(OperationCase(op, shape), "forward")
    return amounts.bytes <= 3 * _ELEMENTS * _FLOAT and amounts.flops <= 2 * _PRODUCTS


def amounts_of(case: OperationCase, way: str) -> KernelAmounts:
    """Return what a case does on one of its ways."""
    op, shape = case
    if op in PRODUCTS:
        return _product(op, shape)
    back = way == "backward"
    match op:
        case "attention":
            batch, rows, width = shape
            scores, size = batch * rows * rows, batch * rows * width * _FLOAT
            flops = 2 * scores * (5 if back else 2) * width
            return KernelAmounts(flops, (8 if back else 4) * size, (rows, rows, width))
        case "batch_norm":
            images, channels, side = shape
            found = _norm(images * channels * side**2, channels, channels, back, training=True)
            return found._replace(window=float(side**2))
        case "layer_norm":
            rows, width = shape
            return _norm(rows * width, rows, width, back, training=False)
        case "max_pool2d" | "avg_pool2d":
            return _pool(op, shape, back)
        case "embedding":
            vocabulary, width, indices = shape
            rows, small = indices * width * _FLOAT, indices * 8
            whole = vocabulary * width * _FLOAT
            return KernelAmounts(
                indices * width * back, 3 * rows + small + whole if back else 2 * rows + small
            )
    return _elementwise(op, shape[0], back)


def _product(op: str, shape: tuple[int, ...]) -> KernelAmounts:
    window = 0.0
    if op == "matmul":
        (m, n, k), batch = shape, 1
        x, w, y = m * k, n * k, m * n
    elif op == "batched":
        (batch, m, k), n = shape, shape[1]
        x, w, y = batch * m * k, batch * n * k, batch * m * n
    else:
        images, first, second, side, kernel, stride, batch = _as_convolution(op, shape)
        window = float(kernel**2)
        out = -(-side // stride) if kernel != stride else side // stride
        m, n, k = images * out**2, second // batch, first // batch * kernel**2
        x, w, y = images * first * side**2, second * first // batch * kernel**2, m * second
    moved = float(_FLOAT * (x + w + y))
    return KernelAmounts(2.0 * batch * m * n * k, moved, (float(m), float(n), float(k)), window)


def _as_convolution(op: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    if op != "depthwise":
        return shape
    images, channels, side, kernel, stride = shape
    return images, channels, channels, side, kernel, stride, channels


def _norm(elements: int, rows: int, width: int, back: bool, *, training: bool) -> KernelAmounts:
    size, small = elements * _FLOAT, 2 * width * _FLOAT
    kept = 2 * rows * _FLOAT
    sides = (float(rows), float(elements // rows), 0.0)
    if back:
        each = 9 if training else 11
        return KernelAmounts(each * elements, 4 * size + small + kept + size + small, sides)
    return KernelAmounts((6 if training else 8) * elements, 2 * size + small + size + kept, sides)


def _pool(op: str, shape: tuple[int, ...], back: bool) -> KernelAmounts:
    images, channels, side, kernel, stride = shape
    out = (side + 2 * (kernel // 2) - kernel) // stride + 1
    n, y = images * channels * side**2, images * channels * out**2
    places = 8 * y if op == "max_pool2d" else 0
    sides = (float(y), float(kernel**2), 0.0)
    if back:
        flops = y if places else y * kernel**2
        read = _FLOAT * y + (places or _FLOAT * y)
        return KernelAmounts(flops, read + _FLOAT * (n + y), sides)
    return KernelAmounts(y * kernel**2, _FLOAT * (n + y) + places, sides)


def _elementwise(op: str, n: int, back: bool) -> KernelAmounts:
    size = float(n * _FLOAT)
    match op:
        case "add":
            return KernelAmounts(n, 3 * size)
        case "mul":
            return KernelAmounts(n, 3 * size)
        case "softmax":
            return KernelAmounts((4 if back else 5) * n, 3 * size)
        case "bernoulli":
            return KernelAmounts(n, size)
        case "cat" | "copy":
            return KernelAmounts(0, 2 * size)
        case "mean":
            return KernelAmounts(n, size)
    return KernelAmounts(n, (3 if back else 2) * size)
