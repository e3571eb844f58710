"""Results are kept by a module's form, and only as long as the form is the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mmdb.graph.spec import layer_form as module_under_test
from mmdb.graph.spec.layer_form import layer_form, traced
from mmdb.graph.trace.call_tracer import trace


class Gate(nn.Module):
    """Adds its input, or not, as a plain attribute says."""

    def __init__(self, adds: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.adds = adds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x)
        return x + y if self.adds else y


class Odd(nn.Module):
    """Keeps an object that could hold anything."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.settings = object()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x))


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """Return the modules that are traced for want of a kept result."""
    seen: list[nn.Module] = []

    def count(module: nn.Module) -> object:
        seen.append(module)
        return trace(module)

    monkeypatch.setattr(module_under_test, "_structures", module_under_test._ByForm(count))
    return seen


def test_the_same_form_is_traced_once(traces: list[nn.Module]) -> None:
    first, second = nn.Sequential(nn.Linear(3, 2)), nn.Sequential(nn.Linear(3, 2))
    assert traced(first) is traced(second)
    assert traces == [first]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (nn.Linear(3, 2), nn.Linear(2, 3)),
        (nn.Linear(3, 2), nn.Linear(3, 2, bias=False)),
        (nn.Linear(3, 2), nn.Linear(3, 2).double()),
        (nn.Dropout(0.1), nn.Dropout(0.2)),
        (nn.Sequential(nn.ReLU()), nn.Sequential(nn.GELU())),
        (Gate(True), Gate(False)),
    ],
)
def test_another_form_is_traced_anew(a: nn.Module, b: nn.Module, traces: list[nn.Module]) -> None:
    traced(a), traced(b)
    assert traces == [a, b]


def test_a_changed_module_is_traced_anew(traces: list[nn.Module]) -> None:
    gate = Gate(True)
    before = traced(gate).canonical_hash
    gate.adds = False
    assert traced(gate).canonical_hash != before
    gate.layer = nn.Linear(4, 4, bias=False)
    traced(gate)
    assert len(traces) == 3


def test_ties_are_form(traces: list[nn.Module]) -> None:
    apart = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    assert traced(apart).canonical_hash != traced(tied).canonical_hash


def test_a_module_that_holds_anything_is_traced_each_time(traces: list[nn.Module]) -> None:
    odd = Odd()
    traced(odd), traced(odd)
    assert traces == [odd, odd]


def test_weights_are_no_form(traces: list[nn.Module]) -> None:
    layer = nn.Linear(4, 4)
    traced(layer)
    with torch.no_grad():
        layer.weight.zero_()
    traced(layer.train(False))
    assert traces == [layer]


def test_layer_graphs_are_kept_too() -> None:
    assert layer_form(Gate(True)) is layer_form(Gate(True))
