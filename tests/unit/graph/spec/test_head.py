from __future__ import annotations

import copy
import json
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from mmdb.errors import (
    CutNotFound,
    FactoryFailed,
    FactoryNotAllowed,
    HeadMismatch,
    InvalidLayerGraph,
    UnknownFactory,
)
from mmdb.graph.cut.cut import prefix_of
from mmdb.graph.factories import SHIPPED
from mmdb.graph.spec.build import architecture_of, build, check_output, initial_module
from mmdb.graph.spec.factory_call import Shape
from mmdb.graph.spec.head import Headed, build_head, pooled_shape, resolve_pool
from mmdb.graph.spec.layer_form import to_layer_graph, traced
from mmdb.graph.spec.layer_graph import build_sized_layers
from tests.unit.graph.cut.networks import Masked, Pictures, Words, masked, pictures, words

FACTORIES = {
    "pictures": f"{__name__}:make_pictures",
    "words": f"{__name__}:make_words",
    "masked": f"{__name__}:make_masked",
    "own": f"{__name__}:make_own",
}


def make_pictures(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    return Pictures()


def make_words(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    return Words()


def make_masked(input_shape: dict[str, tuple[int, ...]], outputs: int) -> nn.Module:
    return Masked()


class Two(nn.Module):
    """A head for two labels."""

    def __init__(self, width: int, outputs: dict[str, int]) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({name: nn.Linear(width, n) for name, n in outputs.items()})

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {name: part(x) for name, part in self.parts.items()}


def make_own(input_shape: tuple[int, ...], outputs: Any) -> nn.Module:
    return Two(input_shape[0], outputs) if isinstance(outputs, dict) else nn.Linear(7, outputs)


# -- pools ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "shape", "has_head", "meant"),
    [
        ("auto", (8, 4, 4), True, "mean"),
        ("auto", (5, 8), True, "mean"),
        ("auto", (8,), True, "none"),
        ("auto", (8, 4, 4), False, "none"),
        ("mean", (8,), True, "none"),
        ("flatten", (8, 4), True, "flatten"),
        ("none", (8, 4), True, "none"),
        ("none", (8, 4), False, "none"),
    ],
)
def test_a_pool_is_resolved_by_the_shape_and_the_head(
    pool: str, shape: tuple[int, ...], has_head: bool, meant: str
) -> None:
    assert resolve_pool(pool, shape, has_head=has_head) == meant
    assert resolve_pool(meant, shape, has_head=has_head) == meant


@pytest.mark.parametrize(
    ("cut", "rows"), [("layer1", pictures(3)), ("avgpool", pictures(3)), ("fc", pictures(3))]
)
@pytest.mark.parametrize("pool", ["mean", "flatten", "none"])
def test_pooled_features_have_the_shape_that_is_said(cut: str, rows: Tensor, pool: str) -> None:
    network = Pictures()
    shape = tuple(prefix_of(network, cut)(rows).shape[1:])
    found = prefix_of(network, cut, pool)(rows)
    assert tuple(found.shape[1:]) == pooled_shape(pool, shape)


def test_a_sequence_is_averaged_over_its_positions() -> None:
    network = Words()
    x = words()
    tokens = prefix_of(network, "encoder")(x)
    assert torch.equal(prefix_of(network, "encoder", "mean")(x), tokens.mean(dim=1))


@pytest.mark.parametrize("pool", ["median", "mean", "flatten"])
def test_a_pool_that_cannot_be_is_refused(pool: str) -> None:
    with pytest.raises(HeadMismatch):
        resolve_pool(pool, (8, 4, 4), has_head=False)


# -- heads ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        "linear",
        "mlp",
        "mlp(hidden=[5, 4], dropout=0.5)",
        {"factory": "mlp", "arguments": {"hidden": 5}},
        {"layers": [{"name": "fc", "op": "Linear", "args": {"out_features": "$outputs"}}]},
    ],
)
def test_a_head_reads_features(head: str | dict[str, object]) -> None:
    torch.manual_seed(0)
    made = build_head(head, (6,), 4, {})
    assert made(torch.randn(3, 6)).shape == (3, 4)
    torch.manual_seed(0)
    again = build_head(head, (6,), 4, {}, check=False)
    for a, b in zip(made.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("head", "outputs"),
    [("cnn", 4), ("own", 4), ("linear", {"a": 2, "b": 3}), ("mlp(hidden=0)", 4)],
)
def test_a_head_that_does_not_fit_is_refused(head: str, outputs: Any) -> None:
    with pytest.raises(HeadMismatch, match="features of shape"):
        build_head(head, (6,), outputs, FACTORIES)


def test_a_head_of_several_labels_comes_from_a_factory() -> None:
    made = build_head("own", (6,), {"a": 2, "b": 3}, FACTORIES)
    assert {name: y.shape for name, y in made(torch.randn(5, 6)).items()} == {
        "a": (5, 2),
        "b": (5, 3),
    }


def test_a_factory_that_is_not_registered_is_told() -> None:
    with pytest.raises(UnknownFactory, match="mpl"):
        build_head("mpl", (6,), 4, {})


