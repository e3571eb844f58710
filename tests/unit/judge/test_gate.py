"""Gates let better models through and stop worse ones, whatever rows happened to be drawn."""

from __future__ import annotations

import pytest
import torch

from mmdb import errors
from mmdb.judge.gate import Gate
from mmdb.judge.resampling import drawn


@pytest.mark.parametrize(
    "given",
    [
        {"metrics": "auc"},
        {"metric": 1},
        {"at_least": "x"},
        {"at_least": True},
        {"significance": 0},
        {"significance": 1.0},
        {"significance": "low"},
    ],
)
def test_what_is_no_gate_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(errors.InvalidOption):
        Gate.parse(given)


def _passes(gate: Gate, rows: int, old: float, new: float, seed: int) -> bool:
    """Return whether a model passes before another, on rows drawn by chance."""
    source = torch.Generator().manual_seed(seed)
    right = [torch.rand(rows, generator=source) < share for share in (old, new)]
    gains = right[1].double() - right[0].double()
    draws = drawn(rows, lambda places: {"accuracy": float(gains[places].mean())}, seed=seed)
    gain = float(gains.mean())
    chance = (float((draws["accuracy"] < gate.at_least).sum()) + 1) / (len(draws["accuracy"]) + 1)
    return gate.passes(gain, chance)


@pytest.mark.parametrize(
    ("gate", "new", "least", "most"),
    [
        (Gate(significance=0.05), 0.84, 0, 3),  # worse than the old one's 0.85
        (Gate(significance=0.05), 0.85, 0, 10),
        (Gate(significance=0.05), 0.90, 95, 100),
        (Gate(at_least=-0.02, significance=0.05), 0.88, 95, 100),
        (Gate(at_least=-0.02, significance=0.05), 0.81, 0, 3),
        (Gate(at_least=0.02), 0.80, 0, 0),
    ],
)
def test_a_gate_is_as_strict_as_it_says(gate: Gate, new: float, least: int, most: int) -> None:
    passed = sum(_passes(gate, 1500, 0.85, new, seed) for seed in range(100))
    assert least <= passed <= most


def test_a_reason_says_what_is_missing() -> None:
    gate = Gate(at_least=0.1, significance=0.05)
    assert gate.reason("auc", 0.8, 0.85, 0.05, 0.9).endswith("it must be at least 0.1 better.")
    assert "may be chance" in gate.reason("auc", 0.8, 0.95, 0.15, 0.2)
    assert gate.reason("auc", 0.8, 0.95, 0.15, 0.01) == "auc went from 0.8 to 0.95."
    assert "no worse" in Gate().reason("rmse", 1.0, 1.2, -0.2, 1.0)
