"""The cell space of NAS-Bench-201: 4 nodes, 6 edges, 5 operations, 15,625 cells.

An architecture is a cell, the channels of its first stage and the cells of each stage.

Source: Dong and Yang 2020, "NAS-Bench-201", section 2.1 and figure 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
#: (from, to) of each edge, in the order of the architecture string.
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
CELLS = len(OPERATIONS) ** len(EDGES)


@dataclass(frozen=True, slots=True)
class Cell:
    """An operation for each of EDGES, as its index in OPERATIONS."""

    operations: tuple[int, ...]

    @classmethod
    def at(cls, index: int) -> Cell:
        """Return the cell whose operations are the base-5 digits of `index`, first edge first."""
        if not 0 <= index < CELLS:
            raise ValueError(f"the space has {CELLS} cells, and no cell {index}")
        base = len(OPERATIONS)
        return cls(tuple(index // base**k % base for k in reversed(range(len(EDGES)))))

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Return the cell of an architecture string such as `str` gives."""
        words = [word for node in text.split("+") for word in node.strip("|").split("|")]
        names, sources = zip(*(word.rsplit("~", 1) for word in words), strict=True)
        if tuple(map(int, sources)) != tuple(source for source, _ in EDGES):
            raise ValueError(f"not an architecture of 4 nodes: {text}")
        return cls(tuple(OPERATIONS.index(name) for name in names))

    @property
    def index(self) -> int:
        """The inverse of `at`."""
        return int("".join(map(str, self.operations)), len(OPERATIONS))

    @property
    def live(self) -> bool:
        """Whether every node has an input other than zeros."""
        reached = {0}
        for node in (1, 2, 3):
            if any(to == node and op and source in reached for (source, to), op in self._edges()):
                reached.add(node)
        return len(reached) == 4

    @property
    def convolutions(self) -> int:
        """The edges that hold a convolution."""
        return sum(OPERATIONS[op].startswith("nor_conv") for op in self.operations)

    def __str__(self) -> str:
        nodes = (
            "|".join(f"{OPERATIONS[op]}~{source}" for (source, to), op in self._edges() if to == k)
            for k in (1, 2, 3)
        )
        return "+".join(f"|{node}|" for node in nodes)

    def _edges(self) -> list[tuple[tuple[int, int], int]]:
        return list(zip(EDGES, self.operations, strict=True))


@dataclass(frozen=True, slots=True)
class Architecture:
    """What a network of the space is made from."""

    cell: Cell
    channels: int = 8
    cells: int = 1

    def __str__(self) -> str:
        return f"{self.cell} C={self.channels} N={self.cells}"


def random_cell(draw: np.random.Generator, least_convolutions: int = 1) -> Cell:
    """Return a live cell with at least that many convolutions, all such cells equally likely."""
    while True:
        cell = Cell.at(int(draw.integers(CELLS)))
        if cell.live and cell.convolutions >= least_convolutions:
            return cell


def mutate(cell: Cell, edges: int, draw: np.random.Generator) -> Cell:
    """Return a live cell with a convolution that has other operations on exactly `edges` edges."""
    while True:
        operations = list(cell.operations)
        for edge in draw.choice(len(EDGES), edges, replace=False):
            others = [op for op in range(len(OPERATIONS)) if op != cell.operations[edge]]
            operations[edge] = int(draw.choice(others))
        child = Cell(tuple(operations))
        if child.live and child.convolutions:
            return child


def widen(parent: Architecture, channels: int) -> Architecture:
    """Return the same cells with other channels in the first stage."""
    return replace(parent, channels=channels)


def deepen(parent: Architecture, cells: int) -> Architecture:
    """Return the same cell, another number of times in each stage."""
    return replace(parent, cells=cells)


def network(architecture: Architecture, outputs: int = 10, inputs: int = 3) -> nn.Module:
    """Return the module: (n, inputs, H, W) -> (n, outputs)."""
    return NasNetwork(architecture, outputs, inputs)


class NasNetwork(nn.Module):
    """Three stages of cells, a residual block of stride 2 between them."""

    def __init__(self, architecture: Architecture, outputs: int, inputs: int) -> None:
        super().__init__()
        widths = [architecture.channels << stage for stage in range(3)]
        self.stem = nn.Sequential(_conv(inputs, widths[0], 3), nn.BatchNorm2d(widths[0]))
        self.stages = nn.ModuleList(
            nn.Sequential(
                *(CellModule(architecture.cell, width) for _ in range(architecture.cells))
            )
            for width in widths
        )
        self.reductions = nn.ModuleList(Reduction(a, b) for a, b in pairwise(widths))
        self.last = nn.Sequential(nn.BatchNorm2d(widths[-1]), nn.ReLU())
        self.classifier = nn.Linear(widths[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages[0](self.stem(x))
        x = self.stages[1](self.reductions[0](x))
        x = self.stages[2](self.reductions[1](x))
        out: Tensor = self.classifier(self.last(x).mean(dim=(2, 3)))
        return out


class CellModule(nn.Module):
    """A cell, (n, C, H, W) -> (n, C, H, W); edges of `none` are left out, as they add zeros."""

    def __init__(self, cell: Cell, channels: int) -> None:
        super().__init__()
        self.edges = nn.ModuleDict(
            {
                f"{source}_{to}": _operation(OPERATIONS[op], channels)
                for (source, to), op in zip(EDGES, cell.operations, strict=True)
                if OPERATIONS[op] != "none"
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        nodes = [x]
        for node in (1, 2, 3):
            total: Tensor | None = None
            for source in range(node):
                name = f"{source}_{node}"
                if name in self.edges:
                    y = self.edges[name](nodes[source])
                    total = y if total is None else total + y
            nodes.append(torch.zeros_like(x) if total is None else total)
        return nodes[-1]


class Reduction(nn.Module):
    """Two convolutions beside a pooled shortcut: (n, before, H, W) -> (n, after, H/2, W/2)."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv_a = _relu_conv_bn(before, after, 3, 2)
        self.conv_b = _relu_conv_bn(after, after, 3)
        self.shortcut = nn.Sequential(nn.AvgPool2d(2, 2), _conv(before, after, 1))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.shortcut(x) + self.conv_b(self.conv_a(x))
        return out


def _operation(name: str, channels: int) -> nn.Module:
    if name == "skip_connect":
        return nn.Identity()
    if name == "avg_pool_3x3":
        return nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
    return _relu_conv_bn(channels, channels, 1 if name == "nor_conv_1x1" else 3)


def _relu_conv_bn(before: int, after: int, side: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), _conv(before, after, side, stride), nn.BatchNorm2d(after))


def _conv(before: int, after: int, side: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, side, stride, side // 2, bias=False)
