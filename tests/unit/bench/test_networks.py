"""The networks have the published parameter counts, paths and shapes."""

from __future__ import annotations

import pytest
import torch

from mmdb.bench.networks import FACTORIES, PARAMETERS, empty

#: Tensors in the published state dicts, BatchNorm's buffers included.
TENSORS = {"mobilenet_v2": 314, "resnet18": 122, "resnet152": 932}
SHAPES = {
    "mobilenet_v2": {
        "features.0.0.weight": (32, 3, 3, 3),
        "features.1.conv.0.0.weight": (32, 1, 3, 3),
        "features.1.conv.1.weight": (16, 32, 1, 1),
        "features.2.conv.3.running_var": (24,),
        "features.17.conv.2.weight": (320, 960, 1, 1),
        "features.18.1.num_batches_tracked": (),
        "classifier.1.weight": (1000, 1280),
    },
    "resnet18": {
        "conv1.weight": (64, 3, 7, 7),
        "bn1.running_mean": (64,),
        "layer1.1.conv2.weight": (64, 64, 3, 3),
        "layer2.0.downsample.0.weight": (128, 64, 1, 1),
        "layer4.0.downsample.1.bias": (512,),
        "fc.weight": (1000, 512),
    },
    "resnet152": {
        "layer1.0.downsample.0.weight": (256, 64, 1, 1),
        "layer2.7.bn3.weight": (512,),
        "layer3.35.conv2.weight": (256, 256, 3, 3),
        "layer4.2.conv3.weight": (2048, 512, 1, 1),
        "fc.bias": (1000,),
    },
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_network_has_its_published_number_of_parameters(name: str) -> None:
    module = empty(name)
    assert sum(p.numel() for p in module.parameters()) == PARAMETERS[name]
    assert all(p.is_meta for p in module.parameters())


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_network_has_its_published_state_dict(name: str) -> None:
    state = empty(name).state_dict()
    assert len(state) == TENSORS[name]
    assert {path: tuple(state[path].shape) for path in SHAPES[name]} == SHAPES[name]


def test_a_residual_block_lists_its_tensors_in_the_published_order() -> None:
    paths = [path for path in empty("resnet152").state_dict() if path.startswith("layer1.0.")]
    layers = list(dict.fromkeys(path.removeprefix("layer1.0.").rsplit(".", 1)[0] for path in paths))
    assert layers == [
        "conv1",
        "bn1",
        "conv2",
        "bn2",
        "conv3",
        "bn3",
        "downsample.0",
        "downsample.1",
    ]


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_network_maps_pictures_to_outputs(name: str) -> None:
    module = FACTORIES[name]((1, 64, 64), 7).eval()
    with torch.no_grad():
        assert module(torch.rand(2, 1, 64, 64)).shape == (2, 7)
