"""Metrics by name: closed forms, the values of scikit-learn, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from torch import Tensor

from mmdb.data.decoding import Target, Task
from mmdb.errors import FunctionFailed, InvalidOption, NotANumber
from mmdb.train.candidate import metrics
from mmdb.train.candidate.measures import Meter, Objective, measures_of, objective_of, parse_measure
from mmdb.train.candidate.metrics import METRICS

CLASSES = (Target(name="y", task="classification", size=4),)
NUMBER = (Target(name="y", task="regression", size=1),)
TAGS = (Target(name="tags", task="multilabel", size=3),)
TWO = (
    Target(name="digit", task="classification", size=3),
    Target(name="unit.price", task="regression", size=1),
)
OWN = {"metric": {"gain": "tests.unit.train.test_metrics:gain", "odd": f"{__name__}:odd"}}


def gain(output: Tensor, y: Tensor, *, per: float = 1.0) -> float:
    return float((output.argmax(-1) == y).sum()) / per


def odd(output: Tensor, y: Tensor) -> str:
    return "many"


def value(name: str, task: Task, output: Tensor, y: Tensor, **arguments: Any) -> float:
    return METRICS[name].by_task[task](output, y, **arguments)


@pytest.fixture
def scores() -> tuple[Tensor, Tensor]:
    """Return the outputs and labels of 60 rows; class 3 has no row but is guessed."""
    source = torch.Generator().manual_seed(3)
    return torch.randn(60, 4, generator=source), torch.randint(3, (60,), generator=source)


@pytest.fixture
def tags() -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(4)
    y = (torch.rand(50, 3, generator=source) > 0.6).float()
    return torch.randn(50, 3, generator=source) + y, y


@pytest.fixture
def numbers() -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(5)
    y = torch.randn(70, generator=source) + 5
    return y + torch.randn(70, generator=source), y


def test_classes_as_scikit_learn_has_them(scores: tuple[Tensor, Tensor]) -> None:
    output, y = scores
    guess = output.argmax(-1)
    chances = output.double().softmax(-1).numpy()
    each = {"average": "macro", "zero_division": 0}
    expected = {
        "accuracy": sk.accuracy_score(y, guess),
        "precision": sk.precision_score(y, guess, **each),
        "recall": sk.recall_score(y, guess, **each),
        "f1": sk.f1_score(y, guess, **each),
        "log_loss": sk.log_loss(y, chances, labels=range(4)),
        "top_k": sk.top_k_accuracy_score(y, chances, k=2, labels=range(4)),
    }
    for name, wanted in expected.items():
        arguments = {"k": 2} if name == "top_k" else {}
        found = value(name, "classification", output, y, **arguments)
        assert found == pytest.approx(wanted, rel=1e-12), name
    recalls = sk.recall_score(y, guess, average=None, zero_division=0)[:3]
    found = value("balanced_accuracy", "classification", output, y)
    assert found == pytest.approx(np.mean(recalls), rel=1e-12)


def test_the_area_of_two_classes_with_ties_and_of_several(scores: tuple[Tensor, Tensor]) -> None:
    output, y = scores
    two = (output[:, :2] * 2).round()
    own, label = two[:, 1] - two[:, 0], (y > 0).long()
    found = value("auc", "classification", two, label)
    assert found == pytest.approx(sk.roc_auc_score(label, own), rel=1e-12)
    chances = output[:, :3].double().softmax(-1).numpy()
    found = value("auc", "classification", output[:, :3], y)
    assert found == pytest.approx(sk.roc_auc_score(y, chances, multi_class="ovr"), rel=1e-12)


def test_numbers_as_scikit_learn_has_them(numbers: tuple[Tensor, Tensor]) -> None:
    output, y = numbers[0].double(), numbers[1].double()
    expected = {
        "mse": sk.mean_squared_error(y, output),
        "rmse": sk.root_mean_squared_error(y, output),
        "mae": sk.mean_absolute_error(y, output),
        "mape": sk.mean_absolute_percentage_error(y, output),
        "r2": sk.r2_score(y, output),
    }
    for name, wanted in expected.items():
        assert value(name, "regression", *numbers) == pytest.approx(wanted, rel=1e-12), name


def test_labels_as_scikit_learn_has_them(tags: tuple[Tensor, Tensor]) -> None:
    output, y = tags
    guess, chances = (output > 0).int(), output.double().sigmoid()
    losses = [sk.log_loss(y[:, k], chances[:, k]) for k in range(3)]
    expected = {
        "exact_match": sk.accuracy_score(y.int(), guess),
        "hamming": sk.hamming_loss(y.int(), guess),
        "f1_macro": sk.f1_score(y.int(), guess, average="macro", zero_division=0),
        "f1_micro": sk.f1_score(y.int(), guess, average="micro", zero_division=0),
        "auc": sk.roc_auc_score(y.int(), chances),
        "log_loss": np.mean(losses),
    }
    for name, wanted in expected.items():
        assert value(name, "multilabel", output, y) == pytest.approx(wanted, rel=1e-9), name


def test_what_is_not_defined_is_nan() -> None:
    same = torch.ones(3, dtype=torch.int64)
    assert math.isnan(value("auc", "classification", torch.randn(3, 2), same))
    assert math.isnan(value("auc", "classification", torch.randn(3, 3)[:0], same[:0]))
    assert math.isnan(value("r2", "regression", torch.randn(3), torch.ones(3)))
    assert math.isnan(value("mape", "regression", torch.randn(3), torch.tensor([1.0, 0, 2])))
    assert math.isnan(value("auc", "multilabel", torch.randn(3, 2), torch.ones(3, 2)))


@pytest.mark.parametrize("targets", [CLASSES, NUMBER, TAGS])
def test_of_an_output_that_is_nan_no_metric_is_known(targets: tuple[Target, ...]) -> None:
    (target,) = targets
    names = [name for name, metric in METRICS.items() if target.task in metric.by_task]
    meter = Meter(measures_of(targets, {"metrics": names}, {}), targets, {})
    true = {
        "classification": torch.tensor([0, 1, 2, 3]),
        "regression": torch.arange(1.0, 5.0),
        "multilabel": torch.eye(4)[:, :3],
    }[target.task]
    output = torch.zeros(true.shape if true.is_floating_point() else (4, 4))
    assert len(meter([output], [true])) > 5
    output[1] = math.nan
    assert meter([output], [true]) == {}


def test_the_mean_of_many_is_exact_in_float64() -> None:
    output, y = torch.full((100_000,), 0.1), torch.zeros(100_000)
    assert metrics.mae(output, y) == pytest.approx(float(torch.tensor(0.1)), rel=1e-13)


def test_by_default_a_run_records_what_its_tasks_have() -> None:
    assert [m.key for m in measures_of(CLASSES, {}, {})] == ["accuracy"]
    assert [m.key for m in measures_of(NUMBER, {}, {})] == ["rmse", "mae"]
    assert [m.key for m in measures_of(TAGS, {}, {})] == ["f1_macro", "hamming"]
    keys = [m.key for m in measures_of(TWO, {}, {})]
    assert keys == ["digit.accuracy", "unit.price.rmse", "unit.price.mae"]


def test_options_name_further_metrics(scores: tuple[Tensor, Tensor]) -> None:
    options = {
        "metric": "f1",
        "metrics": [
            {"name": "top_k", "k": 2, "as": "top_2"},
            {"name": "top_k", "k": 4, "as": "top_4"},
            {"name": "gain", "per": 2.0},
            "accuracy",
            "auc",
        ],
    }
    measures = measures_of(CLASSES, options, OWN)
    assert [m.key for m in measures] == ["accuracy", "f1", "top_2", "top_4", "gain", "auc"]
    output, y = scores
    found = Meter(measures, CLASSES, OWN)([output], [y])
    assert found["top_4"] == 1.0 and found["accuracy"] <= found["top_2"] < 1.0
    assert found["gain"] == 30 * found["accuracy"]


def test_a_metric_that_is_not_defined_is_left_out() -> None:
    meter = Meter(measures_of(CLASSES, {"metrics": ["auc"]}, {}), CLASSES, {})
    y = torch.tensor([0, 1, 1])
    assert set(meter([torch.randn(3, 4)], [y])) == {"accuracy", "auc"}
    assert set(meter([torch.randn(3, 4)], [torch.ones_like(y)])) == {"accuracy"}


OBJECTIVES: list[tuple[Any, tuple[Target, ...], str, bool]] = [
    (None, CLASSES, "accuracy", True),
    (None, NUMBER, "rmse", False),
    (None, TAGS, "f1_macro", True),
    (None, TWO, "digit.accuracy", True),
    ("loss", TWO, "loss", False),
    ("f1", CLASSES, "f1", True),
    ("y.f1", CLASSES, "f1", True),
    ("hamming", TAGS, "hamming", False),
    ("unit.price.r2", TWO, "unit.price.r2", True),
    ({"name": "mae", "target": "unit.price"}, TWO, "unit.price.mae", False),
    ({"name": "top_k", "target": "digit", "k": 2, "as": "top"}, TWO, "top", True),
    ({"name": "gain", "maximize": False}, CLASSES, "gain", False),
]


@pytest.mark.parametrize(("given", "targets", "metric", "maximize"), OBJECTIVES)
def test_the_objective_is_what_the_options_say(
    given: Any, targets: tuple[Target, ...], metric: str, maximize: bool
) -> None:
    options = {} if given is None else {"metric": given}
    assert objective_of(targets, options, OWN) == Objective(metric=metric, maximize=maximize)
    assert metric == "loss" or metric in {m.key for m in measures_of(targets, options, OWN)}


NO_METRICS: list[Any] = ["", "rmse", "x.f1", 5, [], {}, {"name": 5}]
BAD: list[tuple[dict[str, Any], tuple[Target, ...]]] = [
    *(({"metric": bad}, CLASSES) for bad in NO_METRICS),
    *(({"metric": bad}, TWO) for bad in ("accuracy", "size.mae", "digit.mae", "digit.")),
    ({"metric": {"name": "mae", "target": "size"}}, TWO),
    ({"metric": {"name": "top_k", "k": 0}}, CLASSES),
    ({"metric": {"name": "top_k", "k": True}}, CLASSES),
    ({"metric": {"name": "top_k", "n": 2}}, CLASSES),
    ({"metric": {"name": "f1", "maximize": True}}, CLASSES),
    ({"metric": {"name": "f1", "as": "loss"}}, CLASSES),
    ({"metric": {"name": "f1", "as": 5}}, CLASSES),
    ({"metric": "gain"}, CLASSES),
    ({"metric": {"name": "gain", "maximize": "up"}}, CLASSES),
    ({"metrics": "f1"}, CLASSES),
    ({"metrics": ["loss"]}, CLASSES),
    ({"metrics": [{"name": "top_k", "k": 1}, {"name": "top_k", "k": 2}]}, CLASSES),
    ({"metrics": [{"name": "f1", "as": "accuracy"}]}, CLASSES),
]


@pytest.mark.parametrize(("options", "targets"), BAD)
def test_a_metric_that_does_not_exist_is_refused_with_those_that_do(
    options: dict[str, Any], targets: tuple[Target, ...]
) -> None:
    with pytest.raises(InvalidOption) as raised:
        objective_of(targets, options, OWN)
        measures_of(targets, options, OWN)
    assert raised.value.hint


def test_the_hint_lists_the_metrics_of_every_label() -> None:
    with pytest.raises(InvalidOption) as raised:
        parse_measure("digit.rmse", TWO, OWN)
    for name in ("loss", "digit.accuracy", "unit.price.r2", "digit.gain"):
        assert name in raised.value.hint


def test_a_registered_metric_returns_one_number(scores: tuple[Tensor, Tensor]) -> None:
    meter = Meter(measures_of(CLASSES, {"metrics": ["odd"]}, OWN), CLASSES, OWN)
    with pytest.raises(FunctionFailed, match="many"):
        meter([scores[0]], [scores[1]])


def test_the_value_of_an_objective_is_the_loss_or_a_metric() -> None:
    assert Objective(metric="loss", maximize=False).value({"f1": 0.5}, 2.0) == 2.0
    assert Objective(metric="f1", maximize=True).value({"f1": 0.5}, 2.0) == 0.5
    with pytest.raises(NotANumber, match="auc"):
        Objective(metric="auc", maximize=True).value({"f1": 0.5}, 2.0)
