"""The learning rate of the first epochs after a warm start."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch import nn

from mmdb.data.decoding import Target
from mmdb.train.candidate.setup import setup_of, setup_of_candidate
from mmdb.train.compute.exact import neutral
from mmdb.train.compute.hop import train_pass
from mmdb.train.compute.live import Live, build_live, encode, restore
from mmdb.train.values.jobs import from_json
from mmdb.train.values.spec import CandidateSpec

TARGET = Target(name="y", task="classification", size=3)
SGD = {"name": "sgd", "momentum": 0.9}


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, 6, generator=generator)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def trained(config: dict[str, Any], *, scale: float = 1.0, passes: int = 2) -> Live:
    """Return a small network after some passes, each an epoch."""
    setup = setup_of(config, [TARGET])
    with neutral(0):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        live = build_live(module, setup.config)
        for seed in range(passes):
            x, y = rows()
            setup_now = replace(setup, lr_scale=scale)
            train_pass(live, x, y, setup=setup_now, seed=seed, ends_epoch=True)
    return live


def weights(live: Live) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in live.module.parameters()])


@pytest.mark.parametrize("optimizer", [SGD, "adam", "adamw", "rmsprop"])
def test_a_scaled_pass_is_one_with_another_learning_rate(optimizer: Any) -> None:
    config = {"optimizer": optimizer, "lr": 0.08, "batch_size": 16}
    assert torch.equal(weights(trained(config, scale=0.5)), weights(trained(config | {"lr": 0.04})))


def test_the_state_does_not_show_the_scale() -> None:
    config = {"optimizer": "adam", "lr": 0.08, "schedule": {"name": "exponential", "gamma": 0.5}}
    scaled, plain = trained(config, scale=0.3), trained(config)
    assert scaled.optimizer.param_groups[0]["lr"] == plain.optimizer.param_groups[0]["lr"] == 0.02
    assert scaled.schedule is not None and plain.schedule is not None
    assert scaled.schedule.state_dict() == plain.schedule.state_dict()
    assert not torch.equal(weights(scaled), weights(plain))


def test_a_scaled_pass_goes_on_from_an_encoded_state_bit_for_bit() -> None:
    config = {"optimizer": SGD, "lr": 0.05, "batch_size": 16}
    setup = replace(setup_of(config, [TARGET]), lr_scale=0.4)
    once, twice = trained(config, scale=0.4, passes=2), trained(config, scale=0.4, passes=1)
    state = encode(twice)
    fresh = build_live(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), setup.config)
    restore(fresh, state)
    x, y = rows()
    with neutral(0):
        train_pass(fresh, x, y, setup=setup, seed=1, ends_epoch=True)
    assert encode(fresh) == encode(once)


def spec(**changes: Any) -> CandidateSpec:
    whole = CandidateSpec(
        candidate_id=1,
        architecture={"factory": "mlp", "arguments": {}},
        config={"lr": 0.1},
        factories={"mlp": "mmdb.graph.factories:mlp"},
        input_shape=(6,),
        targets=(TARGET,),
        seed=7,
    )
    return replace(whole, **changes)


def test_only_the_first_epochs_are_scaled() -> None:
    candidate = spec(lr_scale=0.3, lr_epochs=2)
    assert [setup_of_candidate(candidate, epoch).lr_scale for epoch in range(4)] == [0.3, 0.3, 1, 1]
    assert setup_of_candidate(spec(), 0).lr_scale == 1


def test_a_candidate_travels_with_its_scale() -> None:
    candidate = spec(lr_scale=0.1 + 0.2, lr_epochs=5)
    assert from_json(CandidateSpec, json.loads(json.dumps(asdict(candidate)))) == candidate
