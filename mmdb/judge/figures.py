"""Figures of an evaluation that a page draws: confusion, curves, calibration, the worst rows.

They are values of JSON, of bounded size whatever the number of rows and classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmdb.judge.curves import calibration, precision_recall, roc
from mmdb.train.candidate.metrics import confusion

#: Points of a curve, classes with one, classes of a matrix, rows: at most. And ranges of errors.
_POINTS, _CURVES, _CLASSES, _WORST, _BINS = 100, 6, 20, 10, 30


def class_figures(
    names: Sequence[str],
    output: Tensor,
    guess: Tensor,
    y: Tensor,
    weight: Tensor | None,
    keys: Sequence[str],
) -> dict[str, Any]:
    """Return what is to be drawn of a classification.

    Args:
        output: float32 (n, classes). guess, y: int64 (n,). weight: float64 (n,).
        keys: names of the rows; none where there are none.
    Returns:
        confusion: classes and rows by label and guess, of the most frequent classes. curves: of the
        second of two classes, or of the most frequent, each with roc, recall and calibration.
        worst: the rows whose class was given the least probability.
    """
    chances = output.double().softmax(-1)
    frequent = torch.bincount(y, minlength=len(names)).argsort(descending=True, stable=True)
    cells = confusion(torch.nn.functional.one_hot(guess, len(names)), y, weight)
    present = cells.any(1)  # that a row with a weight above 0 has
    shown = frequent[:_CLASSES].sort().values
    curves = []
    for k in [1] if len(names) == 2 else frequent[:_CURVES].tolist():
        given = (chances[:, k], y == k, weight)
        if present[k] and present.sum() > 1:
            bins = calibration(*given)
            curves.append(
                {
                    "class": names[k],
                    "roc": [p[1:] for p in roc(*given, most=_POINTS)],
                    "recall": [p[:0:-1] for p in precision_recall(*given, most=_POINTS)],
                    "calibration": [[one.score, one.share, one.row_count] for one in bins],
                }
            )
    own = chances.gather(1, y[:, None])[:, 0]
    return {
        "confusion": {
            "classes": [names[k] for k in shown.tolist()],
            "rows": cells[shown][:, shown].tolist(),
        },
        "curves": curves,
        "worst": [
            {
                **_key(keys, k),
                "label": names[int(y[k])],
                "prediction": names[int(guess[k])],
                "probability": float(own[k]),
            }
            for k in own.argsort(stable=True)[:_WORST].tolist()
        ],
    }


def number_figures(output: Tensor, y: Tensor, keys: Sequence[str]) -> dict[str, Any]:
    """Return what is to be drawn of a regression.

    Args:
        output, y: (n,).
    Returns:
        residuals: ranges of label less prediction, with their rows. worst: the greatest ones.
    """
    wrong = y.double() - output.double()
    low, high = float(wrong.min()), float(wrong.max())
    counts = torch.histc(wrong, _BINS, low, high).tolist() if low < high else [float(len(wrong))]
    step = (high - low) / len(counts)
    return {
        "residuals": [
            [low + k * step, low + (k + 1) * step, int(count)] for k, count in enumerate(counts)
        ],
        "worst": [
            {
                **_key(keys, k),
                "label": float(y[k]),
                "prediction": float(output[k]),
                "residual": float(wrong[k]),
            }
            for k in wrong.abs().argsort(descending=True, stable=True)[:_WORST].tolist()
        ],
    }


def _key(keys: Sequence[str], place: int) -> dict[str, str]:
    return {"key": keys[place]} if keys else {}
