"""A row's pass in numpy against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mmdb.graph.factories import cnn, linear, mlp
from mmdb.graph.mean import MeanOf
from mmdb.graph.row_network import row_network
from mmdb.graph.tabular import tabular

COLUMNS = [["code", 7, 3], ["number", 4], ["plain", 2], ["code", 300, 5]]
WIDTH = 8


def rows(seed: int, count: int = 32) -> np.ndarray:
    random = np.random.default_rng(seed)
    found = random.normal(size=(count, WIDTH)).astype(np.float32)
    found[:, 0], found[:, -1] = random.integers(7, size=count), random.integers(300, size=count)
    return found


def averaged(shape: tuple[int, ...], outputs: int, *, averages: str) -> nn.Module:
    """Return the mean of a network of each kind."""
    of = [mlp(shape, outputs), tabular(shape, outputs, ensemble=2), linear(shape, outputs)]
    return MeanOf(of, averages)


CASES: list[tuple[Any, dict[str, Any]]] = [
    (linear, {}),
    (linear, {"columns": COLUMNS, "scale": [50.0, 7.0]}),
    *((mlp, {"columns": COLUMNS, "activation": name}) for name in ("relu", "tanh", "silu")),
    (mlp, {"hidden": [16, 8], "dropout": 0.5}),
    *((tabular, {"columns": COLUMNS, "ensemble": n, "dropout": 0.1}) for n in (1, 8)),
    (tabular, {"columns": COLUMNS, "ensemble": 3, "scale": [-5.0, 100.0], "hidden": [32]}),
    (tabular, {"columns": COLUMNS, "ensemble": 4, "averages": "probabilities", "periodic": False}),
    (tabular, {"columns": [["plain", WIDTH]]}),
    (tabular, {"hidden": []}),
    (averaged, {"averages": "outputs"}),
    (averaged, {"averages": "probabilities"}),
]


@pytest.mark.parametrize(("factory", "arguments"), CASES)
@pytest.mark.parametrize("outputs", [1, 3])
def test_outputs_are_those_of_torch(factory: Any, arguments: dict[str, Any], outputs: int) -> None:
    torch.manual_seed(outputs)
    module = factory((WIDTH,), outputs, **arguments).eval()
    for parameter in module.parameters():  # members are apart, as once trained
        parameter.data += 0.1 * torch.randn_like(parameter)
    found = row_network(module, rows(0))
    assert found is not None
    given = rows(1, 100)
    given[:50] *= 1 if arguments.get("columns") == COLUMNS else 30
    with torch.no_grad():
        expected = module(torch.from_numpy(given)).numpy()
    ours = np.stack([found(given[place : place + 1]) for place in range(len(given))])
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=2e-6 * np.abs(expected).max())


class Doubled(nn.Linear):
    """What inherits from a layer that is known, and does something else where it is negative."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


@pytest.mark.parametrize(
    "module",
    [
        mlp((WIDTH,), 2, activation="gelu"),
        averaged((WIDTH,), 2, averages="label_probabilities"),
        mlp((WIDTH,), 2, batch_norm=True),
        nn.Linear(WIDTH, 2, bias=False),
        nn.Sequential(nn.Flatten(), Doubled(WIDTH, 2)),
        nn.Sequential(nn.Unflatten(1, (1, 2, 4)), cnn((1, 2, 4), 2)),
    ],
)
def test_other_layers_are_left_to_torch(module: nn.Module) -> None:
    assert row_network(module.eval(), rows(0)) is None


def test_a_module_that_disagrees_is_left_to_torch() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, 2)).eval()
    assert row_network(module, rows(0)) is not None
    module.register_forward_hook(lambda _, __, output: output + 1)
    assert row_network(module, rows(0)) is None