# -- a backbone and a head as an architecture -------------------------------------


def headed(**changes: object) -> dict[str, object]:
    return {"backbone": "pictures", "cut": "layer1", "head": "mlp(hidden=[5])", **changes}


def test_a_backbone_with_a_head_is_an_architecture() -> None:
    module = initial_module(headed(), {}, (3, 8, 8), 4, FACTORIES, seed=1)
    paths = list(module.state_dict())
    assert {path.split(".")[0] for path in paths} == {"backbone", "head"}
    assert "backbone.layer1.1.conv2.weight" in paths and "backbone.fc.weight" not in paths
    assert all(parameter.requires_grad for parameter in module.parameters())
    check_output(module, (3, 8, 8), 4)
    alike = initial_module(headed(), {}, (3, 8, 8), 4, FACTORIES, seed=1)
    assert all(
        torch.equal(a, b)
        for a, b in zip(module.state_dict().values(), alike.state_dict().values(), strict=True)
    )


def test_arguments_are_those_of_the_backbone() -> None:
    form = {"backbone": "resnet", "cut": "3", "head": "linear"}
    module = build(form, {"width": 4}, (3, 8, 8), 2, SHIPPED)
    assert module.state_dict()["backbone.0.weight"].shape == (4, 3, 3, 3)


def test_it_computes_what_its_parts_do_and_can_be_copied() -> None:
    module = initial_module(headed(), {}, (3, 8, 8), 4, FACTORIES, seed=1).eval()
    assert isinstance(module, Headed)
    x = pictures()
    assert torch.equal(module(x), module.head(module.backbone(x)))
    other = copy.deepcopy(module)
    assert isinstance(other, Headed) and torch.equal(other(x), module(x))
    torch.nn.init.zeros_(cast("Tensor", other.head.get_parameter("1.weight")))
    assert not torch.equal(other(x), module(x))


def test_it_is_traced_and_written_as_layers() -> None:
    module = initial_module(headed(), {}, (3, 8, 8), 4, FACTORIES, seed=1)
    structure = traced(module)
    assert structure.is_traced
    ops = [node.op for node in structure.nodes]
    assert ops[-5:] == ["mean", "flatten", "linear", "relu", "linear", "output"][-5:]
    assert (
        structure.canonical_hash
        == architecture_of(headed(), {}, (3, 8, 8), 4, FACTORIES).canonical_hash
    )
    form = to_layer_graph(module)
    assert form.graph is not None, form.reason
    rebuilt = build_sized_layers(json.loads(json.dumps(form.graph)))
    rebuilt.load_state_dict(module.state_dict())
    x = pictures()
    assert torch.equal(rebuilt.eval()(x), module.eval()(x))


def test_int64_rows_and_inputs_by_name_pass() -> None:
    form = headed(backbone="words", cut="encoder.layers.1")
    module = initial_module(form, {}, (5,), 4, FACTORIES, seed=1)
    check_output(module, (5,), 4, "int64")
    form = headed(backbone="masked", cut="pooler", head="linear")
    shapes: Shape = {"ids": (5,), "mask": (5,)}
    module = initial_module(form, {}, shapes, 4, FACTORIES, seed=1).eval()
    assert module(**masked()).shape == (4, 4)
    assert sum(node.op == "input" for node in traced(module).nodes) == 2


def test_a_head_can_stand_on_a_network_with_a_head() -> None:
    form = {"backbone": headed(), "cut": "head.2", "head": "linear"}
    module = initial_module(form, {}, (3, 8, 8), 4, FACTORIES, seed=1)
    assert "backbone.backbone.layer1.0.bn1.weight" in module.state_dict()
    check_output(module, (3, 8, 8), 4)


@pytest.mark.parametrize(
    ("form", "error"),
    [
        (headed(cut="layer7"), CutNotFound),
        (headed(cut=""), InvalidLayerGraph),
        (headed(cut=3), InvalidLayerGraph),
        (headed(head=None), InvalidLayerGraph),
        (headed(head="cnn"), HeadMismatch),
        (headed(pool="best"), HeadMismatch),
        (headed(pool=["mean"]), InvalidLayerGraph),
        (headed(more=1), InvalidLayerGraph),
        (headed(backbone={"layers": []}), InvalidLayerGraph),
        (headed(backbone="nothing"), UnknownFactory),
        (headed(head="os:system"), FactoryNotAllowed),
        (headed(head="mlp(3)"), FactoryFailed),
        ({"backbone": "pictures", "cut": "layer1"}, InvalidLayerGraph),
    ],
)
def test_what_is_no_backbone_with_a_head_is_refused(
    form: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        build(form, {}, (3, 8, 8), 4, {**SHIPPED, **FACTORIES})


def test_backbones_do_not_nest_without_end() -> None:
    form: dict[str, object] = headed()
    for _ in range(20):
        form = headed(backbone=form)
    with pytest.raises(InvalidLayerGraph, match="deep"):
        build(form, {}, (3, 8, 8), 4, FACTORIES)
