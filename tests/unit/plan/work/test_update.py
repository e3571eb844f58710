from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from mmdb.plan.step.recording import MakeOptimizer, Update, update_of
from mmdb.train.candidate.named_choices import OPTIMIZERS

SHAPES = ((10, 20), (10,))
ELEMENTS = 210
FLOAT = 4

SGD = partial(torch.optim.SGD, lr=0.1)
MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


@pytest.mark.parametrize(
    ("make", "read", "written", "state"),
    [
        (SGD, 2, 1, 0),  # parameter and gradient in, parameter out
        (MOMENTUM, 5, 3, 1),  # the momentum is scaled, added to, and taken off the parameter
        # lerp 2 -> 1; mul 1 -> 1; addcmul 3 -> 1; sqrt, div and add 1 -> 1; addcdiv 3 -> 1
        (torch.optim.Adam, 12, 7, 2),
    ],
)
def test_bytes_of_a_step(make: MakeOptimizer, read: int, written: int, state: int) -> None:
    found = update_of(SHAPES, make)
    assert found.read == read * ELEMENTS * FLOAT
    assert found.written == written * ELEMENTS * FLOAT
    # Adam counts its steps in a tensor of each parameter.
    steps = len(SHAPES) * FLOAT if make is torch.optim.Adam else 0
    assert found.state_bytes == state * ELEMENTS * FLOAT + steps


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_and_calls_are_those_of_a_real_step(name: str) -> None:
    kind: Callable[..., torch.optim.Optimizer] = OPTIMIZERS[name]
    make = partial(kind, lr=0.1)
    parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in SHAPES]
    optimizer = make(parameters)
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    state = sum(
        one.numel() * one.element_size()
        for values in optimizer.state.values()
        for one in values.values()
        if isinstance(one, torch.Tensor)
    )
    found = update_of(SHAPES, make)
    assert found.state_bytes == state
    assert found.calls > 0
    assert found.read >= 2 * ELEMENTS * FLOAT


def test_nothing_without_an_optimizer() -> None:
    assert update_of(SHAPES, None) == Update()
