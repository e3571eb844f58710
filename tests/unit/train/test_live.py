"""A state that was written and read is the same state: equal bytes now, and after more steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from mmdb.errors import InvalidHyperparameter
from mmdb.train.config import LOSSES, OPTIMIZERS, SCHEDULES, Config, parse_config
from mmdb.train.hop import train_pass
from mmdb.train.live import (
    Live,
    build_live,
    byte_count,
    check_steps,
    encode,
    restore,
    state_hash,
    weights,
)

WIDTH, CLASSES, ROWS = 6, 3, 40
#: What a schedule needs besides its name.
NEEDED: dict[str, dict[str, object]] = {
    "constant": {"factor": 0.5, "total_iters": 3},
    "cosine": {"T_max": 4},
    "cosine_restarts": {"T_0": 2},
    "exponential": {"gamma": 0.9},
    "linear": {"total_iters": 3},
    "multistep": {"milestones": [2, 3, 10]},
    "one_cycle": {"max_lr": 0.05, "total_steps": 100},
    "polynomial": {"total_iters": 5},
    "step": {"step_size": 2},
}
#: Optimizers with more state than by default.
OPTIMIZER_CASES: dict[str, dict[str, object]] = {
    **{name: {"name": name} for name in OPTIMIZERS},
    "sgd with momentum": {"name": "sgd", "momentum": 0.9, "nesterov": True},
    "adam with amsgrad": {"name": "adam", "amsgrad": True},
    "rmsprop centred": {"name": "rmsprop", "centered": True, "momentum": 0.5},
}


class Tied(nn.Module):
    """Two paths to one weight, and one more to its transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, bias=False)
        self.second = nn.Linear(WIDTH, WIDTH, bias=False)
        self.second.weight = self.first.weight
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))  # type: ignore[no-any-return]


