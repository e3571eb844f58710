"""The mean of states: numbers made by hand, and a state that training goes on from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmdb.errors import StatesDiffer
from mmdb.train.compute.hop import train_pass
from mmdb.train.compute.live import Live, encode, restore, state_hash, weights
from mmdb.train.group.group_pass import WeightedMean, average
from tests.ranks import live_of, rows_of, setup_from

CONFIG: dict[str, Any] = {
    "lr": 0.01,
    "batch_size": 8,
    "schedule": {"name": "step", "step_size": 1, "gamma": 0.5},
}


def trained(seed: int, rows: int, config: dict[str, Any] = CONFIG, module: str = "mlp") -> Live:
    """Return a candidate after one hop from its initial state."""
    setup = setup_from(config)
    live = live_of(module, setup)
    train_pass(live, *rows_of(seed, rows), setup=setup, seed=seed, ends_epoch=True)
    return live


def test_the_mean_is_weighted_by_rows() -> None:
    lives = [trained(1, 10), trained(2, 30)]
    found = live_of("mlp", setup_from(CONFIG))
    restore(found, average([encode(live) for live in lives], [10, 30]))
    first, second = (live.module.state_dict() for live in lives)
    for path, tensor in found.module.state_dict().items():
        if path.endswith("num_batches_tracked"):
            assert [first[path], second[path], tensor] == [2, 4, 4]
        else:
            exact = (first[path].double() * 10 + second[path].double() * 30) / 40
            assert torch.equal(tensor, exact.float())
    moments = [live.optimizer.state_dict()["state"][0] for live in (*lives, found)]
    assert [entry["step"].item() for entry in moments] == [2, 4, 4]
    exact = (moments[0]["exp_avg"].double() * 10 + moments[1]["exp_avg"].double() * 30) / 40
    assert torch.equal(moments[2]["exp_avg"], exact.float())
    assert found.optimizer.param_groups[0]["lr"] == 0.005
    assert found.schedule is not None and found.schedule.last_epoch == 1
    assert torch.equal(found.generator, lives[0].generator)


def test_the_mean_of_a_state_and_itself_is_that_state() -> None:
    state = encode(trained(1, 10))
    assert average([state], [3]) == state
    assert average([state] * 3, [3, 7, 11]) == state


def test_a_mean_is_encoded_as_the_live_state_that_it_becomes() -> None:
    config = CONFIG | {"optimizer": {"name": "sgd", "momentum": 0.9}}
    merged = average([encode(trained(k, 10 + k, config)) for k in range(3)], [10, 11, 12])
    again = live_of("mlp", setup_from(config))
    restore(again, merged)
    assert encode(again) == merged


def test_a_mean_has_the_same_hash_every_time() -> None:
    states = [encode(trained(k, 12)) for k in range(3)]
    found = {state_hash(average(iter(states), [5, 6, 7])) for _ in range(2)}
    assert len(found) == 1
    assert found != {state_hash(average(states, [7, 6, 5]))}


def test_frozen_weights_and_endless_buffers_stay_as_they_are() -> None:
    mean = WeightedMean()
    mask = torch.tensor([0.1, float("-inf")], dtype=torch.float64)
    for weight in (3, 7, 9):
        mean.add({"mask": mask.clone(), "moved": torch.tensor([float(weight)])}, weight)
    assert torch.equal(mean.result()["mask"], mask)
    assert mean.result()["moved"].item() == torch.tensor((9 + 49 + 81) / 19).item()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([torch.tensor([1, 5]), torch.tensor([4, 2])], torch.tensor([4, 5])),
        ([torch.tensor([True, False]), torch.tensor([False, False])], torch.tensor([True, False])),
        ([torch.tensor([1.0]).bfloat16(), torch.tensor([2.0]).bfloat16()], torch.tensor([1.75])),
        ([torch.tensor([1j]), torch.tensor([1 + 0j])], torch.tensor([0.75 + 0.25j])),
        ([torch.zeros(0), torch.zeros(0)], torch.zeros(0)),
    ],
)
def test_each_type_has_its_mean(values: list[Tensor], expected: Tensor) -> None:
    mean = WeightedMean()
    for value, weight in zip(values, (1, 3), strict=True):
        mean.add({"x": value}, weight)
    found = mean.result()["x"]
    assert found.dtype == values[0].dtype
    assert torch.equal(found, expected.to(found.dtype))


def test_an_entry_that_some_passes_made_is_averaged_over_those() -> None:
    mean = WeightedMean()
    mean.add({"a": torch.tensor([1.0])}, 1)
    mean.add({"a": torch.tensor([2.0]), "late": torch.tensor([6.0])}, 3)
    mean.add({"late": torch.tensor([2.0])}, 1)
    found = mean.result()
    assert (found["a"].item(), found["late"].item()) == (1.75, 5.0)


def test_states_of_other_candidates_are_refused() -> None:
    with pytest.raises(StatesDiffer, match="other tensors"):
        average([encode(trained(1, 10)), encode(trained(1, 10, module="linear"))], [1, 1])
    wider = WeightedMean()
    wider.add({"w": torch.zeros(2)}, 1)
    with pytest.raises(StatesDiffer, match="w is torch"):
        wider.add({"w": torch.zeros(3)}, 1)
    with pytest.raises(StatesDiffer, match="no state"):
        average([], [])


def test_tied_weights_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 2, bias=False)
            self.second = nn.Linear(2, 2, bias=False)
            self.second.weight = self.first.weight

    states = []
    for value in (1.0, 2.0):
        module = Tied()
        nn.init.constant_(module.first.weight, value)
        live = Live(module, torch.optim.SGD(module.parameters()), None, torch.zeros(0).byte())
        states.append(encode(live))
    found = weights(average(states, [1, 1]))
    assert found["second.weight"] is found["first.weight"]
    assert found["first.weight"].unique().tolist() == [1.5]
