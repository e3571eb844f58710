"""Upper bounds of the scores of a whole zoo at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.match.histogram import PIECES, SIZE_PIECES
from mmdb.graph.match.pack import Packed
from mmdb.graph.match.zoo import PackedZoo

# Sums of float32 and whole values of 1/SCALE are off by less than this.
_SLACK = 1e-4


def upper_bounds(child: Packed, zoo: PackedZoo) -> NDArray[np.float64]:
    """Return (Z,) numbers that are at least the scores of the child with each outline.

    score <= 1/2 min(T_P, T_C, sum of min(H_P, H_C) over the parameters' features) / T*
           + 1/2 min(N_P, N_C, sum of min(H_P, H_C) over the sizes' features) / N*
    """
    count = len(zoo)
    alike, shared = np.zeros(count, np.float32), np.zeros(count, np.float32)
    least = np.empty(count, np.float32)
    for feature, mass in zip(child.feature.tolist(), child.mass, strict=True):
        column = zoo.column(feature)
        if column is not None:
            np.minimum(column, mass, out=least)
            total = alike if feature % PIECES < SIZE_PIECES else shared
            total += least
    own = child.labels
    weight, parameters = own.weight @ child.counts, own.parameters @ child.counts
    arrays = zoo.sequences
    by_count = _share(alike, arrays.weight, float(weight))
    by_parameters = _share(shared, arrays.parameters, float(parameters))
    without = np.maximum(arrays.parameters, parameters) == 0
    found = np.where(without, by_count, (by_count + by_parameters) / 2)
    found = np.where(np.maximum(arrays.weight, weight) == 0, 1.0, found)  # nothing is all alike
    bounds: NDArray[np.float64] = np.minimum(1.0, found * (1 + _SLACK) + _SLACK / 100)
    return bounds


def _share(
    overlap: NDArray[np.float32], theirs: NDArray[np.float64], own: float
) -> NDArray[np.float64]:
    most = np.minimum(overlap.astype(np.float64) * (1 + _SLACK), np.minimum(theirs, own))
    found: NDArray[np.float64] = most / np.maximum(1.0, np.maximum(theirs, own))
    return found
