from __future__ import annotations

import copy
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from mmdb.errors import CutNotFound, HeadMismatch
from mmdb.graph.cut.adapter import adapt, adaptable, freeze, merge
from mmdb.graph.cut.cut import prefix_of, rest_of
from tests.unit.graph.cut.networks import CASES, Pictures, Tied, Words, pictures, words

LORA = {"name": "lora", "rank": 2, "alpha": 6}


def drawn(network: nn.Module) -> nn.Module:
    """Let every adapter change something."""
    for path, parameter in network.named_parameters():
        if path.endswith("adapter_b"):
            nn.init.normal_(parameter)
    return network


@pytest.mark.parametrize(
    ("make", "rows", "cut", "first"),
    [(Pictures, pictures, "layer1", "layer2.0.conv1"),
     (Words, words, "encoder.layers.0", "encoder.layers.1.self_attn.out_proj")],
    ids=["resnet", "encoder"],
)  # fmt: skip
def test_an_adapter_changes_nothing_at_first_and_can_be_merged(
    make: type[nn.Module], rows: object, cut: str, first: str
) -> None:
    torch.manual_seed(0)
    network = make().eval()
    x = cast("Tensor", rows())  # type: ignore[operator]
    features = prefix_of(network, cut)(x)
    rest = rest_of(network, cut)
    tensors = rest.state_dict()
    paths = adapt(rest, LORA, cut)
    assert paths[0] == first and paths == adaptable(network, cut)
    with torch.no_grad():
        assert torch.equal(rest(features), network(x))
        expected = drawn(rest)(features)
        assert not torch.equal(expected, network(x))
        assert torch.equal(copy.deepcopy(rest)(features), expected)
        assert merge(rest) is rest
        assert torch.equal(rest(features), expected)
        assert not torch.equal(expected, network(x))  # what was shared is as it was
    assert list(rest.state_dict()) == list(tensors)
    assert all(type(part).__name__[:7] != "Adapted" for part in rest.modules())
    adapted = {f"{path}.weight" for path in paths}
    for path, tensor in rest.state_dict().items():
        assert torch.equal(tensor, tensors[path]) == (path not in adapted)


def test_only_the_adapter_of_a_layer_trains() -> None:
    torch.manual_seed(0)
    network = Words()
    rest = rest_of(network, "encoder.layers.1")
    paths = adapt(rest, LORA | {"layers": ["encoder.layers.2.*"]})
    assert paths == tuple(
        f"encoder.layers.2.{name}" for name in ("self_attn.out_proj", "linear1", "linear2")
    )
    rest(prefix_of(network, "encoder.layers.1")(words())).square().sum().backward()
    for path in paths:
        layer = rest.get_submodule(path)
        assert not cast("Tensor", layer.get_parameter("bias")).requires_grad
        names = {name: p for name, p in layer.named_parameters() if p.requires_grad}
        assert set(names) == {"adapter_a", "adapter_b"}
        assert cast("Tensor", names["adapter_b"].grad).abs().sum() > 0
        rows, columns = layer._parameters["weight"].shape  # type: ignore[union-attr]
        assert names["adapter_a"].shape == (2, columns) and names["adapter_b"].shape == (rows, 2)
    assert rest.get_parameter("fc.weight").requires_grad


def test_evaluation_reads_adapted_weights_where_torch_does_not_call_the_layer() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    adapt(layer, LORA)
    drawn(layer)
    x = torch.randn(2, 3, 8)
    slow = layer(x)
    with torch.no_grad():
        fast = layer.eval()(x)
    torch.testing.assert_close(fast, slow)


def test_adapters_are_drawn_from_torchs_generator() -> None:
    network = Pictures()
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        rest = rest_of(network, "layer1")
        adapt(rest, LORA)
        found.append(rest.get_parameter("fc.adapter_a"))
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_in_a_whole_network_nothing_before_the_cut_is_adapted() -> None:
    network = Pictures()
    assert adapt(network, LORA | {"layers": "*conv2"}, "layer1.0") == (
        "layer1.1.conv2",
        "layer2.0.conv2",
        "layer2.1.conv2",
    )
    with pytest.raises(CutNotFound):
        adapt(Pictures(), LORA, "unknown")


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "prefix"},
        {"rank": 0},
        {"rank": True},
        {"alpha": -1},
        {"alpha": float("inf")},
        {"layers": ["layer9.*"]},
        {"layers": [3]},
        {"layers": 3},
    ],
)
def test_an_adapter_that_cannot_be_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(HeadMismatch):
        adapt(Pictures(), LORA | changes)


def test_the_hint_lists_layers() -> None:
    with pytest.raises(HeadMismatch) as caught:
        adapt(rest_of(Pictures(), "avgpool"), LORA | {"layers": ["layer2.*"]})
    assert caught.value.hint == "Layers that can be adapted: fc."


def test_tensors_and_modules_can_be_frozen_by_path() -> None:
    network = Tied()
    freeze(network, ["body.0", "embed.weight", "norm.bias"])
    frozen = {path for path, p in network.named_parameters() if not p.requires_grad}
    assert frozen == {"body.0.weight", "body.0.bias", "embed.weight", "norm.bias"}
    assert not network.out.weight.requires_grad


def test_a_grouped_convolution_can_be_adapted() -> None:
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Conv2d(4, 4, 3, groups=2, bias=False))
    adapt(layer, LORA)
    drawn(layer)
    x = torch.randn(2, 4, 5, 5)
    expected = layer(x)
    assert torch.equal(merge(layer)(x), expected)


def test_every_network_has_layers_after_its_first_cut() -> None:
    for case in sorted(CASES):
        network = CASES[case][0]()
        assert adaptable(rest_of(network, CASES[case][2][0]))
