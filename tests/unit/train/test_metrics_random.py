"""Metrics on random rows, with ties, weights and classes that no row has: scikit-learn's values."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
import torch

from mmdb.train.candidate.metrics import METRICS

Case = tuple[torch.Tensor, torch.Tensor, np.ndarray | None]
CASES = range(40)  # the bench `judge` has 200


def drawn(seed: int) -> tuple[np.random.Generator, np.ndarray | None]:
    """Return a generator, and weights of its rows in two cases of three: whole, or any."""
    random = np.random.default_rng(seed)
    rows = int(random.integers(2, 80))
    weights = (None, random.integers(0, 4, rows).astype(float), random.random(rows) + 0.01)
    given = weights[seed % 3]
    if given is None:
        given = np.ones(rows)
    given[0] = 1.0  # else all may be 0
    return random, given


def classes(seed: int) -> Case:
    random, weight = drawn(seed)
    size = 2 if seed % 2 else int(random.integers(3, 6))
    rows = len(weight) if weight is not None else 0
    seen = int(random.integers(1, size + 1))  # one-sided where it is 1
    output = np.round(random.normal(size=(rows, size)) * 2) / 2
    return torch.from_numpy(output), torch.from_numpy(random.integers(0, seen, rows)), weight


def macro(score: Callable[..., float], how: str = "macro") -> Callable[..., float]:
    def of(y: np.ndarray, guess: np.ndarray, _: np.ndarray, w: Any) -> float:
        shown = w > 0
        names = np.unique([*y[shown], *guess[shown]])
        return score(y, guess, sample_weight=w, average=how, labels=names, zero_division=0)

    return of


def one_or_rest(score: Callable[..., float]) -> Callable[..., float]:
    def of(y: np.ndarray, _: np.ndarray, chances: np.ndarray, w: Any) -> float:
        one = [1] if chances.shape[1] == 2 else range(chances.shape[1])
        both = [(y == k, chances[:, k]) for k in one]
        is_area = score is sk.roc_auc_score
        known = [
            score(true, chance, sample_weight=w)
            for true, chance in both
            if w[true].sum() and (w[~true].sum() or not is_area)
        ]
        return float(np.mean(known)) if known else math.nan

    return of


def balanced(y: np.ndarray, guess: np.ndarray, _: np.ndarray, w: Any) -> float:
    return float(sk.balanced_accuracy_score(y[w > 0], guess[w > 0], sample_weight=w[w > 0]))


def brier(y: np.ndarray, _: np.ndarray, chances: np.ndarray, w: Any) -> float:
    if chances.shape[1] == 2:
        return float(sk.brier_score_loss(y, chances[:, 1], sample_weight=w, pos_label=1))
    wrong = ((chances - np.eye(chances.shape[1])[y]) ** 2).sum(1)
    return float(np.average(wrong, weights=w))


OF_CLASSES: dict[str, Callable[..., float]] = {
    "accuracy": lambda y, g, p, w: sk.accuracy_score(y, g, sample_weight=w),
    "balanced_accuracy": balanced,
    "precision": macro(sk.precision_score),
    "recall": macro(sk.recall_score),
    "f1": macro(sk.f1_score),
    "f1_weighted": macro(sk.f1_score, "weighted"),
    "jaccard": macro(sk.jaccard_score),
    "mcc": lambda y, g, p, w: sk.matthews_corrcoef(y, g, sample_weight=w),
    "kappa": lambda y, g, p, w: sk.cohen_kappa_score(y, g, sample_weight=w),
    "auc": one_or_rest(sk.roc_auc_score),
    "average_precision": one_or_rest(sk.average_precision_score),
    "log_loss": lambda y, g, p, w: sk.log_loss(y, p, labels=range(p.shape[1]), sample_weight=w),
    "brier": brier,
}


@pytest.mark.parametrize("seed", CASES)
def test_classes(seed: int) -> None:
    output, y, weight = classes(seed)
    chances, guess = output.double().softmax(-1).numpy(), output.argmax(-1).numpy()
    for name, expected in OF_CLASSES.items():
        compare(
            name, "classification", output, y, weight, expected(y.numpy(), guess, chances, weight)
        )


@pytest.mark.parametrize("seed", CASES)
def test_numbers(seed: int) -> None:
    random, weight = drawn(seed)
    assert weight is not None
    y = np.round(random.normal(3, 1, len(weight)), 1)
    output = np.round(y + random.normal(size=len(weight)), 1)
    output, y = np.maximum(output, -0.9), np.maximum(y, 0.1)
    given = {"sample_weight": weight}
    is_flat = len(np.unique(y[weight > 0])) == 1
    expected = {
        "mse": sk.mean_squared_error(y, output, **given),
        "rmse": sk.root_mean_squared_error(y, output, **given),
        "mae": sk.mean_absolute_error(y, output, **given),
        "mape": sk.mean_absolute_percentage_error(y, output, **given),
        "msle": sk.mean_squared_log_error(y, output, **given),
        "max_error": sk.max_error(y[weight > 0], output[weight > 0]),
        "pinball": sk.mean_pinball_loss(y, output, alpha=0.5, **given),
        "r2": math.nan if is_flat else sk.r2_score(y, output, **given),
        "explained_variance": math.nan
        if is_flat
        else sk.explained_variance_score(y, output, **given),
    }
    for name, value in expected.items():
        compare(name, "regression", torch.from_numpy(output), torch.from_numpy(y), weight, value)
    steep = METRICS["pinball"].by_task["regression"](
        torch.from_numpy(output), torch.from_numpy(y), torch.from_numpy(weight), quantile=0.9
    )
    assert steep == pytest.approx(sk.mean_pinball_loss(y, output, alpha=0.9, **given), rel=1e-9)


@pytest.mark.parametrize("seed", CASES)
def test_labels(seed: int) -> None:
    random, weight = drawn(seed)
    assert weight is not None
    y = (random.random((len(weight), 3)) < random.random(3)).astype(float)
    output = np.round(random.normal(size=y.shape) + y, 1)
    guess, chances = output > 0, 1 / (1 + np.exp(-output))
    given = {"sample_weight": weight}
    each = [(y[:, k] > 0, chances[:, k]) for k in range(3)]

    def mean_of(score: Callable[..., float], *, both: bool) -> float:
        known = [
            score(true, chance, **given)
            for true, chance in each
            if weight[true].sum() and (weight[~true].sum() or not both)
        ]
        return float(np.mean(known)) if known else math.nan

    expected = {
        "exact_match": sk.accuracy_score(y, guess, **given),
        "hamming": sk.hamming_loss(y, guess, **given),
        "f1_macro": sk.f1_score(y, guess, average="macro", zero_division=0, **given),
        "f1_micro": sk.f1_score(y, guess, average="micro", zero_division=0, **given),
        "auc": mean_of(sk.roc_auc_score, both=True),
        "average_precision": mean_of(sk.average_precision_score, both=False),
        "log_loss": float(
            np.mean([sk.log_loss(t, c, labels=[False, True], **given) for t, c in each])
        ),
    }
    for name, value in expected.items():
        compare(name, "multilabel", torch.from_numpy(output), torch.from_numpy(y), weight, value)


def compare(name: str, task: Any, output: Any, y: Any, weight: Any, expected: float) -> None:
    found = METRICS[name].by_task[task](output, y, torch.from_numpy(weight))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True), name
    if (weight == 1).all():
        assert METRICS[name].by_task[task](output, y) == pytest.approx(
            found, abs=1e-12, nan_ok=True
        )


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """scikit-learn warns where a metric is not defined."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
