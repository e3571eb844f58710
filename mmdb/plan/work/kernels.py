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
_REACHES = (1.5, 2.5, 4.0, 7.0)
_NOISES = (0.02, 0.1, 0.4)
#: The largest factor that a correction may be.
_MOST = 4.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """What an operation of any shape takes; made by `fit_kernel`."""

    costs: _Array  # seconds of each of `_columns`
    known: _Array  # places of what was measured, (measurements, features)
    weights: _Array
    reach: float
    deviation: float  # of log(measured / predicted), each measurement left out in its turn

    def seconds(self, amounts: _Array) -> _Array:
        """Return what operations take.

        Args:
            amounts: (ROWS, operations); sides are 0 for what is no product.
        """
        plain = self.costs @ _columns(amounts)
        alike = _alike(_places(amounts), self.known, self.reach)
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
    best: tuple[float, float, _Array] = (math.inf, 0.0, np.zeros(len(y)))
    for reach in _REACHES:
        alike = _alike(places, places, reach)
        for noise in _NOISES:
            inverse = np.linalg.inv(alike + noise * np.eye(len(y)))
            weights = inverse @ misses
            left_out = weights / np.diag(inverse)  # what each would be missed by
            error = float(np.sqrt((left_out**2).mean()))
            if error < best[0]:
                best = (error, reach, np.asarray(weights, dtype=float))
    return Kernel(costs, places, best[2], best[1], best[0])


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
    padding = _full(amounts)
    found = np.stack([moved, m, n, inner, window, _groups(amounts) - 1])
    return np.vstack([np.log2(1 + found), np.log2(padding)]).T


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


def _alike(left: _Array, right: _Array, reach: float) -> _Array:
    squares = ((left[:, None] - right[None]) ** 2).sum(axis=2)
    found: _Array = np.exp(-squares / (2 * reach**2))
    return found