class Buffers(nn.Module):
    """Buffers of many types, which change while it is trained; two share memory."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, CLASSES)
        both = torch.arange(8.0)
        for name, value in {
            "brain": torch.ones(3, dtype=torch.bfloat16),
            "small": torch.ones(3, dtype=torch.float16),
            "count": torch.zeros((), dtype=torch.int64),
            "octet": torch.zeros(5, dtype=torch.uint8),
            "flag": torch.zeros(3, dtype=torch.bool),
            "nothing": torch.zeros(0, 4),
            "none_either": torch.zeros(0, 4),
            "left": both[:5],
            "right": both[3:],
            "turned": torch.arange(6.0).reshape(2, 3).T,
        }.items():
            self.register_buffer(name, value)
        self.register_buffer("absent", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.get_buffer("count").add_(1)
            self.get_buffer("brain").mul_(1.1)
            self.get_buffer("left").add_(x.mean())
            self.get_buffer("flag").logical_not_()
        return self.head(x)  # type: ignore[no-any-return]


class Turned(nn.Module):
    """A parameter that is not contiguous, one of no element, and one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, CLASSES).T)
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.frozen = nn.Parameter(torch.ones(CLASSES), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.frozen + self.empty.sum()


class Mixed(nn.Module):
    """Parameters of other types than float32."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Linear(WIDTH, WIDTH, dtype=torch.bfloat16)
        self.wide = nn.Linear(WIDTH, CLASSES, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.wide(torch.tanh(self.narrow(x.bfloat16())).double()).float()  # type: ignore[no-any-return]


def plain() -> nn.Module:
    return nn.Sequential(
        nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, CLASSES)
    )


def recurrent() -> nn.Module:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(WIDTH, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.lstm(x)[0]  # type: ignore[no-any-return]

    return Last()


MODULES: dict[str, Callable[[], nn.Module]] = {
    "plain": plain,
    "tied": Tied,
    "buffers": Buffers,
    "turned": Turned,
    "mixed": Mixed,
    "recurrent": recurrent,
}


def config_of(optimizer: object = "adam", schedule: object = None, per: str = "epoch") -> Config:
    raw: dict[str, object] = {"lr": 0.01, "batch_size": 16, "optimizer": optimizer}
    if isinstance(schedule, str):
        raw["schedule"] = {"name": schedule, "per": per, **NEEDED[schedule]}
    return parse_config(raw, "classification")


def fresh(make: Callable[[], nn.Module], config: Config, seed: int) -> Live:
    torch.manual_seed(seed)
    return build_live(make(), config)


def steps(live: Live, config: Config, seeds: Iterator[int] | range) -> None:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, WIDTH, generator=source)
    y = torch.randint(CLASSES, (ROWS,), generator=source)
    for seed in seeds:
        train_pass(live, x, y, config=config, task="classification", seed=seed, ends_epoch=True)


def assert_same_after_a_round_trip(make: Callable[[], nn.Module], config: Config) -> None:
    kept = fresh(make, config, seed=1)
    for seeds in (range(0), range(3), range(3, 5)):
        steps(kept, config, seeds)
        state = encode(kept)
        read = fresh(make, config, seed=2)
        restore(read, state)
        assert encode(read) == state
        assert state_hash(encode(read)) == state_hash(state)
        steps(read, config, range(7, 11))
        other = fresh(make, config, seed=3)
        restore(other, state)
        steps(kept, config, range(7, 11))
        assert encode(read) == encode(kept)
        restore(kept, state)
        assert encode(kept) == state


@pytest.mark.parametrize("name", OPTIMIZER_CASES)
def test_the_state_of_every_optimizer_survives(name: str) -> None:
    assert_same_after_a_round_trip(plain, config_of(OPTIMIZER_CASES[name]))


@pytest.mark.parametrize("per", ["epoch", "step"])
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("optimizer", ["adam", "sgd with momentum"])
def test_the_state_of_every_schedule_survives(name: str, per: str, optimizer: str) -> None:
    config = config_of(OPTIMIZER_CASES[optimizer], name, per)
    assert_same_after_a_round_trip(plain, config)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("optimizer", ["adam", "nadam", "asgd", "sgd with momentum"])
def test_the_state_of_every_kind_of_module_survives(name: str, optimizer: str) -> None:
    assert_same_after_a_round_trip(MODULES[name], config_of(OPTIMIZER_CASES[optimizer]))


def test_schedules_and_optimizers_are_all_covered() -> None:
    assert set(NEEDED) == set(SCHEDULES)
    assert {"classification", "regression"} == set(LOSSES)


def test_tied_weights_are_written_once_and_stay_tied() -> None:
    live = fresh(Tied, config_of(), seed=1)
    state = encode(live)
    size = int.from_bytes(state[:8], "little")
    names = json.loads(state[8 : 8 + size])
    assert sum(name.endswith("weight") and name.startswith("model.") for name in names) == 2
    found = weights(state)
    assert list(found) != [] and set(found) == set(live.module.state_dict())
    assert found["first.weight"] is found["second.weight"]
    other = fresh(Tied, config_of(), seed=2)
    restore(other, state)
    assert isinstance(other.module, Tied)
    assert other.module.first.weight is other.module.second.weight


def test_weights_are_those_of_the_module() -> None:
    live = fresh(Buffers, config_of(), seed=1)
    steps(live, config_of(), range(2))
    found = weights(encode(live))
    for path, tensor in live.module.state_dict().items():
        assert found[path].dtype == tensor.dtype
        assert torch.equal(found[path], tensor)


def test_different_states_have_different_names() -> None:
    config = config_of()
    names = set()
    for seed in range(4):
        live = fresh(plain, config, seed)
        names.add(state_hash(encode(live)))
        steps(live, config, range(1))
        names.add(state_hash(encode(live)))
    assert len(names) == 8


def test_byte_count_holds_weights_buffers_and_moments() -> None:
    config = config_of("adam")
    live = fresh(plain, config, seed=1)
    numbers = sum(p.numel() for p in live.module.parameters())
    buffers = sum(b.nbytes for b in live.module.buffers())
    assert byte_count(live) == 4 * numbers + buffers
    steps(live, config, range(1))
    steps_taken = 4 * sum(1 for _ in live.module.parameters())
    assert byte_count(live) == 3 * 4 * numbers + buffers + steps_taken


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"optimizer": {"name": "adam", "betas": [0.9]}}, "adam"),
    ({"optimizer": {"name": "adam", "betas": [0.9, 0.9, 0.9]}}, "adam"),
    ({"optimizer": {"name": "adam", "betas": {"a": 1}}}, "adam"),
    ({"optimizer": {"name": "adam", "eps": "small"}}, "adam"),
    ({"optimizer": {"name": "asgd", "lambd": "x"}}, "asgd"),
    ({"optimizer": {"name": "sgd", "nesterov": True}}, "Nesterov"),
    ({"schedule": "step"}, "step_size"),
    ({"schedule": {"name": "step", "step_size": 0}}, "step"),
    ({"schedule": {"name": "step", "step_size": "often"}}, "step"),
    ({"schedule": {"name": "multistep", "milestones": 5}}, "multistep"),
    ({"schedule": {"name": "cosine", "T_max": 0}}, "cosine"),
    ({"schedule": {"name": "cosine", "T_max": "long"}}, "cosine"),
    ({"schedule": {"name": "one_cycle", "max_lr": 0.1, "total_steps": -1}}, "one_cycle"),
]


@pytest.mark.parametrize(("raw", "named"), REFUSED)
def test_arguments_that_torch_refuses_late_are_refused_at_once(
    raw: dict[str, object], named: str
) -> None:
    config = parse_config(raw, "classification")
    with pytest.raises(InvalidHyperparameter, match=named):
        check_steps(config)
