from __future__ import annotations

import numpy as np
import pytest

from mmdb.store.parents.choice import ParentMatch, Sample, log_evidence, logme, rerank


def features(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def evidence(f: np.ndarray, y: np.ndarray, alpha: float, beta: float) -> float:
    """Return log N(y; 0, I / beta + F F' / alpha), in which w is integrated out by hand."""
    n = len(y)
    covariance = np.eye(n) / beta + f @ f.T / alpha
    _, determinant = np.linalg.slogdet(covariance)
    inner = y @ np.linalg.solve(covariance, y)
    return float(-(inner + determinant + n * np.log(2 * np.pi)) / 2)


def parts(f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, tuple[int, int]]:
    u, s, _ = np.linalg.svd(f, full_matrices=False)
    return s**2, u.T @ y, float(y @ y), (f.shape[0], f.shape[1])


@pytest.mark.parametrize(("n", "d"), [(30, 5), (12, 12), (8, 20)])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.1, 7.0), (30.0, 0.2)])
def test_the_evidence_is_that_of_a_gaussian(n: int, d: int, alpha: float, beta: float) -> None:
    f, y = features(n, d), features(n, 1, 1)[:, 0]
    assert log_evidence(*parts(f, y), alpha, beta) == pytest.approx(evidence(f, y, alpha, beta))


@pytest.mark.parametrize(("n", "d", "noise"), [(40, 6, 0.3), (60, 3, 2.0), (20, 30, 1.0)])
def test_it_is_the_maximum_over_both_precisions(n: int, d: int, noise: float) -> None:
    f = features(n, d)
    y = f @ features(d, 1, 2)[:, 0] + noise * features(n, 1, 3)[:, 0]
    grid = np.logspace(-4, 4, 81)
    best = max(log_evidence(*parts(f, y), a, b) for a in grid for b in grid) / n
    assert best - 1e-3 <= logme(f, y) <= best + 0.05


def test_with_one_feature_of_unit_length_the_maximum_is_known() -> None:
    # F'F = 1: y has variance 1 / beta + 1 / alpha along F, and 1 / beta elsewhere.
    n = 50
    y = features(n, 1)[:, 0]
    f = np.zeros((n, 1))
    f[0] = 1.0
    y[0] = 10.0
    rest = float(y[1:] @ y[1:]) / (n - 1)
    expected = -(n * np.log(2 * np.pi) + np.log(100.0) + (n - 1) * np.log(rest) + n) / 2
    assert logme(f, y) * n == pytest.approx(expected, abs=1e-3)


def test_features_that_say_more_of_the_labels_have_more() -> None:
    labels = np.random.default_rng(5).integers(0, 3, 90)
    targets = np.eye(3)[labels]
    noise = features(90, 4, 6)
    good, fair = (
        np.hstack([targets + spread * features(90, 3, 7), noise]) for spread in (0.1, 1.0)
    )
    assert logme(good, targets) > logme(fair, targets) > logme(noise, targets)


def test_it_is_the_mean_over_the_targets() -> None:
    f, y = features(30, 4), features(30, 2, 1)
    assert logme(f, y) == pytest.approx((logme(f, y[:, 0]) + logme(f, y[:, 1])) / 2)


def test_rotated_features_are_as_good() -> None:
    f, y = features(30, 4), features(30, 1, 1)
    turn, _ = np.linalg.qr(features(4, 4, 9))
    assert logme(f @ turn, y) == pytest.approx(logme(f, y))


@pytest.mark.parametrize("f", [np.zeros((9, 3)), np.ones((9, 3)), np.eye(9)])
def test_it_is_a_number_for_features_that_say_nothing_or_all(f: np.ndarray) -> None:
    assert np.isfinite(logme(f, np.arange(9.0)))


def candidate(model_id: int) -> ParentMatch:
    return ParentMatch(
        model_id=model_id, model=f"net@{model_id}", similarity=0.9, coverage=0.9, accuracy=None,
        metric=None, dataset=None, is_fit=True, reason="alike",
    )  # fmt: skip


def test_the_first_five_are_ranked_and_those_without_features_come_after_them() -> None:
    targets = np.eye(2)[np.arange(40) % 2]
    found = {k: targets + 0.2 * k * features(40, 2, k) for k in (1, 2, 3)}
    found[4] = np.zeros((40, 2))
    sample = Sample(targets=targets, features=found.get)
    ranked = rerank([candidate(k) for k in (7, 4, 2, 3, 1, 6)], sample)
    assert [one.model_id for one in ranked] == [1, 2, 3, 4, 7, 6]
    assert "LogME" in ranked[0].reason
    assert "does not take the rows" in ranked[4].reason
    assert ranked[5].reason == "alike"
