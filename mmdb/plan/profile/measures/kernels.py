"""Matrix products and convolutions, forward and backward: seconds over floating-point operations.

A multiplication and an addition are two operations. What runs is what a module's layers run, with
its gradients recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from mmdb.plan.profile.measures.timing import Allowance, Task, measure_sizes
from mmdb.plan.profile.row import Row

#: n of products of (n, n) by (n, n), and of the thin ones.
PRODUCTS = (16, 32, 64, 128, 256, 512, 768, 1024)
THIN_ROWS = 32
THIN = (16, 64, 128, 256, 512, 1024, 2048, 3072)
#: Channels and height of the image, in batches of 8.
CONVOLUTIONS = ((4, 8), (8, 8), (16, 8), (16, 16), (32, 16), (64, 16), (64, 32), (128, 32))
DEPTHWISE = ((8, 8), (16, 8), (32, 8), (32, 16), (64, 16), (128, 16), (128, 32), (256, 32))
BATCH, KERNEL = 8, 3


def measure_products(
    allowance: Allowance, seed: int, device: torch.device, *, thin: bool = False
) -> Iterator[Row]:
    """Measure matrix products, square ones or those of a small batch."""
    draw = _Draw(seed, device)
    sizes = [(THIN_ROWS, n) for n in THIN] if thin else [(n, n) for n in PRODUCTS]
    name = "product_thin" if thin else "product"
    cases = [partial(_product, name, rows, n, draw) for rows, n in sizes]
    return measure_sizes(allowance, cases)


def measure_convolutions(
    allowance: Allowance, seed: int, device: torch.device, *, depthwise: bool = False
) -> Iterator[Row]:
    """Measure convolutions of 3 x 3, plain or one filter a channel."""
    draw = _Draw(seed, device)
    name, sizes = ("depthwise", DEPTHWISE) if depthwise else ("convolution", CONVOLUTIONS)
    cases = [partial(_convolution, name, c, s, draw) for c, s in sizes]
    return measure_sizes(allowance, cases)


class _Draw:
    """Random tensors of one seed on one device."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._device = device

    def __call__(self, *shape: int) -> Tensor:
        drawn = torch.rand(shape, generator=self._generator)
        return drawn.to(self._device).requires_grad_()


def _product(name: str, rows: int, n: int, draw: _Draw) -> list[Task]:
    inputs = draw(rows, n), draw(n, n), draw(n)
    return _both_ways(name, 2.0 * rows * n * n, partial(functional.linear, *inputs), inputs)


def _convolution(name: str, channels: int, side: int, draw: _Draw) -> list[Task]:
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
) -> list[Task]:
    result = forward()
    gradient = torch.ones_like(result)

    def backward() -> object:
        return torch.autograd.grad(result, inputs, gradient, retain_graph=True)

    # The two products of a gradient count twice.
    return [Task(name, flop, forward), Task(f"{name}_backward", 2 * flop, backward)]
