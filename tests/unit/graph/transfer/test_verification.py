"""Two modules that are run to see whether they compute the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmdb.graph.ops.capture import capture_with_inputs
from mmdb.graph.ops.known_values import Inputs
from mmdb.graph.transfer import difference
from tests.unit.graph.transfer.networks import Gpt


class Function(nn.Module):
    """A linear layer and a function of its result."""

    def __init__(self, then: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.then = then
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(4))
            self.layer.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self.layer(x))


def compared(child: nn.Module, parent: nn.Module, inputs: Inputs | None = None) -> str | None:
    given = inputs or Inputs((torch.zeros(2, 4),))
    flow, found = capture_with_inputs(child, given)
    return difference(
        child, parent, child.state_dict(), found, (flow, capture_with_inputs(parent, given)[0])
    )


def relu(x: Tensor) -> Tensor:
    return torch.relu(x)


DIFFERENT: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "another function": (lambda x: x.clamp(min=-0.1), "differs"),
    "other only for some inputs": (lambda x: torch.relu(x) + torch.relu(x - 2), "differs"),
    "other by little": (lambda x: torch.relu(x) * (1 + 1e-7), "differs"),
    "by the batch": (lambda x: torch.relu(x - x.mean(0)), "differs"),
    "no number": (lambda x: torch.relu(x) / (x > 0), "not finite"),
    "another shape": (lambda x: torch.relu(x)[:, :2], "shapes"),
    "at random": (lambda x: F.dropout(torch.relu(x), 0.5, training=True), "random"),
    "fails": (lambda x: torch.relu(x) @ x, "cannot be run"),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_is_not_the_same_is_told(case: str) -> None:
    then, reason = DIFFERENT[case]
    child, parent = Function(then), Function(relu)
    found = difference(
        child,
        parent,
        child.state_dict(),
        Inputs((torch.zeros(2, 4),)),
        (capture_with_inputs(parent, [torch.zeros(2, 4)])[0],) * 2,
    )
    assert found is not None and reason in found


SAME: dict[str, Callable[[Tensor], Tensor]] = {
    "another form": lambda x: (x + x.abs()) / 2,
    "a cast": lambda x: torch.relu(x.float()).to(x.dtype),
    "half": lambda x: torch.relu(x.half()).type_as(x),
    "made in float32": lambda x: torch.relu(x @ torch.eye(4)),
    "in place": lambda x: x.clone().relu_(),
}


@pytest.mark.parametrize("case", SAME)
def test_what_is_the_same_is_so_but_for_rounding(case: str) -> None:
    assert compared(Function(SAME[case]), Function(relu)) is None


def test_a_unit_that_few_rows_wake_is_seen() -> None:
    def rare(x: Tensor) -> Tensor:
        return torch.relu(x) + torch.relu(x[:, :1] + x[:, 1:2] - 3)

    assert compared(Function(rare), Function(relu)) is not None


def test_a_forward_that_takes_one_batch_size_is_run_with_that() -> None:
    def fixed(x: Tensor) -> Tensor:
        return torch.relu(x.view(2, 4))

    assert compared(Function(fixed), Function(relu)) is None


def test_rows_of_tables_are_looked_up_that_there_are() -> None:
    tokens = Inputs((torch.zeros(1, 6, dtype=torch.int64),))
    parent, child = Gpt(8, 2), Gpt(8, 2)
    child.load_state_dict(parent.state_dict())
    assert compared(child, parent, tokens) is None
    with torch.no_grad():
        child.get_parameter("embed.weight")[7] += 0.1
    assert "differs" in (compared(child, parent, tokens) or "")


def test_neither_the_modules_nor_the_generators_change() -> None:
    child, parent = Function(relu).train(), Function(relu)
    before = {path: tensor.clone() for path, tensor in child.state_dict().items()}
    generator = torch.get_rng_state()
    assert compared(child, parent) is None
    child.then = lambda x: F.dropout(x, 0.5, training=True)
    assert compared(child, parent) is not None
    assert torch.equal(torch.get_rng_state(), generator)
    assert child.training and child.layer.weight.dtype == torch.float32
    assert all(torch.equal(child.state_dict()[path], one) for path, one in before.items())
