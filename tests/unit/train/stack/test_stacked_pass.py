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
from mmdb.graph.factories import cnn, linear, mlp
from mmdb.train.candidate.config import parse_config
from mmdb.train.candidate.setup import Setup, setup_of
from mmdb.train.compute.hop import train_pass
from mmdb.train.compute.live import Live, build_live, encode, restore
from mmdb.train.stack.stacked_pass import shape_of_stack, stacked_pass, stacks

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


@pytest.mark.parametrize("seed", range(40))
def test_company_changes_no_bit(seed: int) -> None:
    draw = random.Random(seed)
    raws, network, target, weighted = _case(draw)
    x, y = _rows(target, weighted=weighted)
    drops = [draw.choice([0.0, 0.1, 0.5]) for _ in raws]

    def member(k: int) -> tuple[Live, Setup]:
        return _member(k, raws[k], target, dropout=drops[k] or 0.3, **network)

    order = draw.sample(range(len(raws)), len(raws))
    stack = {k: member(k) for k in order}
    assert all(stacks(live, setup, x) for live, setup in stack.values())
    assert len({shape_of_stack(*one) for one in stack.values()}) == 1
    _train([stack[k] for k in order], order, x, y)
    for k in draw.sample(order, 2):
        alone = member(k)
        _train([alone], [k], x, y)
        assert encode(alone[0]) == encode(stack[k][0])


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


def test_a_member_that_diverges_is_found_and_harms_no_other() -> None:
    x, y = _rows(NUMBER)
    raws = [{"lr": lr, "batch_size": 16, "optimizer": "sgd"} for lr in (0.001, 1e6, 0.002)]
    several = [_member(k, raw, NUMBER) for k, raw in enumerate(raws)]
    with pytest.raises(NotANumber):
        _train(several, range(3), x, y)


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
    assert not fits(cnn((1, 8, 8), 3), torch.zeros(2, 1, 8, 8))
    assert not fits(nn.Sequential(tied, tied, nn.Linear(WIDTH, 3)))
    assert not fits(nn.Sequential(nn.Linear(WIDTH, 3, bias=False)))
    assert not fits(linear((WIDTH,), 3), x.long())
    hooked = linear((WIDTH,), 3)
    hooked.register_forward_hook(lambda *_: None)
    assert not fits(hooked)
    frozen = linear((WIDTH,), 3)
    next(frozen.parameters()).requires_grad_(False)
    assert not fits(frozen)
