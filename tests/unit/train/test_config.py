"""A candidate's configuration: defaults, and every value that is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mmdb.data.decoding import Target
from mmdb.errors import InvalidHyperparameter
from mmdb.train.candidate.config import KEYS, Config, parse_config
from mmdb.train.candidate.losses import LOSSES
from mmdb.train.candidate.named_choices import OPTIMIZERS, SCHEDULES, NamedChoice

TWO = (
    Target(name="digit", task="classification", size=3),
    Target(name="price", task="regression", size=1),
)
TAGS = (Target(name="tags", task="multilabel", size=4),)
CLASSES = (Target(name="y", task="classification", size=3),)
OWN = {
    "loss": {"ours": "our.package:loss"},
    "augmentation": {"flip": "our.package:flip", "noise": "our.package:noise"},
}


def test_defaults() -> None:
    assert parse_config({}, "classification") == Config(
        optimizer=NamedChoice(name="adam"),
        losses=(NamedChoice(name="cross_entropy"),),
        lr=1e-3,
        batch_size=32,
    )
    assert parse_config({}, "regression").losses == (NamedChoice(name="mse"),)
    assert parse_config({}, "multilabel").losses == (NamedChoice(name="bce"),)


def test_everything_at_once() -> None:
    raw = {
        "lr": 1,
        "batch_size": 8,
        "weight_decay": 0,
        "optimizer": {"name": "sgd", "momentum": 0.9},
        "schedule": {"name": "step", "step_size": 2, "per": "step"},
        "loss": {"name": "huber", "delta": 2},
        "accumulate": 4,
        "clip_norm": 1,
        "amp": "bfloat16",
        "augment": ["flip", {"name": "noise", "std": 0.1}],
        "architecture.hidden": [4],
        "architecture.": 5,
    }
    found = parse_config(raw, "regression", OWN)
    assert isinstance(found.lr, float)
    assert found.optimizer == NamedChoice(name="sgd", arguments={"momentum": 0.9})
    assert found.schedule == NamedChoice(name="step", arguments={"step_size": 2})
    assert found.losses == (NamedChoice(name="huber", arguments={"delta": 2}),)
    assert (found.schedule_per, found.accumulate, found.amp) == ("step", 4, "bfloat16")
    assert (found.clip_norm, found.clip_value) == (1.0, None)
    assert found.augment == (
        NamedChoice(name="flip"),
        NamedChoice(name="noise", arguments={"std": 0.1}),
    )
    assert found.arguments == {"hidden": [4], "": 5}


@pytest.mark.parametrize("value", [None, "none"])
def test_no_schedule(value: object) -> None:
    assert parse_config({"schedule": value}, "classification").schedule is None


@pytest.mark.parametrize("value", [None, False])
def test_no_mixed_precision(value: object) -> None:
    assert parse_config({"amp": value}, "classification").amp is None


def test_a_limit_of_null_is_none() -> None:
    assert parse_config({"clip_norm": None}, "classification").clip_norm is None


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_is_known_by_its_name(name: str) -> None:
    assert parse_config({"optimizer": name}, "regression").optimizer == NamedChoice(name=name)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_known_by_its_name(name: str) -> None:
    assert parse_config({"schedule": name}, "regression").schedule == NamedChoice(name=name)


@pytest.mark.parametrize(("task", "name"), [(t, n) for t, known in LOSSES.items() for n in known])
def test_every_loss_is_known_by_its_name(task: Any, name: str) -> None:
    assert parse_config({"loss": name}, task).losses == (NamedChoice(name=name),)


def test_a_list_of_schedules_is_a_sequence() -> None:
    parts = [{"name": "linear", "total_iters": 3, "until": 3}, {"name": "cosine", "T_max": 9}]
    expected = NamedChoice(
        name="sequence",
        arguments={
            "parts": (
                NamedChoice(name="linear", arguments={"total_iters": 3}),
                NamedChoice(name="cosine", arguments={"T_max": 9}),
            ),
            "until": (3,),
        },
    )
    assert parse_config({"schedule": parts}, "regression").schedule == expected
    named = {"name": "sequence", "parts": parts, "per": "step"}
    found = parse_config({"schedule": named}, "regression")
    assert (found.schedule, found.schedule_per) == (expected, "step")


def test_each_of_several_labels_has_its_loss_weight_and_class_weights() -> None:
    raw = {
        "loss": {"price": "mae", "digit": {"name": "cross_entropy", "label_smoothing": 0.1}},
        "loss_weights": {"price": 0.5},
        "class_weights": {"digit": [1, 2, 0.5]},
    }
    found = parse_config(raw, TWO)
    assert [loss.name for loss in found.losses] == ["cross_entropy", "mae"]
    assert found.losses[0].arguments == {"label_smoothing": 0.1}
    assert found.loss_weights == (1.0, 0.5)
    assert found.class_weights == ((1.0, 2.0, 0.5), None)
    assert [loss.name for loss in parse_config({}, TWO).losses] == ["cross_entropy", "mse"]


def test_a_registered_loss_is_named_like_torchs_with_arguments_of_its_own() -> None:
    raw = {"loss": {"name": "ours", "gamma": 2}}
    assert parse_config(raw, TAGS, OWN).losses == (
        NamedChoice(name="ours", arguments={"gamma": 2}),
    )


NAN, INF, HUGE = float("nan"), float("inf"), 10**400
LINEAR = {"name": "linear", "until": 3}


def bad(key: str, *values: object) -> list[tuple[str, object]]:
    return [(key, value) for value in values]


BAD: list[tuple[str, object]] = [
    *bad("lr", "fast", None, True, 0, -1, NAN, INF, HUGE, [0.1], {}),
    *bad("weight_decay", "x", None, False, -1e-9, NAN, INF, HUGE, [0]),
    *bad("batch_size", "x", None, True, 0, -1, 1.5, 8.0, NAN, 2**31, HUGE, [8]),
    *bad("accumulate", "x", None, True, 0, -1, 1.5, [2]),
    *bad("clip_norm", "x", True, 0, -1, NAN, INF, [1]),
    *bad("clip_value", "x", True, 0, -1, NAN, INF, [1]),
    *bad("amp", "x", True, 16, "float32", ["bfloat16"], {}),
    *bad("augment", "x", 5, ["flip", "x"], {"std": 1}, [None]),
    *bad("optimizer", None, 5, "lion", "", [], {}, {"name": None}, {"name": ["adam"]}),
    *bad("optimizer", *({"name": "adam", k: 1} for k in ("params", "lr", "foreach", "beta", ""))),
    *bad("schedule", 5, "warm", [], {"name": 5}, {"name": ["step"]}, {"per": "day"}),
    *bad("schedule", *({"name": "step", k: 1} for k in ("optimizer", "last_epoch", "size"))),
    ("schedule", {"name": "step", "step_size": 1, "per": ["epoch"]}),
    ("schedule", {"name": "cyclic", "scale_fn": "x"}),
    *bad("schedule", [LINEAR], [LINEAR, LINEAR], [{"name": "linear"}, {"name": "linear"}]),
    *bad("schedule", [LINEAR, LINEAR, "step"], [{"name": "linear", "until": 0}, "step"]),
    *bad("schedule", [{"name": "x", "until": 1}, "step"], {"name": "sequence", "parts": 5}),
    *bad("schedule", {"name": "sequence", "parts": [LINEAR, "step"], "until": 3}, [LINEAR, None]),
    *bad("loss", "mse", 5, ["cross_entropy"], {"name": "mse"}, "", {"y": "cross_entropy"}),
    *bad("loss", *({"name": "cross_entropy", k: 1} for k in ("weight", "reduction", "gamma"))),
    *bad("loss_weights", {"y": 1}, 2.0, []),
    *bad("class_weights", "even", 5, [1, 2], [1, 2, 3, 4], [1, 2, -1], [1, 2, NAN], {"y": 1}),
    *bad("class_weights", [1, 2, True], [1, 2, "3"], {"a": [1, 2, 3]}),
    ("learning_rate", 0.1),
    ("", 1),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_a_bad_value_is_refused_with_its_name_and_a_hint(key: str, value: Any) -> None:
    with pytest.raises(InvalidHyperparameter) as raised:
        parse_config({key: value}, CLASSES, OWN)
    assert key in raised.value.message
    assert raised.value.hint


BAD_OF_TWO: list[tuple[str, object]] = [
    *bad("loss", "cross_entropy", {"name": "mse"}, {"price": "cross_entropy"}, {"size": "mse"}),
    *bad("loss_weights", [1, 1], {"size": 1}, {"price": -1}, {"price": "x"}, {"price": INF}),
    ("loss_weights", {"digit": 0, "price": 0}),
    *bad("class_weights", "balanced", [1, 2, 3], {"price": [1]}, {"price": "balanced"}),
]


@pytest.mark.parametrize(("key", "value"), BAD_OF_TWO)
def test_a_bad_value_for_several_labels_is_refused(key: str, value: Any) -> None:
    with pytest.raises(InvalidHyperparameter) as raised:
        parse_config({key: value}, TWO)
    assert key in raised.value.message
    assert raised.value.hint


CONFLICTS: list[tuple[dict[str, object], str]] = [
    ({"clip_norm": 1.0, "clip_value": 1.0}, "clip_value"),
    ({"optimizer": "rprop", "weight_decay": 0.1}, "rprop"),
    ({"loss": "ours", "class_weights": "balanced"}, "ours"),
]


@pytest.mark.parametrize(("raw", "named"), CONFLICTS)
def test_what_does_not_go_together_is_refused(raw: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidHyperparameter, match=named):
        parse_config(raw, CLASSES, OWN)


def test_the_hint_of_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidHyperparameter) as raised:
        parse_config({"hidden": [1]}, "classification")
    assert all(key in raised.value.hint for key in (*KEYS, "architecture.hidden"))


def test_the_hint_of_an_unknown_loss_lists_torchs_and_the_registered_ones() -> None:
    with pytest.raises(InvalidHyperparameter) as raised:
        parse_config({"loss": "focal"}, TAGS, OWN)
    assert all(name in raised.value.hint for name in ("bce", "soft_margin", "ours", "multilabel"))
