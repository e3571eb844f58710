"""What a sum over an axis is of the parent's, whose elements are repeated and multiplied in it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mmdb.graph.transfer.counterparts.indices import MEAN, NEW, Factor, Index
from mmdb.graph.transfer.images import arrays
from mmdb.graph.transfer.images.images import Mask


def columns(
    index: Index, given: Factor, share: Callable[[Index], Factor], groups: Index | None = None
) -> tuple[Factor, Mask]:
    """Return factors by which a weight reads what is `given` times the parent's, and free places.

    Copies share; what is no copy of an element, or the mean of all, is not read. Where zero comes
    in, the weight is free.

    Args:
        groups: copies in different groups do not share.
    """
    live = (index >= 0) & (given != 0)
    found = np.zeros(len(index))
    key = index[live]
    if groups is not None:
        key = np.unique(groups[live] * (index.max(initial=0) + 1) + key, return_inverse=True)[1]
    found[live] = share(key) / given[live]
    return found, (index != NEW) & (given == 0)


def total(index: Index, size: int, given: Factor, factors: Factor) -> float | None:
    """Return what a sum over an axis is of the parent's, None if it is not one multiple of it."""
    weights = given * factors
    if (weights[index < 0] != 0).any():
        return None
    sums: Factor = np.bincount(index[index >= 0], weights[index >= 0], size).astype(np.float64)
    return float(sums[0]) if size and arrays.same(sums, sums[:1]) else None


def mean_total(index: Index, size: int, weights: Factor) -> float | None:
    """Return `total` of a sum in which means of all elements may be."""
    if (weights[index == NEW] != 0).any():
        return None
    sums: Factor = np.bincount(index[index >= 0], weights[index >= 0], size).astype(np.float64)
    sums = sums + weights[index == MEAN].sum() / size
    return float(sums[0]) if size and arrays.same(sums, sums[:1]) else None
