from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from mmdb.errors import CutNotFound, NotACut
from mmdb.graph.cut.cut import cuts_of, prefix_of, rest_of, stage_of
from tests.unit.graph.cut.checked import check_cut
from tests.unit.graph.cut.networks import Branches, Masked, Pictures, Tied


def test_a_path_that_is_not_there_lists_the_cuts() -> None:
    for path in ("layer9", "", "layer1.0.conv1.weight", "layer1..0", "layer1.", "forward",
                 "layer1.__class__", "fc\0", "x" * 100_000):  # fmt: skip
        with pytest.raises(CutNotFound) as caught:
            prefix_of(Pictures(), path)
        assert "layer1" in caught.value.hint and len(caught.value.message) < 500
    with pytest.raises(CutNotFound, match="unused does not run"):
        rest_of(Branches(), "unused")


def test_a_branch_is_no_cut_and_the_nearest_ones_are_named() -> None:
    for make in (prefix_of, rest_of):
        with pytest.raises(NotACut, match="main") as caught:
            make(Branches(), "main")
        assert caught.value.hint == "Near it one can cut at stem, fc."
    with pytest.raises(NotACut, match=r"layer1\.0\.conv1"):
        prefix_of(Pictures(), "layer1.0.conv1")


def test_a_module_that_runs_twice_is_no_cut() -> None:
    with pytest.raises(NotACut, match="norm runs 2 times"):
        prefix_of(Tied(), "norm")


def test_a_mask_that_is_read_after_the_cut_is_told() -> None:
    network = Masked(late=True)
    with pytest.raises(NotACut, match="also reads what does not pass through"):
        rest_of(network, "pooler")
    with pytest.raises(NotACut, match="bert returns more than one tensor"):
        prefix_of(network, "bert")
    assert cuts_of(network) == ()


def test_a_stage_goes_from_a_shallower_cut_to_a_deeper_one() -> None:
    with pytest.raises(NotACut, match="layer1 does not come after layer2"):
        stage_of(Pictures(), "layer2", "layer1")


def test_what_is_no_tensor_of_features_is_refused_when_it_runs() -> None:
    gives: dict[str, Callable[[Tensor], Any]] = {
        "tuple": lambda x: (x, x),
        "float64": lambda x: x.double(),
        "each row": lambda x: x.sum(1),
    }
    for reason, function in gives.items():
        prefix = prefix_of(nn.Sequential(nn.Linear(3, 3), Returns(function)), "1")
        with pytest.raises(NotACut, match=reason):
            prefix(torch.randn(2, 3))


class Returns(nn.Module):
    """A module that computes a function, and looks at a number so that it is one step."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x) if float(x.sum()) < 1e9 else x


class Odd(nn.Module):
    """A network of two layers, with something that cannot be followed in between."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.b(self.between(self.a(x))))


class _Doubled(torch.autograd.Function):
    """A function whose gradient is not that of what it computes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


def without_gradient(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x * 2


ODD: dict[str, Callable[[Tensor], Tensor]] = {
    "depends on the numbers": lambda x: x if x.sum() > 0 else -x,
    "Python's random numbers": lambda x: x * random.random(),
    "random numbers by itself": lambda x: x + torch.rand(4),
    "gradient of its own": lambda x: cast("Tensor", cast("Any", _Doubled).apply(x)),
    "without gradients": without_gradient,
    "written into another tensor": lambda x: torch.relu(x) + torch.add(x, 1, out=x),
}


@pytest.mark.parametrize("reason", sorted(ODD))
def test_what_cannot_be_followed_is_told(reason: str) -> None:
    with pytest.raises(NotACut, match=reason):
        rest_of(Odd(ODD[reason]), "a")


def test_a_hook_on_a_module_that_holds_the_cut_is_told() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    network.register_forward_hook(lambda module, args, output: output * 2)
    with pytest.raises(NotACut, match="hooks"):
        prefix_of(network, "0")


def test_what_the_forward_keeps_aside_is_found_by_running_it() -> None:
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(x)
            part = y[:, :2]
            part.mul_(3.0)  # changes y, of which it is a view
            return cast("Tensor", self.b(y))

    assert "a" in cuts_of(Keeps())
    with pytest.raises(NotACut, match="do not give what the network gives"):
        check_cut(Keeps(), "a", torch.randn(3, 4))


def test_a_cut_may_be_made_where_no_gradients_are_kept() -> None:
    with torch.no_grad(), pytest.raises(NotACut, match="without gradients"):
        rest_of(Odd(without_gradient), "a")
