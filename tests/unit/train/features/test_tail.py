"""What of a candidate with frozen layers trains, and what comes out of it as a whole."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmdb.errors import BackboneMismatch, BackboneMissing, CutNotFound, HeadMismatch, NotACut
from mmdb.graph.spec.build import build as build_module
from mmdb.graph.spec.build import initial_module
from mmdb.train.compute.backbone import Backbones
from mmdb.train.compute.live import build, encode, packed, restore
from mmdb.train.compute.trainable_head import needs_backbone, tensors_of, whole_module
from mmdb.train.values.feature_spec import CHOICES, Frozen
from mmdb.train.values.spec import CandidateSpec
from tests.unit.train.features.networks import (
    CLASSES,
    FACTORIES,
    LINEAR,
    LORA,
    MLP,
    SHAPE,
    candidate,
    freezing,
)

MODEL = "12"
WEIGHTS = ("weight", "bias")
RESTS: dict[str, dict[str, Any]] = {
    "head": {},
    "rest": {"head": None, "pool": "none"},
    "adapter": {"head": None, "pool": "none", "adapter": LORA},
}


def parent(outputs: int = 7) -> Any:
    return initial_module("small", {}, SHAPE, outputs, FACTORIES, seed=77)


def holding(module: nn.Module) -> Backbones:
    backbones = Backbones()
    backbones.take(MODEL, packed(module.state_dict()))
    return backbones


def rows(count: int = 5) -> Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(2))


def stepped(spec: CandidateSpec, backbones: Backbones) -> tuple[Any, bytes]:
    """Return a candidate's module after a step of its optimizer, and its state."""
    live = build(spec, backbones=backbones)
    for k, parameter in enumerate(live.module.parameters()):
        if parameter.requires_grad:
            parameter.grad = torch.full_like(parameter, 0.1 * (k + 1))
    live.optimizer.step()
    return live.module, encode(live)


def test_the_rest_begins_with_the_weights_of_the_candidate_seed() -> None:
    spec = candidate(freezing(**RESTS["rest"]), seed=31)
    alone = initial_module("small", {}, SHAPE, CLASSES, FACTORIES, seed=31)
    tail, own = tensors_of(build(spec).module), tensors_of(alone)
    assert tail.keys() == {path for path in own if not path.startswith("stem")}
    assert all(torch.equal(tensor, own[path]) for path, tensor in tail.items())


def test_a_head_is_the_candidate_seed_and_the_layers_before_it_are_the_run_seed() -> None:
    one, other = (candidate(freezing(), seed=seed) for seed in (31, 32))
    backbones = Backbones()
    a, b = (build(spec, backbones=backbones) for spec in (one, other))
    assert not any(map(torch.equal, a.module.parameters(), b.module.parameters()))
    assert a.frozen is not None and a.frozen is b.frozen  # the same object: it is never copied
    alone = initial_module("linear", {}, (6,), CLASSES, FACTORIES, seed=31)
    found = [p for p, t in alone.state_dict().items() if torch.equal(t, a.module.state_dict()[p])]
    assert found == list(alone.state_dict())
    frozen: Any = initial_module("small", {}, SHAPE, CLASSES, FACTORIES, seed=9)
    held = a.frozen.state_dict()
    assert held.keys() == {f"stem.{path}" for path in frozen.stem.state_dict()}
    assert all(torch.equal(held[path], frozen.state_dict()[path]) for path in held)


def test_with_a_model_the_rest_takes_what_fits_and_draws_what_does_not() -> None:
    model, spec = parent(outputs=7), candidate(freezing(backbone=MODEL, **RESTS["rest"]), seed=31)
    tail = build(spec, backbones=holding(model)).module.state_dict()
    alone = initial_module("small", {}, SHAPE, CLASSES, FACTORIES, seed=31).state_dict()
    for path, tensor in tail.items():
        source = alone if path.startswith("fc.") else model.state_dict()
        assert torch.equal(tensor, source[path]), path


