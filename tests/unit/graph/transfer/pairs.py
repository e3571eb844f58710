"""Random parents, and children that have grown out of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from tests.unit.graph.transfer.carried import images, tokens, vectors
from tests.unit.graph.transfer.networks import (
    Chain,
    DenseNet,
    Gpt,
    Llama,
    MobileNet,
    Packed,
    ResNet,
    Vit,
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A parent, a child, what both read."""

    parent: nn.Module
    child: nn.Module
    inputs: Tensor


class Growth:
    """How a child is larger; "all" is wider by no multiple, deeper and of larger kernels."""

    def __init__(self, how: str, rng: random.Random) -> None:
        self.how, self._rng = how, rng

    def width(self, size: int) -> int:
        """Return the child's width."""
        if self.how == "widen":
            return size * self._rng.choice((2, 3))
        if self.how in ("indivisible", "all"):
            return size * self._rng.choice((1, 2)) + self._rng.randint(1, size - 1)
        return size

    def depth(self, layers: int) -> int:
        """Return the child's layers."""
        return layers + (self._rng.randint(1, 3) if self.how in ("deepen", "all") else 0)

    def kernel(self, size: int) -> int:
        """Return the side of the child's kernels."""
        return size + (self._rng.choice((2, 4)) if self.how in ("kernel", "all") else 0)


def _chain(rng: random.Random, growth: Growth) -> Pair:
    widths = [rng.randint(2, 7) for _ in range(rng.randint(2, 3))]
    wider = [growth.width(width) for width in widths]
    names = [f"c{number}" for number in range(len(widths))]
    longer = list(names)
    for number in range(growth.depth(0)):
        place = rng.randint(1, len(longer) - 1)
        longer.insert(place, f"new{number}")
        wider.insert(place, wider[place - 1] + rng.choice((0, 0, 1, 4)))
    kernel = rng.choice((1, 3))
    return Pair(
        Chain(widths, names=names, kernel=kernel),
        Chain(wider, names=longer, kernel=growth.kernel(kernel)),
        images(),
    )


def _residual(rng: random.Random, growth: Growth) -> Pair:
    widths = [rng.randint(2, 7) for _ in range(2)]
    depths = [rng.randint(1, 2) for _ in range(2)]
    kernel = rng.choice((1, 3))
    child = ResNet(
        list(map(growth.width, widths)),
        list(map(growth.depth, depths)),
        kernel=growth.kernel(kernel),
    )
    return Pair(ResNet(widths, depths, kernel=kernel), child, images())


def _concat(rng: random.Random, growth: Growth) -> Pair:
    stem, rate, layers = rng.randint(2, 7), rng.randint(2, 5), rng.randint(1, 3)
    child = DenseNet(growth.width(stem), growth.width(rate), growth.depth(layers), growth.kernel(3))
    return Pair(DenseNet(stem, rate, layers), child, images())


def _depthwise(rng: random.Random, growth: Growth) -> Pair:
    width, ratio, depth = rng.randint(3, 7), rng.randint(1, 3), rng.randint(1, 2)
    wider = growth.width(width)
    more = growth.width(width * ratio) if growth.how in ("indivisible", "all") else wider * ratio
    more = max(more, wider)
    child = MobileNet(wider, (more + 0.5) / wider, growth.depth(depth), growth.kernel(3))
    return Pair(MobileNet(width, ratio, depth), child, images())


def _heads(rng: random.Random, growth: Growth) -> Pair:
    if rng.random() < 0.5:  # torch's own attention, whose heads fill the width
        heads, size, hidden = rng.randint(2, 3), rng.randint(2, 4), rng.randint(3, 8)
        # Norms after the sums allow no mean of elements in the stream, and no new block.
        more, first = growth.width(heads), growth.how != "widen" or rng.random() < 0.5
        parent = Vit(heads * size, heads, 1, hidden, norm_first=first)
        larger = Vit(more * size, more, growth.depth(1), growth.width(hidden), norm_first=first)
        return Pair(parent, larger, images())
    width, heads, size, hidden = (rng.randint(2, 9) for _ in range(4))
    fused = rng.random() < 0.5
    child = Packed(
        growth.width(width), growth.width(heads), growth.width(size), growth.width(hidden),
        growth.depth(1), fused=fused,
    )  # fmt: skip
    return Pair(Packed(width, heads, size, hidden, fused=fused), child, vectors())


def _grouped_queries(rng: random.Random, growth: Growth, *, tied: bool = False) -> Pair:
    width, groups, times, hidden = (rng.randint(2, 8) for _ in range(4))
    groups, times = min(groups, 3), min(times, 3)
    more = growth.width(groups) if groups > 1 else groups * (2 if growth.how == "widen" else 1)
    often = times * rng.choice((1, 2)) if growth.how == "widen" else times
    rotated = rng.random() < 0.7
    size = 4 if rotated else rng.randint(2, 5)
    larger = size if rotated else growth.width(size)
    parent = Llama(width, groups * times, groups, size, hidden, 1, tied=tied, rotated=rotated)
    child = Llama(
        growth.width(width), more * often, more, larger, growth.width(hidden), growth.depth(1),
        tied=tied, rotated=rotated,
    )  # fmt: skip
    return Pair(parent, child, tokens())


def _tied(rng: random.Random, growth: Growth) -> Pair:
    if rng.random() < 0.5:
        return _grouped_queries(rng, growth, tied=True)
    heads, size, hidden = rng.randint(2, 3), rng.randint(2, 4), rng.randint(3, 8)
    more = growth.width(heads)
    child = Gpt(more * size, more, growth.width(hidden), growth.depth(1))
    return Pair(Gpt(heads * size, heads, hidden), child, tokens())


Make = Callable[[random.Random, Growth], Pair]
#: By the kind of the network.
FAMILIES: Mapping[str, Make] = {
    "batch norm": _chain,
    "residual": _residual,
    "concat": _concat,
    "depthwise": _depthwise,
    "multi-head attention": _heads,
    "grouped queries": _grouped_queries,
    "tied weights": _tied,
}
#: Networks without convolutions whose kernels could grow.
_WITHOUT_KERNELS = ("multi-head attention", "grouped queries", "tied weights")
#: (family, growth)
CASES = tuple(
    (family, how)
    for family in FAMILIES
    for how in ("widen", "indivisible", "deepen", "kernel", "all")
    if how != "kernel" or family not in _WITHOUT_KERNELS
)


def random_pair(family: str, how: str, seed: int) -> Pair:
    """Return the pair of a seed; modules have torch's own initial weights."""
    rng = random.Random(f"{family} {how} {seed}")
    return FAMILIES[family](rng, Growth(how, rng))
