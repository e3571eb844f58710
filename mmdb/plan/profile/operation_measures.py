"""The measuring of operations, of memory, and of optimizers' steps.

A multiplication and an addition are two operations. What runs is what a module's layers run, with
its gradients recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmdb.plan.profile.cases import PRODUCTS, OperationCase, cases, place_of
from mmdb.plan.profile.measurements import Measurement
from mmdb.plan.profile.timing import Allowance, TimedTask, measure_sizes
from mmdb.train.compute.optimizer import step_of

#: Seconds that one thing is measured for, at most.
_EACH_S = 0.012
KIND = "operation"
_TURNS = 32  # of a table's rows by softmax


def measure_cases(allowance: Allowance, seed: int, device: torch.device) -> Iterator[Measurement]:
    """Measure cases in their order, for as long as the budget lasts."""
    draw = _RandomTensors(seed, device)
    for number, case in enumerate(cases()):
        if number and allowance.left_s <= 0:
            return
        for task in _case_tasks(number, case, draw):
            timed = allowance.measure(task.work, min(_EACH_S, allowance.left_s), sure_s=1.0)
            if timed is not None:
                yield timed.row(task.kind, task.size)


class _RandomTensors:
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


def _case_tasks(number: int, case: OperationCase, draw: _RandomTensors) -> list[TimedTask]:

    def task(way: str, work: Callable[[], object]) -> TimedTask:
        return TimedTask(KIND, float(place_of(number, way)), work)

    if case.op == "bernoulli":
        noise = torch.empty(case.shape, device=draw.device)
        return [task("forward", partial(noise.bernoulli_, 0.9))]
    forward, inputs = _forward_of_case(case, draw)
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


def _forward_of_case(
    case: OperationCase, draw: _RandomTensors
) -> tuple[Callable[[], Tensor], list[Tensor]]:
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
            return _convolution_case(op, shape, draw)
        case "attention":
            batch, rows, width = shape
            query, key, value = (draw(1, batch, rows, width) for _ in range(3))
            look = partial(functional.scaled_dot_product_attention, query, key, value)
            return look, [query, key, value]
        case "batch_norm" | "layer_norm":
            return _norm_case(op, shape, draw)
        case "max_pool2d" | "avg_pool2d":
            images, channels, side, kernel, stride = shape
            x = draw(images, channels, side, side)
            pool = getattr(functional, op)
            return partial(pool, x, kernel, stride, padding=kernel // 2), [x]
        case "embedding":
            vocabulary, width, count = shape
            table, places = draw(vocabulary, width), draw.places(vocabulary, count)
            return partial(functional.embedding, places, table), [table]
    return _elementwise_case(op, shape[0], draw)


def _convolution_case(
    op: str, shape: tuple[int, ...], draw: _RandomTensors
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


def _norm_case(
    op: str, shape: tuple[int, ...], draw: _RandomTensors
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


def _elementwise_case(
    op: str, n: int, draw: _RandomTensors
) -> tuple[Callable[[], Tensor], list[Tensor]]:
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


#: n of products of (n, n) by (n, n), and of the thin ones.
PRODUCT_SIDES = (16, 32, 64, 128, 256, 512, 768, 1024)
THIN_ROWS = 32
THIN = (16, 64, 128, 256, 512, 1024, 2048, 3072)
#: Channels and height of the image, in batches of 8.
CONVOLUTIONS = ((4, 8), (8, 8), (16, 8), (16, 16), (32, 16), (64, 16), (64, 32), (128, 32))
DEPTHWISE = ((8, 8), (16, 8), (32, 8), (32, 16), (64, 16), (128, 16), (128, 32), (256, 32))
BATCH, KERNEL = 8, 3


def measure_products(
    allowance: Allowance, seed: int, device: torch.device, *, thin: bool = False
) -> Iterator[Measurement]:
    """Measure matrix products, square ones or those of a small batch."""
    draw = _RandomTensors(seed, device)
    sizes = [(THIN_ROWS, n) for n in THIN] if thin else [(n, n) for n in PRODUCT_SIDES]
    name = "product_thin" if thin else "product"
    cases = [partial(_product, name, rows, n, draw) for rows, n in sizes]
    return measure_sizes(allowance, cases)


def measure_convolutions(
    allowance: Allowance, seed: int, device: torch.device, *, depthwise: bool = False
) -> Iterator[Measurement]:
    """Measure convolutions of 3 x 3, plain or one filter a channel."""
    draw = _RandomTensors(seed, device)
    name, sizes = ("depthwise", DEPTHWISE) if depthwise else ("convolution", CONVOLUTIONS)
    cases = [partial(_convolution, name, c, s, draw) for c, s in sizes]
    return measure_sizes(allowance, cases)


def _product(name: str, rows: int, n: int, draw: _RandomTensors) -> list[TimedTask]:
    inputs = draw(rows, n), draw(n, n), draw(n)
    return _both_ways(name, 2.0 * rows * n * n, partial(functional.linear, *inputs), inputs)


def _convolution(name: str, channels: int, side: int, draw: _RandomTensors) -> list[TimedTask]:
    groups = channels if name == "depthwise" else 1
    inputs = (
        draw(BATCH, channels, side, side),
        draw(channels, channels // groups, KERNEL, KERNEL),
    )
    forward = partial(functional.conv2d, *inputs, padding=KERNEL // 2, groups=groups)
    flop = 2.0 * KERNEL**2 * (channels // groups) * channels * side**2 * BATCH
    return _both_ways(name, flop, forward, inputs)


def _both_ways(
    name: str, flop: float, forward: Callable[[], Tensor], inputs: Sequence[Tensor]
) -> list[TimedTask]:
    result = forward()
    gradient = torch.ones_like(result)

    def backward() -> object:
        return torch.autograd.grad(result, inputs, gradient, retain_graph=True)

    # The two products of a gradient count twice.
    return [TimedTask(name, flop, forward), TimedTask(f"{name}_backward", 2 * flop, backward)]


#: float32 numbers of a tensor: from less than a cache line's worth of work to beyond the caches.
NUMBERS = (2**8, 2**11, 2**13, 2**15, 2**17, 2**19, 2**21, 2**23)
_FLOAT = 4


def measure_memory(allowance: Allowance, seed: int, device: torch.device) -> Iterator[Measurement]:
    """Measure elementwise operations and copies."""
    return measure_sizes(allowance, [partial(_memory_tasks, n, device) for n in NUMBERS])


def _memory_tasks(numbers: int, device: torch.device) -> list[TimedTask]:
    left, right = (torch.full((numbers,), value, device=device) for value in (1.0, 2.0))
    target = torch.empty_like(left)
    moved = float(_FLOAT * numbers)
    return [
        TimedTask("elementwise", 3 * moved, partial(torch.add, left, right)),
        TimedTask("copy", 2 * moved, partial(target.copy_, left)),
    ]


#: Modules in a row.
MODULES = (1, 4, 16, 64)


def measure_dispatch(
    allowance: Allowance, seed: int, device: torch.device
) -> Iterator[Measurement]:
    """Measure modules of one tiny operation, forward and backward."""
    return measure_sizes(allowance, [partial(_dispatch_tasks, count, device) for count in MODULES])


def _dispatch_tasks(count: int, device: torch.device) -> list[TimedTask]:
    modules = nn.Sequential(*(nn.Sigmoid() for _ in range(count)))
    x = torch.zeros(1, 1, device=device, requires_grad=True)
    result = modules(x)
    gradient = torch.ones_like(result)

    def backward() -> object:
        return torch.autograd.grad(result, x, gradient, retain_graph=True)

    return [
        TimedTask("dispatch", float(count), partial(modules, x)),
        TimedTask("dispatch_backward", float(count), backward),
    ]


#: Bytes of a parameter, and numbers of tiny parameters.
PARAMETER_BYTES = (2**12, 2**15, 2**18, 2**20, 2**22, 2**24)
TENSORS = (1, 4, 16, 64)
_TINY = 16
_Make = Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]


def measure_updates(allowance: Allowance, seed: int, device: torch.device) -> Iterator[Measurement]:
    """Measure SGD with momentum and Adam as hops step them."""
    makes: dict[str, _Make] = {
        "update_sgd": partial(torch.optim.SGD, lr=1e-3, momentum=0.9),
        "update_adam": partial(torch.optim.Adam, lr=1e-3),
    }
    pairs = zip_longest(PARAMETER_BYTES, TENSORS)
    return measure_sizes(
        allowance, [partial(_update_tasks, makes, *pair, device) for pair in pairs]
    )


def _update_tasks(
    makes: dict[str, _Make], size: int, count: int | None, device: torch.device
) -> list[TimedTask]:
    tasks = [
        TimedTask(kind, float(size), _update_step(make, [size // 4], device))
        for kind, make in makes.items()
    ]
    return tasks if count is None else [*tasks, _many(makes["update_adam"], count, device)]


def _many(make: _Make, count: int, device: torch.device) -> TimedTask:
    return TimedTask("update_tensors", float(count), _update_step(make, [_TINY] * count, device))


def _update_step(make: _Make, sizes: Sequence[int], device: torch.device) -> Callable[[], object]:
    parameters = [nn.Parameter(torch.ones(size, device=device)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1e-3)
    return step_of(make(parameters))