def test_an_adapter_leaves_the_base_out_of_the_state_and_unchanged() -> None:
    backbones = holding(parent(outputs=CLASSES))
    spec = candidate(freezing(backbone=MODEL, **RESTS["adapter"]))
    before = copy.deepcopy(backbones.of(spec).network.state_dict())
    _, state = stepped(spec, backbones)
    after = backbones.of(spec).network.state_dict()
    assert all(torch.equal(before[path], after[path]) for path in before)
    names = build(spec, backbones=backbones, blank=True).omitted
    assert names == {f"{p}.{w}" for p in ("middle", "last", "norm", "fc") for w in WEIGHTS}
    whole = candidate(freezing(backbone=MODEL, **RESTS["rest"]))
    _, all_of_it = stepped(whole, backbones)
    assert len(state) < len(all_of_it)


def test_an_adapter_begins_as_the_model_and_passes_by_what_the_model_lacks() -> None:
    model, backbones = parent(outputs=7), holding(parent(outputs=7))
    spec = candidate(freezing(backbone=MODEL, **RESTS["adapter"]))
    live = build(spec, backbones=backbones)
    module: Any = live.module
    trains = {path for path, p in module.named_parameters() if p.requires_grad}
    layers = {f"{layer}.adapter_{ab}" for layer in ("middle", "last") for ab in "ab"}
    assert trains == layers | {"fc.weight", "fc.bias"}
    assert not live.omitted & trains
    module.fc = model.fc
    with torch.no_grad():
        features = backbones.of(spec).prefix("stem")(rows())
        assert torch.equal(module.eval()(features), model.eval()(rows()))


@pytest.mark.parametrize("kind", RESTS)
def test_a_state_in_another_session_is_the_same_state(kind: str) -> None:
    model = parent(outputs=CLASSES)
    spec = candidate(freezing(backbone=MODEL, **RESTS[kind]))
    _, state = stepped(spec, holding(model))
    live = build(spec, backbones=holding(model), blank=True)
    restore(live, state)
    assert encode(live) == state


@pytest.mark.parametrize("kind", RESTS)
def test_the_whole_module_computes_what_its_parts_do(kind: str) -> None:
    backbones = holding(parent(outputs=CLASSES))
    spec = candidate(freezing(backbone=MODEL, **RESTS[kind]))
    tail, _ = stepped(spec, backbones)
    frozen = spec.frozen
    assert frozen is not None
    with torch.no_grad():
        features = backbones.of(spec).prefix(frozen.cut, frozen.pool)(rows())
        expected = tail.eval()(features)
        whole = whole_module(spec, tail, backbones)
        assert torch.equal(whole.eval()(rows()), expected)
    assert all(parameter.requires_grad for parameter in whole.parameters())
    shared = {tensor.data_ptr() for tensor in tensors_of(backbones.of(spec).network).values()}
    assert not shared & {tensor.data_ptr() for tensor in whole.state_dict().values()}


@pytest.mark.parametrize("choice", ["streamed", "whole"])
@pytest.mark.parametrize("head", [LINEAR, MLP])
def test_the_whole_module_is_of_an_architecture(head: dict[str, Any], choice: str) -> None:
    spec = candidate(freezing(head=head, choice=choice))
    whole = whole_module(spec, build(spec).module, Backbones())
    written = {"backbone": spec.architecture, "cut": "stem", "pool": "auto", "head": head}
    again = build_module(written, {}, SHAPE, CLASSES, FACTORIES)
    again.load_state_dict(whole.state_dict())
    with torch.no_grad():
        assert torch.equal(again.eval()(rows()), whole.eval()(rows()))


def test_what_is_whole_trains_only_after_the_cut() -> None:
    for values in RESTS.values():
        spec = candidate(freezing(choice="whole", **values))
        live = build(spec)
        trains = {path for path, p in live.module.named_parameters() if p.requires_grad}
        assert trains and not any("stem" in path for path in trains)
        place = "backbone." if spec.frozen and spec.frozen.head else ""
        assert f"{place}stem.1.running_mean" in live.module.state_dict()
        live.module.train()
        live.module(rows())
        assert live.module.state_dict()[f"{place}stem.1.running_mean"].abs().sum() > 0


