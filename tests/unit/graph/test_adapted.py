"""Frozen networks with adapters: what trains, what they answer at first, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from mmdb.errors import ArchitectureError, HeadMismatch, InvalidLayerGraph
from mmdb.graph.factories import SHIPPED
from mmdb.graph.spec.build import initial_module
from mmdb.graph.spec.parse import factories_in, parse, with_arguments
from mmdb.store.models.model_rows import ModelDefinition
from mmdb.store.models.module import build_empty

NETWORK = "mlp(hidden=[8, 6])"
ADAPTED: dict[str, Any] = {
    "adapted": NETWORK,
    "adapter": {"name": "lora", "rank": 2, "alpha": 4, "layers": ["*"], "train": ["5"]},
}


def made(architecture: Any, **arguments: object) -> torch.nn.Module:
    return initial_module(architecture, arguments, (5,), 3, SHIPPED, seed=2)


def test_only_the_adapter_and_what_is_named_trains() -> None:
    module, plain = made(ADAPTED), made(NETWORK)
    trained = {path for path, p in module.named_parameters() if p.requires_grad}
    adapters = {f"{layer}.adapter_{matrix}" for layer in "13" for matrix in "ab"}
    assert trained == {"5.weight", "5.bias", *adapters}
    x = torch.randn(4, 5)
    assert torch.equal(module(x), plain(x))  # B is zero, and the network has the seed's weights
    assert set(plain.state_dict()) == set(module.state_dict()) - adapters


@pytest.mark.parametrize("trained", [[], ["2"]])
def test_frozen_normalisations_learn_no_statistics(trained: list[str]) -> None:
    plain = made("mlp(hidden=[8], batch_norm=true)")
    (norm,) = (name for name, part in plain.named_modules() if isinstance(part, nn.BatchNorm1d))
    assert norm == "2"
    adapter = {"name": "lora", "layers": ["1"], "train": trained}
    module = made({"adapted": "mlp(hidden=[8], batch_norm=true)", "adapter": adapter}).train()
    before = {path: buffer.clone() for path, buffer in module.named_buffers()}
    x = torch.randn(6, 5)
    assert torch.equal(module(x), plain.eval()(x)) is not bool(trained)
    same = [torch.equal(before[path], buffer) for path, buffer in module.named_buffers()]
    assert all(same) is not bool(trained)
    assert isinstance(copy.deepcopy(module).get_submodule("2"), nn.BatchNorm1d)


def test_rank_and_alpha_may_be_searched_for() -> None:
    module = made(ADAPTED, rank=3, hidden=[7, 6])
    shapes = {p.shape for path, p in module.named_parameters() if path.endswith("adapter_a")}
    assert shapes == {(3, 5), (3, 7)}
    changed = with_arguments(parse(ADAPTED), {"rank": 3, "hidden": [7, 6]})
    assert changed["adapter"] == {**ADAPTED["adapter"], "rank": 3}
    assert factories_in(changed) == ("mlp",)
    assert made(changed).state_dict().keys() == module.state_dict().keys()


def test_it_is_built_without_memory() -> None:
    definition = ModelDefinition(
        architecture=parse(ADAPTED), arguments={"rank": 1}, input_shape=(5,), outputs=3
    )
    empty = build_empty(definition, SHIPPED)
    assert all(tensor.is_meta for tensor in empty.state_dict().values())
    assert empty.state_dict().keys() == made(ADAPTED, rank=1).state_dict().keys()


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"adapter": {"name": "dora"}}, HeadMismatch, "no adapter 'dora'"),
        ({"adapter": {"name": "lora", "layers": ["q"]}}, HeadMismatch, "no layer"),
        ({"adapter": {"name": "lora", "train": ["nothing"]}}, HeadMismatch, "named 'nothing'"),
        ({"adapter": {"name": "lora", "train": "5"}}, HeadMismatch, "patterns"),
        ({"adapter": {"name": "lora", "train": ["*"]}}, HeadMismatch, "every layer"),
        ({"adapter": None}, InvalidLayerGraph, "an adapter is an object"),
        ({"adapted": ADAPTED}, InvalidLayerGraph, "one network without an adapter"),
        ({"adapted": {"mean": [NETWORK, "linear"]}}, InvalidLayerGraph, "one network"),
        ({"more": 1}, InvalidLayerGraph, "unknown key 'more'"),
    ],
)
def test_what_does_not_fit_says_why(
    changed: dict[str, Any], error: type[ArchitectureError], said: str
) -> None:
    with pytest.raises(error, match=said):
        made({**ADAPTED, "adapter": {"name": "lora"}, **changed})
