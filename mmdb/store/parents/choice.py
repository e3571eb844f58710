"""What a parent is chosen by, and the order of those that train better on the child's rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

#: Below these a parent is refused: carrying weights over would not be worth it.
MIN_SIMILARITY, MIN_COVERAGE = 0.35, 0.2
#: Similarities are told apart by so many buckets; within one the metric decides.
BUCKETS = 20


def bucket_of(similarity: float) -> int:
    """Return the bucket of a similarity, the last one for 1.

    >>> bucket_of(0.0), bucket_of(0.7), bucket_of(1.0)
    (0, 14, 19)
    """
    return min(BUCKETS - 1, int(similarity * BUCKETS + 1e-9))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentGoal:
    """What a child is to be trained for; None is not known.

    Attributes:
        task: of the dataset, as `mmdb.data.decoding.TASKS` has it.
        dataset_id: what it is to be trained on.
        metric: what it is compared by: a key of a model's metrics, such as "accuracy".
        maximize: whether more of the metric is better.
    """

    task: str | None = None
    dataset_id: int | None = None
    metric: str | None = None
    maximize: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From where on a parent is good enough, both from 0 to 1."""

    similarity: float = MIN_SIMILARITY
    coverage: float = MIN_COVERAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentMatch:
    """A model that was looked at as a parent.

    Attributes:
        model: name@version.
        similarity: of the architectures, 0 to 1.
        coverage: the fraction of the child's parameters that it has values for.
        accuracy: the goal's metric as it is known of the model, or the first of its own.
        metric: whose value `accuracy` is.
        dataset: what it was trained on.
        is_fit: whether it could be the parent.
        reason: why it is the parent, or is not.
        pairs: ordinals of the layers of the child's and the model's outlines that belong
            together; outlines as `mmdb.graph.ops.node_contraction` makes them.
    """

    model_id: int
    model: str
    similarity: float
    coverage: float
    accuracy: float | None
    metric: str | None
    dataset: str | None
    is_fit: bool
    reason: str
    pairs: tuple[tuple[int, int], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentChoice:
    """A parent, or why there is none.

    Attributes:
        parent: None where no model fits.
        reason: why this one, or why none.
        candidates: the models that were looked at, the parent first, then the better ones first.
        match_s: seconds that it took.
    """

    parent: ParentMatch | None
    reason: str
    candidates: tuple[ParentMatch, ...]
    match_s: float


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
