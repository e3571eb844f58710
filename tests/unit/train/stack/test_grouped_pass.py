"""A network per group learns what a plain loop over the groups learns, whoever is beside it."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmdb.data.decoding import Target
from mmdb.errors import Cancelled, InvalidHyperparameter, NotANumber
from mmdb.graph.factories import SHIPPED
from mmdb.graph.grouped import COMMON, Grouped
from mmdb.graph.spec.build import build
from mmdb.train.candidate.config import parse_config
from mmdb.train.candidate.setup import Setup, setup_of
from mmdb.train.compute.live import Live, build_live, encode, restore
from mmdb.train.stack import grouped_pass as module
from mmdb.train.stack.grouped_pass import check_grouped, grouped_pass

GROUPS, WIDTH, PLACE = 30, 5, 2
CLASSES = Target(name="y", task="classification", size=3)
NUMBER = Target(name="y", task="regression", size=1, scale=(2.0, 3.0))
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam", "weight_decay": 0.01},
    "adamw": {"optimizer": {"name": "adamw", "betas": [0.8, 0.99]}, "clip_norm": 0.5},
    "sgd": {"optimizer": {"name": "sgd", "momentum": 0.9}, "clip_value": 0.2},
    "weighted": {"optimizer": "sgd", "class_weights": [10, 1, 2]},
}


def _rows(target: Target, *, weighted: bool = False, seed: int = 0) -> tuple[Tensor, Any]:
    """Return rows of groups of 1 to 60 rows, of some of which there are none."""
    draw = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 61, (GROUPS,), generator=draw)
    sizes[[0, COMMON, 7, 12]] = 0
    sizes[3] = 1
    codes = torch.repeat_interleave(torch.arange(GROUPS), sizes)
    codes = codes[torch.randperm(len(codes), generator=draw)]
    x = torch.randn(len(codes), WIDTH, generator=draw)
    x[:, PLACE] = codes.float()
    y = (x[:, 0] * (codes % 3 - 1) > 0).long() + (x[:, 1] > 1).long()
    labels = y if target is CLASSES else y * 2.0 + x[:, 0]
    return x, (labels, torch.rand(len(x), generator=draw)) if weighted else labels


def _live(raw: dict[str, Any], target: Target, **network: Any) -> tuple[Live, Setup]:
    torch.manual_seed(1)
    inner = {"factory": "mlp", "arguments": {"hidden": [7, 3], **network}}
    architecture = {"per": "shop", "groups": GROUPS, "place": PLACE, "network": inner}
    made = build(architecture, {}, (WIDTH,), target.size, SHIPPED)
    assert isinstance(made, Grouped)
    config, setup = parse_config(raw, (target,), {}), setup_of(raw, (target,))
    live = build_live(made, config)
    check_grouped(made, setup, live.optimizer)
    return live, setup


def _plain(
    network: nn.Module, x: Tensor, y: Any, setup: Setup, passes: list[list[Tensor]], live: Live
) -> nn.Module:
    """Train one network alone, on these batches."""
    group = live.optimizer.param_groups[0]
    kind = type(live.optimizer)
    names = {"lr", "weight_decay", "betas", "momentum"} & set(group)
    optimizer = kind(network.parameters(), **{name: group[name] for name in names})
    labels = y if isinstance(y, tuple) else (y,)
    for index in [index for one in passes for index in one]:
        optimizer.zero_grad()
        own = tuple(one[index] for one in labels)
        setup.criterion([network(x[index])], own if len(own) > 1 else own[0]).backward()
        config = setup.config
        if config.clip_norm is not None:
            nn.utils.clip_grad_norm_(network.parameters(), config.clip_norm)
        if config.clip_value is not None:
            nn.utils.clip_grad_value_(network.parameters(), config.clip_value)
        optimizer.step()
    return network


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("target", [CLASSES, NUMBER], ids=["classes", "number"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_group_learns_what_it_learns_alone(
    optimizer: str, target: Target, weighted: bool
) -> None:
    raw = {"lr": 0.01, "batch_size": 8, **OPTIMIZERS[optimizer]}
    if target is NUMBER:
        raw.pop("class_weights", None)
    live, setup = _live(raw, target)
    assert isinstance(live.module, Grouped)
    x, y = _rows(target, weighted=weighted)
    begin = {code: live.module.of(code) for code in range(GROUPS)}
    grouped_pass(live, x, y, setup=setup, seed=5, ends_epoch=True)
    common = live.module.of(COMMON)
    draw = torch.Generator().manual_seed(5)
    order = torch.randperm(len(x), generator=draw)
    rows, codes = live.module.rows(x), live.module.codes(x)
    alone = _plain(begin[COMMON], rows, y, setup, [list(order.split(8))], live)
    _assert_near(common, alone)
    order = torch.randperm(len(x), generator=draw)
    for code in range(GROUPS):
        own = order[codes[order] == code]
        if code == COMMON or not len(own):
            _assert_near(live.module.of(code), common)
            continue
        network = live.module.of(COMMON)  # with which a group begins
        alone = _plain(network, rows, y, setup, [list(own.split(8))], live)
        _assert_near(live.module.of(code), alone)
        assert live.module.steps[code] == -(-len(own) // 8)


def _assert_near(found: nn.Module, wanted: nn.Module) -> None:
    for (path, a), b in zip(found.named_parameters(), wanted.parameters(), strict=True):
        # Adam's first steps are of one size whatever the slope: of 0 they have either sign.
        torch.testing.assert_close(a, b, rtol=2e-3, atol=5e-4, msg=path)


def test_a_second_hop_goes_on_with_the_optimizer_and_later_groups_begin_with_the_common() -> None:
    live, setup = _live({"lr": 0.01, "batch_size": 8, "optimizer": "adam"}, CLASSES)
    assert isinstance(live.module, Grouped)
    x, y = _rows(CLASSES)
    late = live.module.codes(x) == 9
    grouped_pass(live, x[~late], y[~late], setup=setup, seed=1, ends_epoch=True)
    state = encode(live)
    taken = live.module.steps.clone()
    _assert_near(live.module.of(9), live.module.of(COMMON))
    grouped_pass(live, x, y, setup=setup, seed=2, ends_epoch=True)
    again, _ = _live({"lr": 0.01, "batch_size": 8, "optimizer": "adam"}, CLASSES)
    restore(again, state)
    grouped_pass(again, x, y, setup=setup, seed=2, ends_epoch=True)
    assert encode(again) == encode(live)
    assert live.module.steps[9] == -(-int(late.sum()) // 8)
    assert (live.module.steps[10:] > taken[10:]).sum() > 10


@pytest.mark.parametrize("seed", range(20))
def test_groups_that_step_together_change_nothing_of_each_other(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    raw = {
        "lr": 0.01,
        "batch_size": draw.choice([4, 8, 100]),
        **OPTIMIZERS[draw.choice(["adam", "adamw", "sgd"])],
    }
    target = draw.choice([CLASSES, NUMBER])
    x, y = _rows(target, weighted=draw.random() < 0.5, seed=seed)
    found = []
    for together in (512, draw.choice([1, 3, 10])):
        monkeypatch.setattr(module, "_MOST", together)
        live, setup = _live(raw, target)
        grouped_pass(live, x, y, setup=setup, seed=seed, ends_epoch=True)
        found.append(live.module.state_dict())
    for path, tensor in found[0].items():
        torch.testing.assert_close(tensor, found[1][path], rtol=1e-3, atol=1e-4, msg=path)


def test_dropout_and_schedules_are_equal_in_a_second_run() -> None:
    raw = {"lr": 0.01, "batch_size": 8, "schedule": {"name": "exponential", "gamma": 0.5}}
    x, y = _rows(CLASSES)
    states = []
    for _ in range(2):
        live, setup = _live(raw, CLASSES, dropout=0.3)
        for epoch in range(2):
            grouped_pass(live, x, y, setup=setup, seed=epoch, ends_epoch=True)
        states.append(encode(live))
        assert live.optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * 0.25)
    assert states[0] == states[1]


def test_a_group_that_diverges_keeps_its_weights_and_harms_no_other() -> None:
    x, y = _rows(NUMBER)
    found = []
    for begins_with in (0.1, 1e30):
        live, setup = _live({"lr": 0.01, "batch_size": 8, "optimizer": "sgd"}, NUMBER)
        assert isinstance(live.module, Grouped)
        live.module.steps[5] = 1  # it goes on
        with torch.no_grad():
            for parameter in live.module.each.parameters():
                parameter[5] = begins_with
        grouped_pass(live, x, y, setup=setup, seed=0, ends_epoch=True)
        found.append(live.module)
    for (path, a), b in zip(found[0].named_parameters(), found[1].parameters(), strict=True):
        assert (b[5] == 1e30).all() and not (a[5] == 0.1).all(), path
        keeps = torch.arange(GROUPS) != 5
        assert torch.equal(a[keeps], b[keeps]), path
    assert found[1].steps[5] == 1


def test_labels_without_end_end_the_hop() -> None:
    x, y = _rows(NUMBER)
    live, setup = _live({"lr": 0.01, "optimizer": "sgd"}, NUMBER)
    y[0] = float("inf")
    with pytest.raises(NotANumber):
        grouped_pass(live, x, y, setup=setup, seed=0, ends_epoch=True)


def test_all_rows_of_one_group_and_all_of_unknown_ones() -> None:
    x, y = _rows(CLASSES)
    live, setup = _live({"lr": 0.01, "batch_size": 8}, CLASSES)
    assert isinstance(live.module, Grouped)
    x[:, PLACE] = 4.0
    outcome = grouped_pass(live, x, y, setup=setup, seed=0, ends_epoch=True)
    assert outcome.rows == len(x) and (live.module.steps > 0).nonzero()[:, 0].tolist() == [1, 4]
    x[:, PLACE] = COMMON
    outcome = grouped_pass(live, x, y, setup=setup, seed=0, ends_epoch=True)
    assert outcome.loss > 0  # the common network's own, where no row is of a group


def test_a_group_of_rows_that_count_nothing_has_the_common_network() -> None:
    x, (y, weights) = _rows(CLASSES, weighted=True)
    live, setup = _live({"lr": 0.01, "batch_size": 8, "optimizer": "adamw"}, CLASSES)
    assert isinstance(live.module, Grouped)
    weights[live.module.codes(x) == 5] = 0.0
    for seed in range(2):
        grouped_pass(live, x, (y, weights), setup=setup, seed=seed, ends_epoch=True)
    assert live.module.steps[5] == 0
    _assert_near(live.module.of(5), live.module.of(COMMON))


def test_a_hop_that_is_stopped_ends() -> None:
    x, y = _rows(CLASSES)
    live, setup = _live({"lr": 0.01}, CLASSES)
    with pytest.raises(Cancelled):
        grouped_pass(live, x, y, setup=setup, seed=0, ends_epoch=True, stopped=lambda: True)


@pytest.mark.parametrize(
    ("raw", "network"),
    [
        ({"optimizer": "rmsprop"}, {}),
        ({"optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True}}, {}),
        ({"accumulate": 2}, {}),
        ({"amp": "bfloat16"}, {}),
        ({"schedule": {"name": "cosine", "T_max": 9, "per": "step"}}, {}),
        ({}, {"batch_norm": True}),
    ],
)
def test_what_has_no_form_is_refused(raw: dict[str, Any], network: dict[str, Any]) -> None:
    with pytest.raises(InvalidHyperparameter):
        _live(raw, CLASSES, **network)
