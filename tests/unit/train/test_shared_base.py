"""Adapted candidates whose states leave out what their base has: the same bits, in less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from mmdb.data.decoding import Target
from mmdb.errors import BackboneMissing, StateCorrupt
from mmdb.graph.factories import SHIPPED
from mmdb.graph.spec.parse import parse
from mmdb.train.candidate.setup import setup_of_candidate
from mmdb.train.compute.backbone import Backbones
from mmdb.train.compute.hop import train_pass
from mmdb.train.compute.live import Live, build, encode, packed, restore, weights
from mmdb.train.compute.shared_base import left_out
from mmdb.train.values.spec import CandidateSpec

NETWORK = "mlp(hidden=[8, 8], batch_norm=true, dropout=0.3)"
MODEL = "ab" * 32


BERT = (
    "transformers:bert(hidden_size=8, num_hidden_layers=1, num_attention_heads=2,"
    " intermediate_size=16, vocab_size=20)"
)


def spec(**config: Any) -> CandidateSpec:
    adapter = {"name": "lora", "rank": 2, "layers": ["1", "5"], "train": ["9"]}
    return CandidateSpec(
        candidate_id=1,
        architecture=dict(parse({"adapted": NETWORK, "adapter": adapter})),
        config={"lr": 0.05, "optimizer": "adamw", "weight_decay": 0.1, **config},
        factories=dict(SHIPPED),
        input_shape=(5,),
        targets=(Target(name="y", task="classification", size=3),),
        seed=7,
    )


def texts() -> CandidateSpec:
    """Return a candidate with buffers that its state dict leaves out."""
    adapter = {"name": "lora", "layers": ["*.query"], "train": ["classifier"]}
    return replace(
        spec(optimizer="adam"),
        architecture=dict(parse({"adapted": BERT, "adapter": adapter})),
        factories={**SHIPPED, "transformers": "mmdb.graph.libraries:transformers"},
        input_shape=(6,),
    )


def begun(candidate: CandidateSpec) -> tuple[Live, Backbones, CandidateSpec]:
    """Return a candidate whose states leave its base out, and where that is."""
    whole = build(candidate)
    live = left_out(whole, candidate, MODEL, whole.module.state_dict())
    assert live.base is not None
    backbones = Backbones()
    backbones.take(live.base, packed(whole.module.state_dict()))
    return live, backbones, replace(candidate, base=live.base)


def trained(live: Live, candidate: CandidateSpec) -> Live:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, *candidate.input_shape, generator=generator)
    if candidate.input_shape == (6,):
        x = x.abs().long() + 1
    y = torch.randint(0, 3, (64,), generator=generator)
    setup = setup_of_candidate(candidate, 0)
    train_pass(live, x, y, setup=setup, seed=11, ends_epoch=True)
    return live


@pytest.mark.parametrize(
    "candidate",
    [spec(optimizer="adamw"), spec(optimizer="sgd"), texts()],
    ids=["adamw", "sgd", "texts"],
)
def test_the_bits_are_those_of_whole_states(candidate: CandidateSpec) -> None:
    whole = trained(build(candidate), candidate)
    live, backbones, shared = begun(candidate)
    passed = build(shared, backbones=backbones)
    restore(passed, encode(live))
    state = encode(trained(passed, shared))
    assert len(state) < len(encode(whole))
    again = build(shared, backbones=backbones)
    restore(again, state)
    expected = whole.module.state_dict()
    for path, tensor in again.module.state_dict().items():
        assert torch.equal(expected[path], tensor), path
    assert encode(again) == state


def test_candidates_share_the_memory_of_their_base() -> None:
    live, backbones, shared = begun(spec())
    one, other = (build(shared, backbones=backbones) for _ in range(2))
    restore(one, encode(live))
    restore(other, encode(live))
    trained(one, shared)
    given = backbones.tensors(shared.base or "")
    assert "2.running_mean" in live.omitted
    for path in live.omitted:
        places = {tensors[path].data_ptr() for tensors in (given, *_dicts(one, other))}
        assert len(places) == 1, path
    kept = weights(packed(build(spec()).module.state_dict()))
    assert all(torch.equal(given[path], kept[path]) for path in live.omitted)


def _dicts(*lives: Live) -> list[dict[str, torch.Tensor]]:
    return [dict(live.module.state_dict()) for live in lives]


def test_what_a_model_has_otherwise_stays_in_the_state() -> None:
    candidate = spec()
    live = build(candidate)
    tensors = dict(live.module.state_dict())
    tensors["1.weight"] = tensors["1.weight"] + 1e-3
    assert left_out(live, candidate, MODEL, tensors) is live
    del tensors["1.weight"]
    assert left_out(live, candidate, MODEL, tensors) is live


def test_another_base_is_refused() -> None:
    live, backbones, shared = begun(spec())
    state = encode(live)
    with pytest.raises(StateCorrupt, match="another base"):
        restore(build(spec()), state)
    changed = dict(live.module.state_dict())
    changed["1.weight"] = changed["1.weight"] + 1e-3
    backbones.take(shared.base or "", packed(changed))
    with pytest.raises(BackboneMissing, match="has other tensors"):
        build(shared, backbones=backbones)
    with pytest.raises(BackboneMissing, match="not here"):
        build(shared)
