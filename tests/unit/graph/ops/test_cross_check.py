from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from mmdb.graph.ops.capture import capture, cross_check
from mmdb.graph.ops.example_inputs import example_inputs
from tests.unit.graph.ops.networks import NETWORKS, Residual

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.export warns of itself


@pytest.mark.parametrize("name", ["residual", "packed", "vision"])
def test_torch_export_finds_the_same(name: str) -> None:
    build, shape = NETWORKS[name]
    module = build()
    inputs = example_inputs(module, shape)
    found = cross_check(module, capture(module, inputs), inputs)
    assert found.agrees, found


def test_a_flow_that_misses_an_operation_is_told() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    flow = capture(module, [torch.zeros(2, 4)])
    wrong = replace(flow, operations=flow.operations[:-1], unread=("1.bias",))
    found = cross_check(module, wrong, example_inputs(module, (4,)))
    assert not found.agrees
    assert found.counts["product"] == (1, 2) and found.only_export == ("1.bias",)


def test_the_module_is_left_as_it_was() -> None:
    module = Residual().train()
    inputs = example_inputs(module, (3, 32, 32))
    state = {key: value.clone() for key, value in module.state_dict().items()}
    cross_check(module, capture(module, inputs), inputs)
    assert module.training
    assert all(torch.equal(state[key], value) for key, value in module.state_dict().items())
