"""A state that was written and read is the same state: equal bytes now, and after more steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

from mmdb.data.decoding import Target
from mmdb.errors import InvalidHyperparameter
from mmdb.train.candidate.config import parse_config
from mmdb.train.candidate.named_choices import OPTIMIZERS, SCHEDULES
from mmdb.train.candidate.setup import Setup, setup_of
from mmdb.train.compute.hop import train_pass
from mmdb.train.compute.live import (
    Live,
    adopt,
    build_live,
    byte_count,
    encode,
    restore,
    state_hash,
    weights,
)
from mmdb.train.compute.optimizer import check_steps

WIDTH, CLASSES, ROWS = 6, 3, 40
TARGETS = (Target(name="y", task="classification", size=CLASSES),)
#: What a schedule needs besides its name.
NEEDED: dict[str, dict[str, object]] = {
    "constant": {"factor": 0.5, "total_iters": 3},
    "cosine": {"T_max": 4},
    "cosine_restarts": {"T_0": 2},
    "cyclic": {"base_lr": 0.001, "max_lr": 0.01, "step_size_up": 3},
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


def config_of(optimizer: object = "adam", schedule: object = None, per: str = "epoch") -> Setup:
    raw: dict[str, object] = {"lr": 0.01, "batch_size": 16, "optimizer": optimizer}
    if isinstance(schedule, str):
        raw["schedule"] = {"name": schedule, "per": per, **NEEDED[schedule]}
    elif schedule is not None:
        raw["schedule"] = schedule
    return setup_of(raw, TARGETS)


def fresh(make: Callable[[], nn.Module], setup: Setup, seed: int) -> Live:
    torch.manual_seed(seed)
    return build_live(make(), setup.config)


def steps(live: Live, setup: Setup, seeds: Iterable[int]) -> None:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, WIDTH, generator=source)
    y = torch.randint(CLASSES, (ROWS,), generator=source)
    for seed in seeds:
        train_pass(live, x, y, setup=setup, seed=seed, ends_epoch=True)


def assert_same_after_a_round_trip(make: Callable[[], nn.Module], config: Setup) -> None:
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


LINEAR: dict[str, object] = {"name": "linear", "total_iters": 2, "until": 2}
SEQUENCES: list[list[dict[str, object]]] = [
    [LINEAR, {"name": "cosine", "T_max": 3}],
    [LINEAR, {"name": "multistep", "milestones": [1, 2], "until": 4}, {"name": "constant"}],
]


@pytest.mark.parametrize("per", ["epoch", "step"])
@pytest.mark.parametrize("parts", SEQUENCES)
def test_the_state_of_schedules_in_sequence_survives(
    parts: list[dict[str, object]], per: str
) -> None:
    config = config_of("adam", {"name": "sequence", "parts": parts, "per": per})
    assert_same_after_a_round_trip(plain, config)


def test_a_warmup_rises_and_the_schedule_after_it_begins_at_the_full_rate() -> None:
    parts = [{"name": "linear", "start_factor": 0.5, "total_iters": 2, "until": 2}]
    setup = config_of("sgd", [*parts, {"name": "exponential", "gamma": 0.1}])
    live = fresh(plain, setup, seed=1)
    rates = []
    for seed in range(5):
        rates.append(live.optimizer.param_groups[0]["lr"])
        steps(live, setup, [seed])
    assert rates == pytest.approx([0.005, 0.0075, 0.01, 0.001, 0.0001])


def test_the_scaler_of_float16_is_part_of_the_state() -> None:
    setup = setup_of({"amp": "float16", "batch_size": 16}, TARGETS)
    assert_same_after_a_round_trip(plain, setup)
    live = fresh(plain, setup, seed=1)
    steps(live, setup, range(1))
    assert live.scaler is not None
    before = encode(live)
    live.scaler.update(128.0)
    assert encode(live) != before
    other = fresh(plain, setup, seed=2)
    restore(other, encode(live))
    assert other.scaler is not None and other.scaler.get_scale() == 128.0


def test_a_state_without_a_scaler_does_not_mention_one() -> None:
    assert b"scaler" not in encode(fresh(plain, config_of(), seed=1))


def test_a_clone_has_the_weights_and_moments_of_its_parent_and_its_own_rates() -> None:
    parent = fresh(plain, config_of("adam", "step"), seed=1)
    steps(parent, config_of("adam", "step"), range(3))
    raw = {"lr": 0.5, "weight_decay": 0.1, "schedule": {"name": "step", "step_size": 2}}
    clone = fresh(plain, setup_of(raw, TARGETS), seed=2)
    adopt(clone, encode(parent))
    for path, tensor in parent.module.state_dict().items():
        assert torch.equal(clone.module.state_dict()[path], tensor)
    group = clone.optimizer.param_groups[0]
    assert (group["initial_lr"], group["weight_decay"]) == (0.5, 0.1)
    assert group["lr"] == pytest.approx(0.05)  # its schedule is three epochs on
    for first, second in zip(parent.module.parameters(), clone.module.parameters(), strict=True):
        moments = parent.optimizer.state[first]
        assert set(moments) == {"step", "exp_avg", "exp_avg_sq"}
        for key, moment in moments.items():
            assert torch.equal(clone.optimizer.state[second][key], moment)
    steps(clone, setup_of(raw, TARGETS), range(3, 5))


@pytest.mark.parametrize(
    ("mine", "its"),
    [
        ("adam", "sgd with momentum"),
        ("sgd", "adam"),
        ("adam", "adam with amsgrad"),
        ("rmsprop", "rmsprop centred"),
    ],
)
def test_a_clone_with_another_optimizer_begins_without_moments(mine: str, its: str) -> None:
    first = config_of(OPTIMIZER_CASES[mine])
    parent = fresh(plain, first, seed=1)
    steps(parent, first, range(2))
    second = config_of(OPTIMIZER_CASES[its])
    clone = fresh(plain, second, seed=2)
    adopt(clone, encode(parent))
    assert not clone.optimizer.state
    steps(clone, second, range(2, 4))


def test_a_clone_of_the_same_configuration_goes_on_as_its_parent() -> None:
    config = config_of(OPTIMIZER_CASES["sgd with momentum"], "exponential")
    parent = fresh(plain, config, seed=1)
    steps(parent, config, range(3))
    clone = fresh(plain, config, seed=2)
    adopt(clone, encode(parent))
    for live in (parent, clone):
        steps(live, config, range(3, 5))
    assert state_hash(encode(clone)) == state_hash(encode(parent))


def test_a_clone_of_another_architecture_is_refused() -> None:
    parent = fresh(plain, config_of(), seed=1)
    clone = fresh(lambda: nn.Linear(WIDTH, CLASSES), config_of(), seed=1)
    with pytest.raises(InvalidHyperparameter, match="other tensors"):
        adopt(clone, encode(parent))


def test_schedules_and_optimizers_are_all_covered() -> None:
    assert set(NEEDED) == set(SCHEDULES)


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
