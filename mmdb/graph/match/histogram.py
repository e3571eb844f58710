"""What is left of an outline when its edges are forgotten: enough to bound scores.

Two layers of one kind share no more parameters than the overlap of the intervals [0, p_i] and
[0, p_j], and are alike by no more than the overlap of [s_i, s_i + APART] and [s_j, s_j + APART],
divided by APART, where s is the sum of a layer's log2 sizes: |s_i - s_j| <= apart(i, j). Both
intervals are cut into fixed pieces, and an outline's histogram adds up the lengths that its
layers have in each piece. For a set of pairs in which each layer is at most once, the sum of
overlaps in a piece is at most the smaller of the two outlines' entries there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.match.kinds import SLOTS, slot_of
from mmdb.graph.match.score import APART, Labels

# Stored histograms mean these pieces. The last one of each has no end.
_SIZES = np.append(np.arange(0.0, 42.0, 2.0), np.inf)  # of s
_PARAMETERS = np.append(np.append(0.0, 2.0 ** np.arange(4, 34, 2)), np.inf)  # of p
#: Pieces by kind: first those of the sizes, then those of the parameters.
SIZE_PIECES, PARAMETER_PIECES = len(_SIZES) - 1, len(_PARAMETERS) - 1
PIECES = SIZE_PIECES + PARAMETER_PIECES
FEATURES = SLOTS * PIECES


def histogram(
    labels: Labels, counts: NDArray[np.int64], kinds: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the features that are not 0, ascending, and their values, rounded up.

    A feature's number is slot of the kind * PIECES + piece; its value is in quarters of a layer
    for the sizes, in parameters for the parameters.

    Args:
        counts: how many layers are of each label.
        kinds: the number of each label's kind.
    """
    found = np.zeros((SLOTS, PIECES))
    if len(kinds):
        size = labels.logs.sum(axis=1)
        alike = _overlap(size, size + APART, _SIZES) / APART * labels.weight[:, None]
        shared = _overlap(np.zeros(len(kinds)), labels.parameters, _PARAMETERS)
        slots = np.array([slot_of(kind) for kind in kinds])
        np.add.at(found, slots, np.concatenate([alike, shared], axis=1) * counts[:, None])
    flat = found.ravel()
    features = np.flatnonzero(flat)
    return features, np.nextafter(flat[features].astype(np.float32), np.float32(np.inf))


def _overlap(
    low: NDArray[np.float64], high: NDArray[np.float64], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return (layers, pieces): how much of each interval lies in each piece."""
    begin = np.maximum(low[:, None], edges[None, :-1])
    end = np.minimum(high[:, None], edges[None, 1:])
    found: NDArray[np.float64] = np.maximum(0.0, end - begin)
    return found
