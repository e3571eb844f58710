"""The cell space: every cell by index and by string, mutations, modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.warm.nasbench import (
    CELLS,
    EDGES,
    OPERATIONS,
    Architecture,
    Cell,
    CellModule,
    deepen,
    mutate,
    network,
    random_cell,
    widen,
)

TEXT = "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|avg_pool_3x3~0|nor_conv_1x1~1|nor_conv_3x3~2|"


@given(st.integers(0, CELLS - 1))
def test_a_cell_is_found_by_its_index_and_by_its_string(index: int) -> None:
    cell = Cell.at(index)
    assert cell.index == index
    assert Cell.parse(str(cell)) == cell


def test_the_space_has_15_625_distinct_cells() -> None:
    assert len({Cell.at(index) for index in range(CELLS)}) == 15_625


def test_a_string_lists_the_edges_of_each_node() -> None:
    cell = Cell.parse(TEXT)
    assert str(cell) == TEXT
    assert cell.operations == (3, 1, 0, 4, 2, 3)
    assert cell.convolutions == 3


@pytest.mark.parametrize("text", ["", "|none~0|", TEXT.replace("~2", "~1")])
def test_another_string_is_no_cell(text: str) -> None:
    with pytest.raises(ValueError):
        Cell.parse(text)


def test_there_is_no_cell_outside_the_space() -> None:
    with pytest.raises(ValueError, match="15625"):
        Cell.at(CELLS)


@given(st.integers(0, 2**32), st.integers(1, 6))
@settings(max_examples=50)
def test_a_mutation_changes_exactly_its_number_of_edges(seed: int, edges: int) -> None:
    draw = np.random.default_rng(seed)
    cell = random_cell(draw)
    child = mutate(cell, edges, draw)
    assert sum(a != b for a, b in zip(cell.operations, child.operations, strict=True)) == edges
    assert child.live and child.convolutions


def test_a_node_without_input_is_not_live() -> None:
    dead = "|none~0|+|skip_connect~0|skip_connect~1|+|skip_connect~0|none~1|none~2|"
    assert not Cell.parse(dead).live
    assert Cell.parse(dead.replace("none~0", "skip_connect~0")).live


def test_the_module_computes_the_sum_over_the_edges() -> None:
    """Pools and skips have no weights: the cell can be written out."""
    text = "|skip_connect~0|+|avg_pool_3x3~0|skip_connect~1|+|none~0|none~1|skip_connect~2|"
    x = torch.rand(2, 8, 6, 6)
    pooled = torch.nn.functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    torch.testing.assert_close(CellModule(Cell.parse(text), 8)(x), pooled + x)


@pytest.mark.parametrize(
    ("operation", "parameters"), [("skip_connect", 73_306), ("nor_conv_3x3", 1_531_546)]
)
def test_a_network_of_the_paper_has_its_published_size(operation: str, parameters: int) -> None:
    cell = Cell((OPERATIONS.index(operation),) * len(EDGES))
    with torch.device("meta"):
        module = network(Architecture(cell, channels=16, cells=5))
    assert sum(p.numel() for p in module.parameters()) == parameters


@pytest.mark.parametrize("index", [0, 7, 7812, CELLS - 1])
@pytest.mark.parametrize(("channels", "cells"), [(8, 1), (12, 2)])
def test_every_cell_maps_pictures_to_outputs(index: int, channels: int, cells: int) -> None:
    module = network(Architecture(Cell.at(index), channels, cells), outputs=7)
    assert module(torch.rand(2, 3, 32, 32)).shape == (2, 7)


def test_growth_keeps_the_cell() -> None:
    first = Architecture(Cell.parse(TEXT))
    assert widen(first, 12) == Architecture(first.cell, 12, 1)
    assert deepen(first, 3) == Architecture(first.cell, 8, 3)
    assert len(EDGES) == len(first.cell.operations)
