"""Curves of random rows, with ties, weights and hardly any of a class, are scikit-learn's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.metrics as sk
import torch

from mmdb.judge.curves import calibration, precision_recall, roc

Case = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def _case(seed: int) -> Case:
    random = np.random.default_rng(seed)
    rows = int(random.integers(2, 120))
    scores = random.random(rows)
    if seed % 3:
        scores = np.round(scores, 1)
    positive = random.random(rows) < random.choice([0.03, 0.5, 0.97])
    positive[0], positive[-1] = True, False
    return scores, positive, random.uniform(0.1, 3, rows) if seed % 2 else None


def _tensors(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    scores, positive, weight = case
    given = None if weight is None else torch.from_numpy(weight)
    return torch.from_numpy(scores), torch.from_numpy(positive), given


@pytest.mark.parametrize("seed", range(200))
def test_curves_of_random_rows(seed: int) -> None:
    scores, positive, weight = case = _case(seed)
    points = roc(*_tensors(case))
    wanted = sk.roc_curve(positive, scores, sample_weight=weight)
    rates = [(p.false_positive_rate, p.true_positive_rate) for p in points]
    # scikit-learn may keep a point that rounding takes off a line: ours are among its own.
    for rate, point in zip(rates, points, strict=True):
        near = np.isclose(wanted[2], point.threshold, rtol=0, atol=1e-12) | (
            np.isinf(wanted[2]) & math.isinf(point.threshold)
        )
        (at,) = np.flatnonzero(near)
        assert rate == pytest.approx((wanted[0][at], wanted[1][at]), abs=1e-9)
    xs, ys = zip(*rates, strict=True)
    assert np.interp(wanted[0], xs, ys) == pytest.approx(wanted[1], abs=1e-9) or len(
        set(wanted[0])
    ) < len(wanted[0])
    assert np.trapezoid(ys, xs) == pytest.approx(sk.auc(*wanted[:2]), abs=1e-9)

    recalls = precision_recall(*_tensors(case))
    precision, recall, at_least = sk.precision_recall_curve(positive, scores, sample_weight=weight)
    ours = [(p.threshold, p.precision, p.recall) for p in reversed(recalls)]
    theirs = list(zip(at_least, precision[:-1], recall[:-1], strict=True))
    assert np.array(ours) == pytest.approx(np.array(theirs), abs=1e-9)

    bins = list(calibration(*_tensors(case), bins=7))
    place = np.clip((scores * 7).astype(int), 0, 6)
    counts = np.ones(len(scores)) if weight is None else weight
    assert [b.row_count for b in bins] == np.unique(place, return_counts=True)[1].tolist()
    for bin in bins:
        inside = place == round(bin.low * 7)
        share = np.average(positive[inside], weights=counts[inside])
        score = np.average(scores[inside], weights=counts[inside])
        assert (bin.share, bin.score) == pytest.approx((share, score), abs=1e-9)
