from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mmdb.graph.factories import cnn, mlp
from mmdb.plan.profile.machine_profile import profile_of
from mmdb.plan.step import CandidateCost, LayerCost
from mmdb.plan.step.corrections import BOUND, FEATURES, LEAST, VERSION, Residual, features, learn
from mmdb.plan.step.counts import KINDS
from mmdb.plan.step.recording import batch_of
from mmdb.plan.step.roofline import speeds_of, step_seconds
from mmdb.plan.step.step_work import Work, work_of

Array = NDArray[np.float64]
SPEEDS = speeds_of(profile_of([]))


def work(module: torch.nn.Module, shape: tuple[int, ...]) -> Work:
    return work_of(module, batch_of(shape), optimizer=torch.optim.Adam)


def drawn(count: int, seed: int = 0) -> Array:
    """Return features of steps that spend their time in one of three ways, more or less."""
    source = np.random.default_rng(seed)
    shares = source.dirichlet([1.0, 0.3, 0.1], count)
    return np.sqrt(shares)


def learned(factor: float, count: int = 40) -> tuple[Residual, Array]:
    rows = drawn(count)
    found = learn(list(rows), [1.0] * count, [factor] * count)
    assert found is not None
    return found, rows


def test_features_say_where_a_step_spends_its_time() -> None:
    with torch.device("meta"):
        dense = work(mlp((20,), 3, hidden=[4096]), (20,))
        images = work(cnn((3, 32, 32), 3), (3, 32, 32))
    rows = [
        features(dense, SPEEDS, 512),
        features(dense, SPEEDS, 1024),
        features(images, SPEEDS, 8),
    ]
    for row, (one, batch) in zip(rows, [(dense, 512), (dense, 1024), (images, 8)], strict=True):
        shares = row[:-2] ** 2
        assert shares.sum() == pytest.approx(1)
        assert row[-2] == pytest.approx(np.log(step_seconds(one, SPEEDS, batch)) / 10, rel=0.01)
        assert row[-1] == pytest.approx(np.log(batch) / 10)
    assert rows[0][KINDS.index("convolution")] == 0 < rows[2][KINDS.index("convolution")]
    near, far = (float(np.linalg.norm(row - rows[0])) for row in rows[1:])
    assert near < far / 3


def test_other_features_are_another_version() -> None:
    """Rows of a database are compared with the features of today."""
    with torch.device("meta"):
        found = features(work(mlp((20,), 3), (20,)), SPEEDS, 16)
    assert (VERSION, len(found)) == (1, 20) == (VERSION, FEATURES)


def test_an_error_is_corrected_near_the_data_and_hardly_far_from_it() -> None:
    found, rows = learned(1.2)
    assert found.factor(rows[0]) == pytest.approx(1.2, rel=0.01)
    assert 1 < found.factor(rows[0] + 10) < 1.15  # what all steps have in common
    assert found.deviation < 0.05


def test_a_difference_between_kinds_of_steps_is_learned() -> None:
    rows = drawn(100)
    measured = np.exp(0.3 * (rows[:, 0] ** 2 - 0.5))
    found = learn(list(rows), [1.0] * 100, measured.tolist())
    assert found is not None
    others = drawn(50, seed=1)
    missed = np.log([found.factor(row) for row in others]) - 0.3 * (others[:, 0] ** 2 - 0.5)
    assert np.median(np.abs(missed)) < 0.01


@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_a_correction_is_bounded(factor: float) -> None:
    found, rows = learned(factor)
    for row in rows:
        assert 1 - BOUND <= found.factor(row) <= 1 + BOUND


def test_one_outlier_rules_nothing() -> None:
    rows = drawn(40)
    found = learn(list(rows), [1.0] * 40, [1.0] * 39 + [50.0])
    assert found is not None
    changes = [abs(found.factor(row) - 1) for row in rows[:39]]
    assert np.median(changes) < 0.05


def test_few_measurements_teach_nothing() -> None:
    rows = drawn(LEAST - 1)
    assert learn(list(rows), [1.0] * len(rows), [1.2] * len(rows)) is None


def test_the_deviation_is_that_of_steps_left_out() -> None:
    rows, noise = drawn(120), np.random.default_rng(3).normal(0, 0.05, 120)
    found = learn(list(rows), [1.0] * 120, np.exp(noise).tolist())
    assert found is not None
    left = []
    for at in range(0, 120, 10):
        kept = [k for k in range(120) if k != at]
        part = learn([rows[k] for k in kept], [1.0] * 119, np.exp(noise[kept]).tolist())
        assert part is not None
        left.append(noise[at] - np.log(part.factor(rows[at])))
    assert 0.5 < found.deviation / float(np.std(left)) < 2
    assert 0.03 < found.deviation_at(rows[0]) < 0.08
    assert found.deviation_at(rows[0] + 10) > 2 * found.deviation_at(rows[0])


def test_costs_are_corrected_in_proportion() -> None:
    found, rows = learned(1.2)
    cost = CandidateCost(
        step_s=1.0, row_s=2.0, validation_row_s=3.0, hop_s=4.0, layers=(LayerCost(5.0, 6, 7),),
        uncertainty=0.1,
    )  # fmt: skip
    near = found.corrected(cost, rows[0])
    factor = found.factor(rows[0])
    assert (near.step_s, near.row_s, near.validation_row_s) == (factor, 2 * factor, 3 * factor)
    assert near.hop_s == 4 and near.layers == (LayerCost(5 * factor, 6, 7),)
    assert near.uncertainty < 0.05
    wild = learn(list(rows), [1.0] * 40, np.exp(np.linspace(-1, 1, 40)).tolist())
    assert wild is not None and wild.corrected(cost, rows[0] + 10).uncertainty == 0.1
