"""Seconds of single operations, learned from measured ones of many shapes.

Each is a fixed cost, and one of a FLOP, a byte, a place and a group, times what shapes alike were
measured to take more or less than that: a Gaussian process of the logarithms, which fades to
nothing away from them (Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning",
sections 2.2 and 5.4.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[np.float64]
#: Rows of amounts: FLOPs, bytes, m, n, k, and the places of a convolution's kernel.
ROWS = 6
#: Channels that oneDNN computes at a time: others are computed as if there were more.
_BLOCK = 16
#: How far shapes are alike, in doublings of one amount; variances of what was measured.
_REACHES = (1.5, 3.0, 6.0)
_NOISES = (0.03, 0.2)
#: How much sooner, or later, shapes of one feature may be unlike; what makes it worth it.
_TIMES = (5.0, 2.0, 0.4, 0.1)
_BETTER = 0.98
#: The largest factor that a correction may be.
_MOST = 4.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """What an operation of any shape takes; made by `fit_kernel`."""

    costs: _Array  # seconds of each of `_columns`
    known: _Array  # places of what was measured, scaled, (measurements, features)
    weights: _Array
    scales: _Array  # of features: the larger, the sooner shapes are unlike
    deviation: float  # of log(measured / predicted), each measurement left out in its turn

    def seconds(self, amounts: _Array) -> _Array:
        """Return what operations take.

        Args:
            amounts: (ROWS, operations); sides are 0 for what is no product.
        """
        plain = self.costs @ _columns(amounts)
        alike = _alike(_places(amounts) * self.scales, self.known)
        limit = math.log(_MOST)
        found: _Array = plain * np.exp(np.clip(alike @ self.weights, -limit, limit))
        return found


def fit_kernel(amounts: _Array, seconds: Sequence[float]) -> Kernel:
    """Return what was learned from measured operations.

    Args:
        amounts: (ROWS, measurements).
    """
    y = np.asarray(seconds, dtype=float)
    columns = _columns(amounts)
    costs = least_relative(columns, y)
    misses = np.log(y / np.maximum(1e-12, costs @ columns))
    places = _places(amounts)
    one = np.ones(places.shape[1])
    tries = [(one / reach, noise) for reach in _REACHES for noise in _NOISES]
    best = min((_learned(places * scales, misses, noise)[0], n) for n, (scales, noise) in
               enumerate(tries))  # fmt: skip
    error, (scales, noise) = best[0], tries[best[1]]
    for at in np.flatnonzero(np.ptp(places, axis=0)):  # which features matter more, or less
        for times in _TIMES:
            tried = scales.copy()
            tried[at] *= times
            found = _learned(places * tried, misses, noise)[0]
            if found < _BETTER * error:
                error, scales = found, tried
    known = places * scales
    return Kernel(costs, known, _learned(known, misses, noise)[1], scales, error)


def _learned(known: _Array, misses: _Array, noise: float) -> tuple[float, _Array]:
    """Return what measurements are missed by where each is left out in its turn, and weights."""
    inverse = np.linalg.inv(_alike(known, known) + noise * np.eye(len(misses)))
    weights: _Array = inverse @ misses
    left_out = weights / np.diag(inverse)
    return float(np.sqrt((left_out**2).mean())), weights


def least_relative(columns: _Array, seconds: _Array) -> _Array:
    """Return weights >= 0 of columns whose sum has the least squared relative errors.

    >>> least_relative(np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]), np.array([3.0, 5.0, 7.0]))
    array([1., 2.])
    """
    scaled = (columns / seconds).T
    norms = np.maximum(np.linalg.norm(scaled, axis=0), 1e-300)
    best, found = math.inf, np.zeros(len(columns))
    for size in range(1, len(columns) + 1):
        for chosen in combinations(range(len(columns)), size):
            part = scaled[:, chosen] / norms[list(chosen)]
            weights, *_ = np.linalg.lstsq(part, np.ones(len(seconds)))
            error = float(((part @ weights - 1) ** 2).sum())
            if (weights >= 0).all() and error < best - 1e-12:
                best, found = error, np.zeros(len(columns))
                found[list(chosen)] = weights / norms[list(chosen)]
    return found


def _columns(amounts: _Array) -> _Array:
    flops, moved, m, *_ = amounts
    groups, padded = _groups(amounts), flops * _full(amounts)
    return np.stack([np.ones_like(flops), flops, padded, moved, m, groups])


def _places(amounts: _Array) -> _Array:
    _, moved, m, n, k, window = amounts
    inner = k / np.maximum(1, window)
    is_convolution = (window > 0) & (k > 0)
    found = np.stack([moved, m, n, inner, window, _groups(amounts) - 1])
    whole = [is_convolution & (channels % _BLOCK == 0) for channels in (n, inner)]
    return np.vstack([np.log2(1 + found), np.log2(_full(amounts)), *whole]).T


def _groups(amounts: _Array) -> _Array:
    flops, _, m, n, k, _ = amounts
    one = 2 * m * n * k
    return np.where(one > 0, flops / np.maximum(1, one), 1.0)


def _full(amounts: _Array) -> _Array:
    """Return the channels that a convolution computes, over those that it has; 1 of all else."""
    _, _, _, n, k, window = amounts
    found = np.ones_like(n)
    for channels in (n, k / np.maximum(1, window)):
        found *= np.ceil(channels / _BLOCK) * _BLOCK / np.maximum(1, channels)
    return np.where((window > 0) & (k > 0), found, 1.0)


def _alike(left: _Array, right: _Array) -> _Array:
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None] - 2 * left @ right.T
    found: _Array = np.exp(-np.maximum(0.0, squares) / 2)
    return found
