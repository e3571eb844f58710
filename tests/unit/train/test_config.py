"""A candidate's configuration: defaults, and every value that is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mmdb.errors import InvalidHyperparameter
from mmdb.train.config import KEYS, OPTIMIZERS, SCHEDULES, Choice, Config, parse_config


def test_defaults() -> None:
    assert parse_config({}, "classification") == Config(
        optimizer=Choice(name="adam"), loss="cross_entropy", lr=1e-3, batch_size=32
    )
    assert parse_config({}, "regression").loss == "mse"


def test_everything_at_once() -> None:
    raw = {
        "lr": 1,
        "batch_size": 8,
        "weight_decay": 0,
        "optimizer": {"name": "sgd", "momentum": 0.9},
        "schedule": {"name": "step", "step_size": 2, "per": "step"},
        "loss": "huber",
        "architecture.hidden": [4],
        "architecture.": 5,
    }
    found = parse_config(raw, "regression")
    assert isinstance(found.lr, float)
    assert found.optimizer == Choice(name="sgd", arguments={"momentum": 0.9})
    assert found.schedule == Choice(name="step", arguments={"step_size": 2})
    assert (found.schedule_per, found.loss) == ("step", "huber")
    assert found.arguments == {"hidden": [4], "": 5}


@pytest.mark.parametrize("value", [None, "none"])
def test_no_schedule(value: object) -> None:
    assert parse_config({"schedule": value}, "classification").schedule is None


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_is_known_by_its_name(name: str) -> None:
    assert parse_config({"optimizer": name}, "regression").optimizer == Choice(name=name)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_known_by_its_name(name: str) -> None:
    assert parse_config({"schedule": name}, "regression").schedule == Choice(name=name)


NAN, INF, HUGE = float("nan"), float("inf"), 10**400


def bad(key: str, *values: object) -> list[tuple[str, object]]:
    return [(key, value) for value in values]


BAD: list[tuple[str, object]] = [
    *bad("lr", "fast", None, True, 0, -1, NAN, INF, HUGE, [0.1], {}),
    *bad("weight_decay", "x", None, False, -1e-9, NAN, INF, HUGE, [0]),
    *bad("batch_size", "x", None, True, 0, -1, 1.5, 8.0, NAN, 2**31, HUGE, [8]),
    *bad("optimizer", None, 5, "lion", "", [], {}, {"name": None}, {"name": ["adam"]}),
    *bad("optimizer", *({"name": "adam", k: 1} for k in ("params", "lr", "foreach", "beta", ""))),
    *bad("schedule", 5, "warm", [], {"name": 5}, {"name": ["step"]}, {"per": "day"}),
    *bad("schedule", *({"name": "step", k: 1} for k in ("optimizer", "last_epoch", "size"))),
    ("schedule", {"name": "step", "step_size": 1, "per": ["epoch"]}),
    *bad("loss", "mse", 5, ["cross_entropy"], {"name": "cross_entropy"}, ""),
    ("learning_rate", 0.1),
    ("", 1),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_a_bad_value_is_refused_with_its_name_and_a_hint(key: str, value: Any) -> None:
    with pytest.raises(InvalidHyperparameter) as raised:
        parse_config({key: value}, "classification")
    assert key in raised.value.message
    assert raised.value.hint


def test_the_hint_of_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidHyperparameter) as raised:
        parse_config({"hidden": [1]}, "classification")
    assert all(key in raised.value.hint for key in (*KEYS, "architecture.hidden"))
