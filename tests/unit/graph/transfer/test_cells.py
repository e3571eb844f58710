"""Cells whose paths are all new: one path hands on what it gets, the others give zero."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.unit.graph.transfer.carried import carry, images, relative_error, trained


class Cell(nn.Module):
    """Paths side by side, each begun by an activation: there is no identity among them."""

    def __init__(self, width: int, act: type[nn.Module]) -> None:
        super().__init__()
        self.paths = nn.ModuleList(
            nn.Sequential(
                act(),
                nn.Conv2d(width, width, side, padding=side // 2, bias=False),
                nn.BatchNorm2d(width),
            )
            for side in (3, 1, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.paths[0](x) + self.paths[1](x)
        out: Tensor = self.paths[2](y) + y
        return out


class Cells(nn.Module):
    """A stem, cells, and a head that begins with the activation too."""

    def __init__(self, cells: int, act: type[nn.Module] = nn.ReLU, width: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width))
        self.cells = nn.Sequential(*(Cell(width, act) for _ in range(cells)))
        self.last = act()
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.last(self.cells(self.stem(x))).mean((2, 3)))
        return y


@pytest.mark.parametrize("cells", [2, 3, 5])
def test_new_cells_hand_on_what_they_get(cells: int) -> None:
    """ReLU before ReLU changes nothing."""
    parent, child = trained(Cells(1)).double(), trained(Cells(cells), seed=1).double()
    made = carry(child, parent, images().double())
    assert relative_error(child, parent, images().double()) <= 1e-6
    by_path = {origin.path: origin.operator for origin in made.origins}
    weights = [op for path, op in by_path.items() if path.endswith(".1.weight")]
    norms = [op for path, op in by_path.items() if path.endswith(".2.weight")]
    assert weights.count("identity") == cells - 1 and norms.count("deepen") == 2 * (cells - 1)


@pytest.mark.parametrize("act", [nn.SiLU, nn.GELU])
def test_where_the_activation_bends_it_they_nearly_do(act: type[nn.Module]) -> None:
    parent, child = trained(Cells(1, act)).double(), trained(Cells(2, act), seed=1).double()
    x = images().double()
    made = carry(child, parent, x)
    assert not made.exact and made.reasons
    assert "identity" in {origin.operator for origin in made.origins}
    with torch.no_grad():
        near = torch.nn.functional.cosine_similarity(child.eval()(x), parent.eval()(x), dim=1)
    assert float(near.min()) > 0.8


def test_a_cell_behind_a_smaller_picture_is_new_altogether() -> None:
    """No path can hand on what has another shape, so that none is silenced."""

    class Smaller(nn.Module):
        def __init__(self, *, grown: bool) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 4, 3, padding=1)
            self.one = nn.Conv2d(4, 4, 3, stride=2, padding=1) if grown else None
            self.other = nn.Conv2d(4, 4, 1, stride=2) if grown else None
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            if self.one is not None and self.other is not None:
                x = self.one(x) + self.other(x)
            y: Tensor = self.head(x.mean((2, 3)))
            return y

    parent, child = trained(Smaller(grown=False)), trained(Smaller(grown=True), seed=1)
    made = carry(child, parent, images())
    assert not made.exact
    found = {origin.path: origin.operator for origin in made.origins}
    assert found["one.weight"] == found["other.weight"] == "fresh"
