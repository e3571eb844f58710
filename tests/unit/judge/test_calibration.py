"""Calibrations are scikit-learn's; a threshold decides as it says, in JSON and back."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.isotonic import IsotonicRegression
from torch import Tensor, nn

from mmdb.data.calibration import Calibration
from mmdb.errors import InvalidInput
from mmdb.judge.calibration import METHODS, Calibrated, Method, calibrated, guesses

SEEDS = range(12)


def _case(seed: int, classes: int = 3) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return outputs with ties, labels that they tell of, and weights, with 0 among them."""
    random = np.random.default_rng(seed)
    rows = int(random.integers(20, 200))
    output = np.round(random.normal(size=(rows, classes)) * 3, int(random.integers(0, 3)))
    y = np.argmax(output / 3 + random.normal(size=output.shape), 1)
    y[:classes] = np.arange(classes)
    weight = torch.from_numpy(random.integers(0, 4, rows).astype(float)) if seed % 2 else None
    if weight is not None:
        weight[:classes] = 1.0
    return torch.from_numpy(output.astype(np.float32)), torch.from_numpy(y), weight


@pytest.mark.parametrize("seed", SEEDS)
def test_the_temperature_has_the_least_loss(seed: int) -> None:
    output, y, weight = _case(seed)
    counts = torch.ones(len(y)).double() if weight is None else weight

    def loss(logarithm: float) -> float:
        scaled = output.double() / np.exp(logarithm)
        return float((nn.functional.cross_entropy(scaled, y, reduction="none") * counts).sum())

    found = calibrated("temperature", output, y, weight).temperature
    assert found is not None
    asked = [*np.linspace(-4.6, 4.6, 100), np.log(found) - 1e-3, np.log(found) + 1e-3]
    assert loss(np.log(found)) <= min(map(loss, asked)) + 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_isotonic_shares_are_scikit_learns(seed: int) -> None:
    output, y, weight = _case(seed)
    calibration = calibrated("isotonic", output, y, weight)
    asked = torch.randn(50, 3, generator=torch.Generator().manual_seed(seed)) * 4
    columns = []
    for k in range(3):
        oracle = IsotonicRegression(out_of_bounds="clip", y_min=0, y_max=1)
        scores = output.softmax(-1)[:, k].double().numpy()
        oracle.fit(scores, (y == k).double(), None if weight is None else weight.numpy())
        columns.append(oracle.predict(asked.softmax(-1)[:, k].double().numpy()))
    wanted = np.clip(np.stack(columns, 1), 1e-6, 1)
    found = Calibrated(nn.Identity(), calibration)(asked).softmax(-1)
    assert found.numpy() == pytest.approx(wanted / wanted.sum(1, keepdims=True), abs=1e-4)


def test_a_calibration_survives_json() -> None:
    names = ["a", "b", "c"]
    output, y, _ = _case(1)
    for calibration in (
        Calibration(),
        calibrated("temperature", output, y),
        calibrated("isotonic", output, y).at(2, 0.0, {"recall": 0.5}),
    ):
        text = json.dumps(calibration.to_json(names))
        assert Calibration.from_json(json.loads(text), names) == calibration


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": 0},
        {"temperature": "hot"},
        {"threshold": 2, "positive": "a"},
        {"positive": "z"},
        {"isotonic": [[[0.1], [0.2]]]},
        {"isotonic": [[[0.2, 0.1], [0.1, 0.2]]] * 2},
        {"isotonic": [[[], []]] * 2},
        {"isotonic": [[[0.1], [float("nan")]]] * 2},
        {"isotonic": 5},
        {"positive": "a", "goal": 0.9},
        {"further": 1},
    ],
)
def test_what_is_no_calibration_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises((LookupError, TypeError, ValueError)):
        Calibration.from_json(bad, ["a", "b"])


def test_a_threshold_decides_for_a_class_and_else_for_the_best_of_the_others() -> None:
    chances = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.1, 0.3], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
    assert guesses(Calibration(), chances).tolist() == [0, 0, 1, 2]
    assert guesses(Calibration().at(2, 0.25, {"recall": 0.9}), chances).tolist() == [0, 2, 1, 2]
    assert guesses(Calibration().at(0, 0.55, {"recall": 0.9}), chances).tolist() == [1, 0, 1, 2]


@pytest.mark.parametrize("method", METHODS)
def test_what_calibrates_nothing_is_refused(method: Method) -> None:
    y = torch.tensor([0, 0, 0, 1])
    with pytest.raises(InvalidInput, match="one class"):
        calibrated(method, torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(InvalidInput, match="one class"):
        calibrated(method, torch.zeros(4, 2), y, torch.tensor([1.0, 1.0, 1.0, 0.0]).double())
    with pytest.raises(InvalidInput, match="finite"):
        calibrated(method, torch.tensor([[0.0, float("nan")]] * 4), y)


def test_outputs_keep_their_form() -> None:
    module = Calibrated(nn.Identity(), Calibration(temperature=2.0))
    x = torch.ones(2, 2)
    assert torch.equal(module({"y": x})["y"], x / 2)
    assert torch.equal(module((x,))[0], x / 2)
