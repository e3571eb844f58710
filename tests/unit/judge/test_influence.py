"""Influence: the product of two gradients, each taken by itself, row after row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mmdb.data.decoding import Task
from mmdb.graph.tabular import Columns, tabular
from mmdb.judge.influence import influences, losses

TASKS: dict[Task, int] = {"classification": 3, "regression": 1, "multilabel": 3}


def labels_of(task: Task, rows: int) -> Tensor:
    if task == "classification":
        return torch.randint(3, (rows,))
    return torch.randn(rows) if task == "regression" else (torch.rand(rows, 3) > 0.5).float()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", ["mlp", "tabular"])
def test_products_are_those_of_single_gradients(task: Task, kind: str) -> None:
    torch.manual_seed(2)
    size = TASKS[task]
    module: nn.Module = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, size))
    if kind == "tabular":
        columns: Columns = [["number", 4], ["code", 6, 3]]
        module = tabular((5,), size, columns=columns, hidden=[8], ensemble=2).eval()
    x = torch.randn(1100, 5)  # more than go through at once
    x[:, 4] = torch.randint(6, (1100,)).float()
    y = labels_of(task, 1100)
    asked = {"": x[:3]}, y[:3]
    found, own = influences(module, lambda a: module(a[""]), task, asked, ({"": x}, y))
    parameters = list(module.parameters())

    def gradient(rows: slice) -> Tensor:
        loss = losses(module(x[rows]), y[rows], task).sum()
        slopes = torch.autograd.grad(loss, parameters)
        return torch.cat([slope.flatten() for slope in slopes])

    toward = gradient(slice(0, 3))
    for k in (0, 1, 500, 1023, 1024, 1099):
        row = slice(k, k + 1)
        assert float(found[k]) == pytest.approx(float(gradient(row) @ toward), rel=1e-4, abs=1e-4)
        with torch.no_grad():
            loss = float(losses(module(x[row]), y[row], task))
        assert float(own[k]) == pytest.approx(loss, rel=1e-5, abs=1e-5)
