"""A candidate in a stack has the bits that it has alone, and learns what a plain pass learns."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmdb.data.decoding import Target
from mmdb.errors import NotANumber
from mmdb.graph.factories import cnn, linear, mlp, resnet, transformer
from mmdb.train.candidate.config import parse_config
from mmdb.train.candidate.setup import Setup, setup_of
from mmdb.train.compute.hop import train_pass
from mmdb.train.compute.live import Live, build_live, encode, restore
from mmdb.train.stack.forms import FORMS
from mmdb.train.stack.stacked_pass import stacked_pass, stacks
from tests.random_stacks import FAMILIES, differing, draw_stack, layers_of, train

ROWS, WIDTH = 150, 6
COLUMNS = [["number", 2], ["code", 5, 3], ["plain", 1], ["code", 4, 2], ["number", 1]]
CLASSES = Target(name="y", task="classification", size=3)
NUMBER = Target(name="y", task="regression", size=1, scale=(2.0, 3.0))


def _rows(target: Target, *, weighted: bool = False) -> tuple[Tensor, Any]:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, WIDTH, generator=draw)
    x[:, 2] = torch.randint(5, (ROWS,), generator=draw).float()
    x[:, 4] = torch.randint(4, (ROWS,), generator=draw).float()
    y = torch.randint(3, (ROWS,), generator=draw)
    labels = y if target is CLASSES else y * 2.0 + x[:, 0]
    return x, (labels, torch.rand(ROWS, generator=draw)) if weighted else labels


def _member(seed: int, raw: dict[str, Any], target: Target, **network: Any) -> tuple[Live, Setup]:
    torch.manual_seed(seed)
    module = mlp((WIDTH,), target.size, **network)
    config = parse_config(raw, (target,), {})
    return build_live(module, config), setup_of(raw, (target,))


def _train(members: Sequence[tuple[Live, Setup]], seeds: Sequence[int], x: Any, y: Any) -> None:
    for epoch in range(2):
        stacked_pass(
            [live for live, _ in members],
            x,
            y,
            setups=[setup for _, setup in members],
            seeds=[seed + 100 * epoch for seed in seeds],
            ends_epoch=True,
        )


def _case(draw: random.Random) -> tuple[list[dict[str, Any]], dict[str, Any], Target, bool]:
    """Return hyper-parameters of members, the network of all of them, and what they predict."""
    target = draw.choice([CLASSES, NUMBER])
    network: dict[str, Any] = {
        "hidden": [draw.choice([1, 7, 16, 33]) for _ in range(draw.randint(1, 3))],
        "activation": draw.choice(["relu", "gelu", "silu", "tanh"]),
        "batch_norm": draw.random() < 0.3,
        "columns": draw.choice([None, COLUMNS]),
    }
    optimizer = draw.choice(["adam", "adamw", "sgd"])
    batch, raws = draw.choice([8, 32, 149, 400]), []
    loss = draw.choice(["cross_entropy"] if target is CLASSES else ["mse", "mae", "huber"])
    for _ in range(draw.randint(2, 9)):
        raw: dict[str, Any] = {
            "lr": 10 ** draw.uniform(-4, -1.5),
            "batch_size": batch,
            "weight_decay": draw.choice([0.0, 0.01]),
            "optimizer": {"name": optimizer},
            "loss": {"name": loss},
        }
        if optimizer == "sgd":
            raw["optimizer"]["momentum"] = draw.choice([0.0, 0.9])
        else:
            raw["optimizer"]["betas"] = draw.choice([[0.9, 0.999], [0.8, 0.95]])
        if draw.random() < 0.4:
            raw["schedule"] = draw.choice(
                [
                    {"name": "exponential", "gamma": 0.7},
                    {"name": "cosine", "T_max": 9, "per": "step"},
                ]
            )
        if loss == "cross_entropy":
            raw["loss"]["label_smoothing"] = draw.choice([0.0, 0.1])
        if draw.random() < 0.4:
            raw[draw.choice(["clip_norm", "clip_value"])] = draw.choice([0.01, 0.5])
        raws.append(raw)
    return raws, network, target, draw.random() < 0.2


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", FAMILIES)
def test_company_changes_no_bit(family: str, seed: int) -> None:
    draw = random.Random(f"{family} {seed}")
    assert differing(draw, draw_stack(draw, family)) == []


def test_every_layer_with_a_form_is_drawn() -> None:
    drawn: set[str] = set()
    for seed in range(40):
        for family in FAMILIES:
            stack = draw_stack(random.Random(seed), family)
            drawn |= layers_of(stack.member(0)[0].module)
    assert {kind.__name__ for kind in FORMS} <= drawn


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_learns_what_plain_passes_learn(family: str, seed: int) -> None:
    stack = draw_stack(random.Random(f"{family} {seed}"), family)
    # Of Adam's first steps rounding would decide, and of large ones.
    plain = {"optimizer": {"name": "sgd", "momentum": 0.9}, "lr": 1e-3, "batch_size": 32}
    several = [stack.member(k, **plain) for k in range(len(stack.raws))]
    alone, setup = stack.member(1, **plain)
    for live in (alone, *(live for live, _ in several)):
        _draw_nothing(live.module)
    for epoch in range(2):
        train(stack, several, range(len(several)), epoch)
        train_pass(alone, stack.x, stack.y, setup=setup, seed=1 + 100 * epoch, ends_epoch=True)
    found = several[1][0].module.state_dict()
    for path, tensor in alone.module.state_dict().items():
        torch.testing.assert_close(found[path], tensor, rtol=1e-3, atol=1e-4, msg=path)


def _draw_nothing(module: nn.Module) -> None:
    """Let no layer drop anything: each way draws other numbers."""
    for layer in module.modules():
        if isinstance(layer, nn.Dropout | nn.Dropout2d):
            layer.p = 0.0
        elif isinstance(vars(layer).get("dropout"), float):
            vars(layer)["dropout"] = 0.0


@pytest.mark.parametrize("seed", range(40))
def test_a_stack_learns_what_plain_passes_learn(seed: int) -> None:
    draw = random.Random(1000 + seed)
    raws, network, target, weighted = _case(draw)
    x, y = _rows(target, weighted=weighted)
    raws = [raw | {"lr": min(raw["lr"], 1e-3)} for raw in raws]  # else rounding grows
    several = [_member(k, raw, target, **network) for k, raw in enumerate(raws)]
    _train(several, range(len(raws)), x, y)
    for k in (0, len(raws) - 1):
        live, setup = _member(k, raws[k], target, **network)
        for epoch in range(2):
            train_pass(live, x, y, setup=setup, seed=k + 100 * epoch, ends_epoch=True)
        found, wanted = several[k][0].module.state_dict(), live.module.state_dict()
        layers = dict(live.module.named_modules())
        for path, tensor in wanted.items():
            if network["batch_norm"] and path.endswith("bias"):
                if isinstance(layers[path.removesuffix(".bias")], nn.Linear):
                    continue  # a bias that batch norm takes out: its slope is rounding
            if path.endswith("running_mean"):
                continue  # it follows that bias; families are tried with sgd, which moves it little
            # Adam's first steps are of one size whatever the slope: of 0 they have either sign.
            torch.testing.assert_close(found[path], tensor, rtol=2e-3, atol=5e-4, msg=path)
        kept, known = several[k][0].optimizer.state_dict(), live.optimizer.state_dict()
        assert kept["param_groups"] == known["param_groups"]
        assert kept["state"].keys() == known["state"].keys()
        for index, state in known["state"].items():
            assert {n for n, v in state.items() if v is not None} == {
                n for n, v in kept["state"][index].items() if v is not None
            }


def test_a_state_goes_on_in_another_stack() -> None:
    x, y = _rows(CLASSES)
    raw = {"lr": 0.01, "batch_size": 16, "optimizer": "adam"}
    first = [_member(k, raw, CLASSES, dropout=0.2) for k in range(5)]
    _train(first, range(5), x, y)
    state = encode(first[3][0])
    _train(first, range(10, 15), x, y)
    again = _member(3, raw, CLASSES, dropout=0.2)
    restore(again[0], state)
    others = [_member(k, raw, CLASSES, dropout=0.2) for k in (7, 8)]
    _train([others[0], again, others[1]], (1, 13, 2), x, y)
    assert encode(again[0]) == encode(first[3][0])


@pytest.mark.parametrize("family", ["mlp", "resnet", "tabular", "texts"])
def test_a_member_that_diverges_is_found_and_harms_no_other(family: str) -> None:
    stack = draw_stack(random.Random(3), family)
    raw = {"optimizer": "sgd", "batch_size": 8, "clip_norm": None, "clip_value": None}
    count = len(stack.raws)

    def member(k: int) -> tuple[Live, Setup]:
        return stack.member(k, **raw, lr=1e30 if k == 1 else 1e-3)

    several = [member(k) for k in range(count)]
    with pytest.raises(NotANumber):
        train(stack, several, range(count), 0)
    for k in range(0, count, 2):
        alone = member(k)
        train(stack, [alone], [k], 0)
        assert encode(several[k][0]) == encode(alone[0])


@pytest.mark.parametrize(
    "raw",
    [
        {"optimizer": "rmsprop"},
        {"optimizer": {"name": "adam", "amsgrad": True}},
        {"optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True}},
        {"accumulate": 2},
        {"amp": "bfloat16"},
    ],
)
def test_what_has_no_form_trains_alone(raw: dict[str, Any]) -> None:
    x, _ = _rows(CLASSES)
    assert not stacks(*_member(0, raw, CLASSES), x)


def test_layers_without_a_form_train_alone() -> None:
    x, _ = _rows(CLASSES)
    setup = setup_of({}, (CLASSES,))
    tied = nn.Linear(WIDTH, WIDTH)

    def fits(module: nn.Module, x: Tensor = x) -> bool:
        return stacks(build_live(module, setup.config), setup, x)

    assert fits(linear((WIDTH,), 3))
    assert fits(cnn((1, 8, 8), 3), torch.zeros(2, 1, 8, 8))
    assert not fits(nn.Sequential(nn.Conv2d(2, 4, 3, groups=2)), torch.zeros(2, 2, 8, 8))
    assert not fits(resnet((3, 64, 64), 3), torch.zeros(2, 3, 64, 64))
    assert not fits(transformer((512, 3), 3), torch.zeros(2, 512, 3))
    assert not fits(nn.Sequential(nn.Conv1d(2, 4, 2, padding="same")), torch.zeros(2, 2, 8))
    assert not fits(nn.Sequential(tied, tied, nn.Linear(WIDTH, 3)))
    assert not fits(nn.Sequential(nn.LayerNorm((2, 3)), nn.Linear(WIDTH, 3)))
    assert not fits(nn.Sequential(nn.LSTM(WIDTH, 3)))
    assert not fits(linear((WIDTH,), 3), x.double())
    hooked = linear((WIDTH,), 3)
    hooked.register_forward_hook(lambda *_: None)
    assert not fits(hooked)
    frozen = linear((WIDTH,), 3)
    next(frozen.parameters()).requires_grad_(False)
    assert not fits(frozen)
