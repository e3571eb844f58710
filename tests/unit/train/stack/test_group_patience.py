"""Each group keeps the weights of its own best epoch, and stops, whoever is beside it."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from mmdb.graph.factories import SHIPPED
from mmdb.graph.grouped import COMMON, Grouped
from mmdb.graph.spec.build import build
from mmdb.train.candidate.config import parse_config
from mmdb.train.candidate.setup import Setup, setup_of
from mmdb.train.compute.live import Live, build_live, encode, restore
from mmdb.train.stack.grouped_pass import grouped_pass
from tests.unit.train.stack.test_grouped_pass import CLASSES, GROUPS, NUMBER, PLACE, WIDTH

EPOCHS = 12
#: Groups that no held-out row has.
UNSEEN = [5, 9]


def _rows(target: Any, seed: int, rows: int, *, without: list[int]) -> tuple[Tensor, Tensor]:
    """Return noisy rows, of which little can be learned: groups have their best epochs early."""
    draw = torch.Generator().manual_seed(seed)
    sizes = torch.randint(2, rows, (GROUPS,), generator=draw)
    sizes[[0, COMMON, *without]] = 0
    codes = torch.repeat_interleave(torch.arange(GROUPS), sizes)
    codes = codes[torch.randperm(len(codes), generator=draw)]
    x = torch.randn(len(codes), WIDTH, generator=draw)
    x[:, PLACE] = codes.float()
    noise = torch.randn(len(codes), generator=draw) * (codes % 4) / 2
    y = x[:, 0] * (codes % 3 - 1) + noise
    return x, ((y > 0).long() + (y > 1).long() if target is CLASSES else y)


def _live(raw: dict[str, Any], target: Any, *, keeps: bool, **network: Any) -> tuple[Live, Setup]:
    torch.manual_seed(1)
    inner = {"factory": "mlp", "arguments": {"hidden": [7], "activation": "tanh", **network}}
    architecture = {"per": "shop", "groups": GROUPS, "place": PLACE, "network": inner}
    made = build(architecture, {}, (WIDTH,), target.size, SHIPPED)
    assert isinstance(made, Grouped)
    if keeps:
        made.keep_best()
    return build_live(made, parse_config(raw, (target,), {})), setup_of(raw, (target,))


def _train(
    raw: dict[str, Any], target: Any, patience: int | None, **network: Any
) -> tuple[list[Live], Live, Setup]:
    """Return the candidate as each epoch left it, and as it is after the last one."""
    live, setup = _live(raw, target, keeps=patience is not None, **network)
    x, y = _rows(target, 0, 60, without=[7])
    held_out = _rows(target, 1, 20, without=UNSEEN)
    left = []
    for epoch in range(EPOCHS):
        how: dict[str, Any] = {} if patience is None else {"patience": patience}
        if patience is not None:
            how["held_out"] = held_out
        grouped_pass(live, x, y, setup=setup, seed=epoch, ends_epoch=True, **how)
        left.append(copy.deepcopy(live))
    return left, live, setup


@cache
def _free(raw: str, target: Any) -> tuple[list[Live], Live, Setup]:
    return _train(RAW[raw], target, None)


def _best(losses: list[float], patience: int) -> int:
    """Return the epoch at which a plain loop with early stopping would have its best weights."""
    best = 0
    for epoch, loss in enumerate(losses):
        if loss < losses[best]:
            best = epoch
        if epoch - best >= patience:
            break
    return best


def _grouped(live: Live) -> Grouped:
    assert isinstance(live.module, Grouped)
    return live.module


def _own(network: Grouped, code: int) -> list[Tensor]:
    return [parameter[code].detach() for parameter in network.each.parameters()]


RAW: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam", "lr": 0.03, "batch_size": 8},
    "sgd": {"optimizer": {"name": "sgd", "momentum": 0.9}, "lr": 0.05, "batch_size": 16},
    "weighted": {"optimizer": "sgd", "lr": 0.1, "batch_size": 8, "class_weights": [10, 1, 2]},
}


@pytest.mark.parametrize(
    ("raw", "target", "patience"),
    [
        ("adam", CLASSES, 1),
        ("adam", CLASSES, 50),
        ("adam", NUMBER, 2),
        ("sgd", NUMBER, 3),
        ("weighted", CLASSES, 2),
    ],
    ids=str,
)
def test_each_group_has_the_weights_of_its_best_epoch(raw: str, target: Any, patience: int) -> None:
    """Groups that never stop are the oracle: a plain loop measures each alone, epoch by epoch."""
    free, _, setup = _free(raw, target)
    _, stopping, _ = _train(RAW[raw], target, patience)
    x, y = _rows(target, 1, 20, without=UNSEEN)
    found = _grouped(copy.deepcopy(stopping)).settle()
    codes, rows = found.codes(x), found.rows(x)
    bests = set()
    for code in range(2, GROUPS):
        mine = codes == code
        if code == 7 or not mine.any():
            continue
        losses = []
        for live in free:
            network = _grouped(live).of(code).eval()
            with torch.no_grad():
                losses.append(float(setup.criterion([network(rows[mine])], y[mine])))
        best = _best(losses, patience)
        bests.add(best)
        for a, b in zip(_own(found, code), _own(_grouped(free[best]), code), strict=True):
            assert torch.equal(a, b), (code, best)
    assert len(bests) > 3
    for code in UNSEEN:
        for a, b in zip(_own(found, code), _own(_grouped(free[-1]), code), strict=True):
            assert torch.equal(a, b), code


def test_plain_networks_that_stop_early_end_with_the_same_weights() -> None:
    """Torch's own optimizer, a loop over the groups, and each one's own best epoch."""
    raw, patience = {"optimizer": "sgd", "lr": 0.3, "batch_size": 100}, 2
    x, y = _rows(NUMBER, 0, 60, without=[7])
    held_x, held_y = _rows(NUMBER, 1, 20, without=UNSEEN)
    live, setup = _live(raw, NUMBER, keeps=True)
    for epoch in range(EPOCHS):
        how: dict[str, Any] = {"patience": patience, "held_out": (held_x, held_y)}
        grouped_pass(live, x, y, setup=setup, seed=epoch, ends_epoch=True, **how)
        if epoch == 0:
            first = _grouped(copy.deepcopy(live))
    found = _grouped(live).settle()
    codes, held, rows = found.codes(x), found.codes(held_x), found.rows(x)
    epochs = set()
    for code in set(held.tolist()) & set(codes.tolist()):
        network = first.of(code)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.3)
        best, kept, waited, epoch = torch.inf, copy.deepcopy(network), 0, 0
        while True:
            with torch.no_grad():
                output = network(found.rows(held_x)[held == code])
                loss = float(setup.criterion([output], held_y[held == code]))
            waited += 1
            if loss < best:
                best, kept, waited = loss, copy.deepcopy(network), 0
            if waited >= patience or epoch == EPOCHS - 1:
                break
            epoch += 1
            optimizer.zero_grad()
            setup.criterion([network(rows[codes == code])], y[codes == code]).backward()
            optimizer.step()
        epochs.add(epoch)
        for a, b in zip(_own(found, code), kept.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-6, msg=str(code))
    assert len(epochs) > 2


def test_a_candidate_goes_on_from_its_state_as_if_it_had_never_left() -> None:
    left, live, setup = _train(RAW["adam"], CLASSES, 2)
    again, _ = _live(RAW["adam"], CLASSES, keeps=True)
    restore(again, encode(left[5]))
    x, y = _rows(CLASSES, 0, 60, without=[7])
    held_out = _rows(CLASSES, 1, 20, without=UNSEEN)
    for epoch in range(6, EPOCHS):
        grouped_pass(
            again, x, y, setup=setup, seed=epoch, ends_epoch=True, patience=2, held_out=held_out
        )
    assert encode(again) == encode(live)


def test_a_hop_in_which_all_have_stopped_changes_no_weight_and_has_a_loss() -> None:
    _, live, setup = _train(RAW["adam"], CLASSES, 50)
    network = live.module
    assert isinstance(network, Grouped) and network.waited is not None
    network.waited += 50
    before = {path: tensor.clone() for path, tensor in network.state_dict().items()}
    x, y = _rows(CLASSES, 0, 60, without=[7])
    outcome = grouped_pass(live, x, y, setup=setup, seed=1, ends_epoch=True, patience=50)
    assert outcome.steps == 0
    assert all(torch.equal(tensor, before[path]) for path, tensor in network.state_dict().items())
    with torch.no_grad():
        assert outcome.loss == pytest.approx(float(setup.criterion([network.eval()(x)], y)))


def test_what_answers_while_training_is_measured_is_what_is_saved() -> None:
    _, live, _ = _train(RAW["sgd"], NUMBER, 2)
    x, _ = _rows(NUMBER, 3, 9, without=[])
    network = live.module.eval()
    assert isinstance(network, Grouped)
    with torch.no_grad():
        measured = network(x)
        assert torch.equal(network.settle()(x), measured)
    assert torch.equal(network.of(7)(network.rows(x)), network.of(COMMON)(network.rows(x)))


def test_a_group_that_diverges_stops_and_the_others_go_on() -> None:
    live, setup = _live({"optimizer": "sgd", "lr": 0.05, "batch_size": 8}, NUMBER, keeps=True)
    x, y = _rows(NUMBER, 0, 60, without=[7])
    held_out = _rows(NUMBER, 1, 20, without=UNSEEN)
    network = live.module
    assert isinstance(network, Grouped) and network.waited is not None
    network.steps[4] = 1  # it goes on
    with torch.no_grad():
        for parameter in network.each.parameters():
            parameter[4] = 1e38
    for epoch in range(3):
        grouped_pass(
            live, x, y, setup=setup, seed=epoch, ends_epoch=True, patience=2, held_out=held_out
        )
    assert network.waited[4] >= 2 and network.steps[4] == 1
    assert (network.steps[8:] > 1).all()
