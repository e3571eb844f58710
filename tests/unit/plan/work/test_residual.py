from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from mmdb.graph.factories import mlp
from mmdb.plan.work.residual import BOUND, FEATURES, LEAST, Residual, features, learn, residual_of
from mmdb.plan.work.training import batch_of
from mmdb.plan.work.work import work_of

TORCH = "2.13.0"


def drawn(count: int, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.random.default_rng(seed).uniform(5, 15, (count, len(FEATURES)))


def learned(factor: float, count: int = 40) -> tuple[Residual, np.ndarray]:
    rows = drawn(count)
    found = learn(rows, [1.0] * count, [factor] * count, TORCH)
    assert found is not None
    return found, rows


def test_features_are_logarithms_of_what_a_step_does() -> None:
    with torch.device("meta"):
        found = work_of(mlp((20,), 3), batch_of((20,)), optimizer=torch.optim.Adam)
    row = dict(zip(FEATURES, features(found, 16), strict=True))
    products = 2 * 16 * (20 * 64 * 2 + 64 * 3 * 3)
    assert row["matmul_flops"] == pytest.approx(np.log1p(products))
    assert row["convolution_flops"] == 0
    assert row["batch"] == pytest.approx(np.log(17))


def test_a_constant_error_is_corrected_near_the_data_and_fades_far_from_it() -> None:
    found, rows = learned(1.2)
    assert found.factor(rows[0]) == pytest.approx(1.2, rel=0.01)
    assert found.factor(rows[0] + 1e4) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_a_correction_is_bounded(factor: float) -> None:
    found, rows = learned(factor)
    for row in rows:
        assert 1 - BOUND <= found.factor(row) <= 1 + BOUND


def test_an_error_that_depends_on_a_feature_is_learned() -> None:
    rows = drawn(200)
    measured = np.exp(0.02 * (rows[:, 0] - 10))
    found = learn(rows, [1.0] * 200, measured.tolist(), TORCH)
    assert found is not None
    corrected = [found.factor(row) for row in rows]
    assert np.abs(np.log(corrected / measured)).max() < 0.02
    assert found.deviation < 0.02


def test_few_measurements_teach_nothing() -> None:
    rows = drawn(LEAST - 1)
    assert learn(rows, [1.0] * len(rows), [1.2] * len(rows), TORCH) is None


def test_it_survives_json_and_is_refused_for_another_version() -> None:
    found, rows = learned(1.2)
    raw = json.loads(json.dumps(found.to_json()))
    again = residual_of(raw, TORCH)
    assert again is not None
    assert again.factor(rows[3]) == found.factor(rows[3])
    assert residual_of(raw, "2.14.0") is None
    assert residual_of({**raw, "features": ["batch"]}, TORCH) is None
    assert residual_of({}, TORCH) is None
