"""LogME: how well a linear layer over a model's features could predict some labels. Pure.

Source: You, Liu, Wang, Long, LogME: Practical Assessment of Pre-trained Models for Transfer
Learning, arXiv 2102.11005, section 4 and algorithm 1. With features F (n, d) and a label y (n,),

    y ~ N(F w, I / beta),  w ~ N(0, I / alpha)
    log p(y | F) = n/2 log beta + d/2 log alpha - n/2 log 2 pi
                   - beta/2 |F m - y|^2 - alpha/2 |m|^2 - 1/2 log |A|
    A = alpha I + beta F'F,  m = beta A^-1 F'y

is maximized over alpha and beta by the fixed point alpha = g / |m|^2, beta = (n - g) / |F m - y|^2,
g = sum of beta s^2 / (alpha + beta s^2) over the singular values s of F; LogME is the maximum / n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mmdb.store.parents.choice import ParentMatch

#: Candidates that are ranked anew.
TOP = 5
_STEPS, _CLOSE = 100, 1e-4
_LEAST = 1e-12

_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Rows of a dataset.

    Attributes:
        targets: (n, c) float64: numbers, or 1 in the column of each row's class.
        features: gives what a model's last layer reads for these rows, (n, d), by its model_id;
            None where the model does not take them, or cannot be built.
    """

    targets: _Array
    features: Callable[[int], _Array | None]


def rerank(fits: Sequence[ParentMatch], sample: Sample) -> list[ParentMatch]:
    """Return candidates with the first five in the order of LogME.

    Those of them whose features cannot be had come after the others, as they were.
    """
    found: list[tuple[float, ParentMatch]] = []
    for candidate in fits[:TOP]:
        features = sample.features(candidate.model_id)
        if features is None:
            why = "it cannot be built, or does not take the rows of the sample"
            reason = f"{candidate.reason}; {why}"
            found.append((-np.inf, replace(candidate, reason=reason)))
        else:
            value = logme(features, sample.targets)
            reason = f"{candidate.reason}; LogME {value:.3f}"
            found.append((value, replace(candidate, reason=reason)))
    found.sort(key=lambda one: -one[0])
    return [*(candidate for _, candidate in found), *fits[TOP:]]


def logme(features: _Array, targets: _Array) -> float:
    """Return LogME of features, the mean over the targets.

    Args:
        features: (n, d).
        targets: (n,) or (n, c).
    """
    y = targets.reshape(len(targets), -1).astype(np.float64)
    u, s, _ = np.linalg.svd(features.astype(np.float64), full_matrices=False)
    kept = s > _LEAST * max(1.0, float(s.max(initial=0.0)))
    squares, along = s[kept] ** 2, u[:, kept].T @ y  # (r,), (r, c)
    values = [
        _maximum(squares, along[:, one], float(y[:, one] @ y[:, one]), features.shape)
        for one in range(y.shape[1])
    ]
    return float(np.mean(values))


def _maximum(squares: _Array, along: _Array, norm: float, shape: tuple[int, ...]) -> float:
    """Return max log p(y | F) / n.

    Args:
        squares: of the singular values.
        along: y along the left singular vectors.
        norm: |y|^2.
    """
    n, d = shape[0], shape[1]
    alpha = beta = 1.0
    for _ in range(_STEPS):
        g, length, rest = _terms(squares, along, norm, alpha / beta)
        before = alpha / beta
        alpha, beta = g / max(length, _LEAST), (n - g) / max(rest, _LEAST)
        alpha, beta = max(alpha, _LEAST), max(beta, _LEAST)
        if abs(alpha / beta - before) <= _CLOSE * before:
            break
    return log_evidence(squares, along, norm, (n, d), alpha, beta) / n


def log_evidence(
    squares: _Array, along: _Array, norm: float, shape: tuple[int, int], alpha: float, beta: float
) -> float:
    """Return log p(y | F) for given alpha and beta; see `_maximum` for the arguments."""
    n, d = shape
    _, length, rest = _terms(squares, along, norm, alpha / beta)
    determinant = np.log(alpha + beta * squares).sum() + (d - len(squares)) * np.log(alpha)
    inner = n * np.log(beta) + d * np.log(alpha) - n * np.log(2 * np.pi)
    return float(inner - beta * rest - alpha * length - determinant) / 2


def _terms(squares: _Array, along: _Array, norm: float, ratio: float) -> tuple[float, float, float]:
    """Return g, |m|^2 and |F m - y|^2 for a ratio alpha / beta."""
    shares = squares / (ratio + squares)
    g = float(shares.sum())
    length = float((squares * along**2 / (ratio + squares) ** 2).sum())
    rest = float((((1 - shares) * along) ** 2).sum()) + max(0.0, norm - float(along @ along))
    return g, length, rest
