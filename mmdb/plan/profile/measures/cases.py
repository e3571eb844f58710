"""Single operations of many shapes, as a model's layers run them: seconds by case and way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from mmdb.plan.profile.cases import PRODUCTS, Case, cases, place_of
from mmdb.plan.profile.measures.timing import Allowance, Task
from mmdb.plan.profile.row import Row

#: Seconds that one thing is measured for, at most.
_EACH_S = 0.012
KIND = "operation"
_TURNS = 32  # of a table's rows by softmax


def measure_cases(allowance: Allowance, seed: int, device: torch.device) -> Iterator[Row]:
    """Measure cases in their order, for as long as the budget lasts."""
    draw = _Draw(seed, device)
    for number, case in enumerate(cases()):
        if number and allowance.left_s <= 0:
            return
        for task in _tasks(number, case, draw):
            timed = allowance.measure(task.work, min(_EACH_S, allowance.left_s), sure_s=1.0)
            if timed is not None:
                yield timed.row(task.kind, task.size)


class _Draw:
    """Random tensors of one seed on one device."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self.device = device

    def __call__(self, *shape: int) -> Tensor:
        drawn = torch.rand(shape, generator=self._generator)
        return drawn.to(self.device).requires_grad_()

    def places(self, below: int, count: int) -> Tensor:
        """Return integers."""
        return torch.randint(0, below, (count,), generator=self._generator).to(self.device)


def _tasks(number: int, case: Case, draw: _Draw) -> list[Task]:

    def task(way: str, work: Callable[[], object]) -> Task:
        return Task(KIND, float(place_of(number, way)), work)

    if case.op == "bernoulli":
        noise = torch.empty(case.shape, device=draw.device)
        return [task("forward", partial(noise.bernoulli_, 0.9))]
    forward, inputs = _forward(case, draw)
    tasks = [task("forward", forward)]
    result = forward()
    gradient = torch.ones_like(result)

    def backward(wanted: Sequence[Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(result, wanted, gradient, retain_graph=True)

    if case.op in PRODUCTS:
        for way, one in zip(("input", "weight"), inputs, strict=True):
            tasks.append(task(way, backward([one])))
    else:
        tasks.append(task("backward", backward(inputs)))
    return tasks


def _forward(case: Case, draw: _Draw) -> tuple[Callable[[], Tensor], list[Tensor]]:
    """Return what is run, and what its gradients are taken of."""
    op, shape = case
    match op:
        case "matmul":
            m, n, k = shape
            x, w = draw(m, k), draw(n, k)
            return partial(functional.linear, x, w), [x, w]
        case "batched":
            batch, rows, width = shape
            x, w = draw(batch, rows, width), draw(batch, width, rows)
            return partial(torch.matmul, x, w), [x, w]
        case "convolution" | "pointwise" | "unrolled" | "depthwise" | "grouped":
            return _convolution(op, shape, draw)
        case "attention":
            batch, rows, width = shape
            query, key, value = (draw(1, batch, rows, width) for _ in range(3))
            look = partial(functional.scaled_dot_product_attention, query, key, value)
            return look, [query, key, value]
        case "batch_norm" | "layer_norm":
            return _norm(op, shape, draw)
        case "max_pool2d" | "avg_pool2d":
            images, channels, side, kernel, stride = shape
            x = draw(images, channels, side, side)
            pool = getattr(functional, op)
            return partial(pool, x, kernel, stride, padding=kernel // 2), [x]
        case "embedding":
            vocabulary, width, count = shape
            table, places = draw(vocabulary, width), draw.places(vocabulary, count)
            return partial(functional.embedding, places, table), [table]
    return _elementwise(op, shape[0], draw)


def _convolution(
    op: str, shape: tuple[int, ...], draw: _Draw
) -> tuple[Callable[[], Tensor], list[Tensor]]:
    if op == "depthwise":
        images, first, side, kernel, stride = shape
        second = groups = first
    else:
        images, first, second, side, kernel, stride, groups = shape
    x = draw(images, first, side, side)
    w = draw(second, first // groups, kernel, kernel)
    padding = 0 if kernel == stride else kernel // 2
    run = partial(functional.conv2d, x, w, stride=stride, padding=padding, groups=groups)
    return run, [x, w]


def _norm(
    op: str, shape: tuple[int, ...], draw: _Draw
) -> tuple[Callable[[], Tensor], list[Tensor]]:
    if op == "layer_norm":
        rows, width = shape
        x, weight, bias = draw(rows, width), draw(width), draw(width)
        return partial(functional.layer_norm, x, (width,), weight, bias), [x, weight, bias]
    images, channels, side = shape
    x, weight, bias = draw(images, channels, side, side), draw(channels), draw(channels)
    mean, variance = (one.detach().clone() for one in (weight, bias))
    run = partial(functional.batch_norm, x, mean, variance, weight, bias, True)
    return run, [x, weight, bias]


def _elementwise(op: str, n: int, draw: _Draw) -> tuple[Callable[[], Tensor], list[Tensor]]:
    x = draw(n)
    match op:
        case "add":
            return partial(torch.add, x, draw(n)), [x]
        case "mul":
            return partial(torch.mul, x, draw(n)), [x]
        case "softmax":
            rows = draw(n // _TURNS, _TURNS)
            return partial(functional.softmax, rows, -1), [rows]
        case "cat":
            halves = draw(4, n // 8), draw(4, n // 8)
            return partial(torch.cat, halves, 1), [*halves]
        case "copy":
            turned = draw(4, n // 32, 8).transpose(1, 2)
            return turned.contiguous, [turned]
        case "mean":
            rows = draw(n // 16, 16)
            return partial(rows.mean, 1), [rows]
    functions = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}
    return partial(functions.get(op) or getattr(functional, op), x), [x]
