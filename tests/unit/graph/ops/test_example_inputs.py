from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.example_inputs import candidates
from mmdb.graph.ops.op_graph import CannotTrace
from tests.unit.graph.ops.networks import NETWORKS, Language, Packed, Residual, example_inputs


def shapes(module: nn.Module, shape: tuple[int, ...] | None = None) -> list[tuple[int, ...]]:
    return [tuple(x.shape) for x in example_inputs(module, shape).args]


def test_a_shape_that_is_given_gets_a_batch() -> None:
    assert shapes(Residual(), (3, 64, 64)) == [(2, 3, 64, 64)]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Conv2d(3, 4, 3), (2, 3, 224, 224)),
        (nn.Conv2d(1, 4, 3), (2, 1, 28, 28)),
        (nn.Conv1d(5, 4, 3), (2, 5, 128)),
        (nn.Linear(7, 2), (2, 7)),
        (nn.Sequential(nn.Flatten(), nn.Linear(7, 2)), (2, 7)),
        (nn.LSTM(5, 2, batch_first=True), (2, 16, 5)),
        (nn.Sequential(nn.BatchNorm1d(3)), (2, 3)),
    ],
)
def test_the_first_layer_tells_the_size(module: nn.Module, expected: tuple[int, ...]) -> None:
    assert shapes(module) == [expected]


def test_tokens_are_integers() -> None:
    (tokens,) = example_inputs(Language(lambda: Packed(8, 2))).args
    assert tokens.shape == (2, 16) and tokens.dtype == torch.int64


def test_each_argument_that_must_be_given_is() -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    assert shapes(module) == [(2, 16, 8)] * 3
    capture(module)


@pytest.mark.parametrize("attribute", ["pretrained_cfg", "default_cfg"])
def test_timm_models_know_their_size(attribute: str) -> None:
    module = Residual()
    setattr(module, attribute, {"input_size": (3, 48, 40)})
    assert shapes(module) == [(2, 3, 48, 40)]


def test_pytorchcv_models_know_their_size() -> None:
    module = nn.Sequential(nn.Conv2d(4, 4, 3))
    setattr(module, "in_size", (20, 24))  # noqa: B010
    found = [tuple(inputs.args[0].shape) for inputs in candidates(module)]
    assert found[:2] == [(2, 3, 20, 24), (2, 4, 20, 24)]  # the first layer may see patches


class OneSize(nn.Module):
    """Takes 32x32 only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 32), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> object:
        return self.head(self.conv(x).flatten(1))


def test_the_next_usual_size_is_tried() -> None:
    assert len(list(candidates(OneSize()))) > 2
    flow = capture(OneSize())
    assert flow.operations[0].shape == (2, 3, 32, 32)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_recorded_without_a_word_about_their_inputs(name: str) -> None:
    capture(NETWORKS[name][0]())


def test_nothing_known_is_an_error() -> None:
    assert not list(candidates(nn.ReLU()))
    with pytest.raises(CannotTrace, match="pass inputs"):
        capture(nn.ReLU())