def test_an_adapter_in_a_whole_network_is_all_that_trains() -> None:
    spec = candidate(freezing(choice="whole", **RESTS["adapter"]))
    module, _ = stepped(spec, Backbones())
    trains = {path for path, p in module.named_parameters() if p.requires_grad}
    layers = {f"{layer}.adapter_{ab}" for layer in ("middle", "last", "fc") for ab in "ab"}
    assert trains == layers
    features = module.eval()(rows())
    whole = whole_module(spec, module, Backbones())
    assert (
        whole.state_dict().keys()
        == initial_module("small", {}, SHAPE, 3, FACTORIES, seed=1).state_dict().keys()
    )
    assert torch.equal(whole(rows()), features)


def test_a_tensor_on_both_sides_of_the_cut_is_frozen_on_both() -> None:
    spec = candidate(freezing(cut="first", pool="none", head=None), factory="tied")
    backbones = Backbones()
    module, _ = stepped(spec, backbones)
    frozen: Any = initial_module("tied", {}, SHAPE, CLASSES, FACTORIES, seed=9)
    assert torch.equal(module.again.weight, frozen.first.weight)
    assert not module.again.weight.requires_grad
    whole: Any = whole_module(spec, module, backbones)
    assert whole.again.weight is whole.first.weight


def test_a_model_whose_tensors_are_not_here() -> None:
    head, rest = (
        candidate(freezing(backbone=MODEL, choice="stored", **RESTS[k]))
        for k in RESTS
        if k != "adapter"
    )
    assert build(head, feature_shape=(6,)).module is not None
    for spec in (rest, candidate(freezing(backbone=MODEL))):
        with pytest.raises(BackboneMissing):
            build(spec)
    assert build(rest, blank=True).module is not None


@pytest.mark.parametrize(
    ("kind", "choice", "initial", "later"),
    [
        ("head", "stored", False, False),
        ("head", "memory", False, False),
        ("head", "recomputed", True, True),
        ("head", "streamed", True, True),
        ("head", "whole", True, False),
        ("rest", "stored", True, False),
        ("rest", "streamed", True, True),
        ("adapter", "stored", True, True),
    ],
)
def test_when_the_model_is_needed(kind: str, choice: str, initial: bool, later: bool) -> None:
    spec = candidate(freezing(backbone=MODEL, choice=choice, **RESTS[kind]))
    assert (needs_backbone(spec, None), needs_backbone(spec, "ab")) == (initial, later)
    of_a_seed = replace(spec, frozen=replace(spec.frozen or Frozen(cut=""), backbone=None))
    assert not needs_backbone(of_a_seed, None)
    assert not needs_backbone(replace(spec, frozen=None), None)


def test_a_model_that_lacks_a_frozen_tensor() -> None:
    spec = candidate(freezing(backbone=MODEL))
    with pytest.raises(BackboneMismatch, match=r"stem\.0\.weight"):
        build(spec, backbones=holding(nn.Linear(3, 3)))
    double = parent().double()
    with pytest.raises(BackboneMismatch):
        build(spec, backbones=holding(double))


def test_cuts_and_heads_that_do_not_fit() -> None:
    with pytest.raises(CutNotFound):
        build(candidate(freezing(cut="nowhere")))
    with pytest.raises(NotACut, match="Nothing trains"):
        build(candidate(freezing(cut="fc", pool="none", head=None)))
    with pytest.raises(HeadMismatch):
        build(candidate(freezing(head={"factory": "cnn", "arguments": {}})))
    missing = LORA | {"layers": ["nowhere.*"]}
    with pytest.raises(HeadMismatch, match="nowhere"):
        build(candidate(freezing(head=None, pool="none", adapter=missing)))


@pytest.mark.parametrize("choice", CHOICES)
def test_auto_pools_as_the_shape_says(choice: str) -> None:
    auto, mean = (candidate(freezing(pool=pool, choice=choice)) for pool in ("auto", "mean"))
    assert encode(build(auto)) == encode(build(mean))


def test_backbones_keep_what_was_used_last() -> None:
    backbones = Backbones(limit=1)
    for name in ("a", "b"):
        backbones.take(name, packed(parent().state_dict()))
    assert (backbones.names, backbones.has("a"), backbones.has("b")) == (["b"], False, True)
    first, second = (candidate(freezing(seed=seed)) for seed in (1, 2))
    held = backbones.of(first)
    assert backbones.of(first) is held
    backbones.of(second)
    assert backbones.of(first) is not held
