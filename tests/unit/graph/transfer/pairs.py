"""Random parents, and children that have grown out of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from mmdb.graph.factories import ACTIVATIONS
from tests.unit.graph.transfer.carried import images, rows, tokens, vectors
from tests.unit.graph.transfer.networks import (
    Chain,
    DenseNet,
    Gpt,
    InvertedStages,
    Llama,
    MobileNet,
    Packed,
    ResNet,
    Vit,
)
from tests.unit.graph.transfer.sequences import grows_out_of, sequence


@dataclass(frozen=True, slots=True)
class Pair:
    """A parent, a child, what both read.

    Attributes:
        grows: the child is as wide and as deep as the parent everywhere, and can hand on what its
            new layers read; None where that follows from how it was made.
    """

    parent: nn.Module
    child: nn.Module
    inputs: Tensor
    grows: bool | None = None


class Growth:
    """How a child is larger; "all" is wider by no multiple, deeper and of larger kernels.

    "narrow" is smaller somewhere, "mixed" anything.
    """

    def __init__(self, how: str, rng: random.Random) -> None:
        self.how, self._rng = how, rng

    def width(self, size: int) -> int:
        """Return the child's width."""
        if self.how == "narrow":
            return self._rng.randint(1, size)
        if self.how == "mixed":
            return self._rng.choice((size, self._rng.randint(1, 2 * size)))
        if self.how == "widen":
            return size * self._rng.choice((2, 3))
        if self.how in ("indivisible", "all"):
            return size * self._rng.choice((1, 2)) + self._rng.randint(1, max(1, size - 1))
        return size

    def depth(self, layers: int) -> int:
        """Return the child's layers."""
        if self.how == "mixed":
            return layers + self._rng.choice((0, 0, 1, 2))
        return layers + (self._rng.randint(1, 3) if self.how in ("deepen", "all") else 0)

    def kernel(self, size: int) -> int:
        """Return the side of the child's kernels."""
        if self.how == "mixed":
            return size + self._rng.choice((0, 2))
        return size + (self._rng.choice((2, 4)) if self.how in ("kernel", "all") else 0)


def _sequence(
    rng: random.Random, growth: Growth, *, norm: bool = False, kernel: int | None = None
) -> Pair:
    """Linear layers, or convolutions and pools, one after the other."""
    is_image = kernel is not None
    parent: list[int | None] = [rng.randint(2, 12) for _ in range(rng.randint(1, 3))]
    if is_image:
        parent.insert(rng.randint(1, len(parent)), None)
    child = [one and growth.width(one) for one in parent]
    for _ in range(growth.depth(0)):
        place = rng.randint(1, len(child))
        least = next(one for one in reversed(child[:place]) if one)
        child.insert(place, least + rng.choice((0, 0, 1, 5)) if growth.how != "mixed" else least)
    bends = "relu" if rng.random() < 0.8 or growth.how in ("deepen", "all") else (
        rng.choice(sorted(ACTIVATIONS))
    )  # fmt: skip
    flat = rng.random() < 0.5
    larger = growth.kernel(kernel) if kernel else None
    return Pair(
        sequence(parent, norm=norm, bends=bends, kernel=kernel, flat=flat),
        sequence(child, norm=norm, bends=bends, kernel=larger, flat=flat),
        images() if is_image else rows(),
        grows_out_of(child, parent, is_idle=bends == "relu"),
    )


def _convolutions(rng: random.Random, growth: Growth, *, norm: bool = False) -> Pair:
    return _sequence(rng, growth, norm=norm, kernel=rng.choice((1, 3)))


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


def _inverted(rng: random.Random, growth: Growth) -> Pair:
    widths = [rng.randint(2, 7) for _ in range(2)]
    depths = [rng.randint(1, 2) for _ in range(2)]
    ratio, kernel = rng.randint(1, 3), rng.choice((3, 5))
    wider = list(map(growth.width, widths))
    if widths[0] == widths[1]:  # its first block has a shortcut, or not
        wider[1] = wider[0]
    elif wider[0] == wider[1]:
        wider[1] += 1
    deeper = list(map(growth.depth, depths))
    child = InvertedStages(wider, deeper, growth.width(ratio), growth.kernel(kernel))
    return Pair(InvertedStages(widths, depths, ratio, kernel), child, images())


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
    "perceptron": _sequence,
    "convolutions": _convolutions,
    "perceptron, batch norm": partial(_sequence, norm=True),
    "convolutions, batch norm": partial(_convolutions, norm=True),
    "batch norm": _chain,
    "residual": _residual,
    "concat": _concat,
    "depthwise": _depthwise,
    "inverted": _inverted,
    "multi-head attention": _heads,
    "grouped queries": _grouped_queries,
    "tied weights": _tied,
}
#: Networks without convolutions whose kernels could grow.
_WITHOUT_KERNELS = (
    "perceptron",
    "perceptron, batch norm",
    "multi-head attention",
    "grouped queries",
    "tied weights",
)
#: (family, growth), of children that are as wide and as deep everywhere.
CASES = tuple(
    (family, how)
    for family in FAMILIES
    for how in ("widen", "indivisible", "deepen", "kernel", "all")
    if how != "kernel" or family not in _WITHOUT_KERNELS
)


def random_pair(family: str, how: str, seed: int | str) -> Pair:
    """Return the pair of a seed; modules have torch's own initial weights."""
    rng = random.Random(f"{family} {how} {seed}")
    return FAMILIES[family](rng, Growth(how, rng))
