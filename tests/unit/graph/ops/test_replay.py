from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mmdb.graph.ops.capture import capture
from tests.unit.graph.ops.networks import NETWORKS, Function, example_inputs
from tests.unit.graph.ops.replay import replay

# What has a mask or a recurrence is not replayed: masks are constants, and those have no values.
REPLAYED = [name for name in NETWORKS if name not in ("grouped", "recurrent")]


@pytest.mark.parametrize("name", REPLAYED)
def test_the_flow_computes_what_the_module_computes(name: str) -> None:
    build, shape = NETWORKS[name]
    module = build().eval()
    generator = torch.Generator().manual_seed(1)
    for tensor in module.parameters():
        nn.init.uniform_(tensor, -0.5, 0.5, generator=generator)
    inputs = example_inputs(module, shape)
    flow = capture(module, inputs)
    (given_one,) = inputs.args
    if given_one.is_floating_point():
        x = torch.rand(given_one.shape, generator=generator)
    else:
        x = torch.randint(0, 20, given_one.shape, generator=generator)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    with torch.no_grad():
        (result,) = replay(flow, state, {flow.operations[0].arguments["name"]: x})  # type: ignore[dict-item]
        torch.testing.assert_close(result, module(x))


STEPS = st.tuples(
    st.sampled_from(("view", "slice", "select", "transpose", "write", "copy", "add", "whole")),
    st.integers(0, 5),
    st.integers(0, 3),
)


def run(program: list[tuple[str, int, int]], x: Tensor, *, from_constant: bool) -> Tensor:
    """Change memory that tensors share, as the program says; return all of them."""
    base = x.new_zeros(4, 6) if from_constant else x * 0
    tensors = [base, x.clone()]
    for what, which, number in program:
        one = tensors[which % len(tensors)]
        match what:
            case "view" if one.numel() % 2 == 0 and one.is_contiguous():
                tensors.append(one.view(2, -1))
            case "slice" if one.shape[0] > 1:
                tensors.append(one[number % one.shape[0] :: 1 + number % 2])
            case "select" if one.ndim > 1:
                tensors.append(one[..., number % one.shape[-1]])
            case "transpose" if one.ndim == 2:
                tensors.append(one.t())
            case "write":
                one.mul_(2).add_(number)
            case "copy":
                one.copy_(x.sum() + number)
            case "add":
                tensors.append(one + x.mean())
            case "whole":
                one.fill_(number)
    return torch.cat([one.reshape(-1) for one in tensors])


@given(st.lists(STEPS, max_size=12), st.booleans())
@settings(max_examples=60, deadline=None)
def test_writes_into_shared_memory_are_followed(
    program: list[tuple[str, int, int]], from_constant: bool
) -> None:
    def body(_: Any, x: Tensor) -> Tensor:
        return run(program, x, from_constant=from_constant)

    generator = torch.Generator().manual_seed(0)
    x = torch.rand(4, 6, generator=generator)
    flow = capture(Function(body), [x])
    (result,) = replay(flow, {}, {"x": x})
    expected = run(program, x, from_constant=from_constant)
    assert result.shape == expected.shape
    # What numbers alone make of a constant has no value in a flow.
    if not from_constant or not any(what in ("whole", "write") for what, _, _ in program):
        torch.testing.assert_close(result, expected)
