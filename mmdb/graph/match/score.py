"""How alike two architectures are, and how much of one can come from the other.

Layers i of the child and j of the parent have a kind, sizes d (the weight's shape, and the groups),
parameters p, and a weight c in the count: 1, or 1/4 where results only meet. T and N are the sums
of p and c over a skeleton, T* and N* the larger ones of the two skeletons' sums.

    apart(i, j)  = sum of |log2(d_i / d_j)| = -log2 prod (min(d_i, d_j) / max(d_i, d_j))
    alike(i, j)  = max(0, 1 - apart / APART)
    shared(i, j) = min(p_i, p_j) * prod min(d_i, d_j) / min(prod d_i, prod d_j), 0 if alike is 0
    value(i, j)  = 1/2 shared / T* + 1/2 c alike / N*

An alignment is a set of pairs (i, j) of one kind and rank, each layer in at most one pair: MATCH.
All other layers are skipped: SKIP_CHILD, SKIP_PARENT. The pairs increase in the canonical order of
the parent's layers and in one of the orders of the child's (`pack.py`): whole branches that lie
side by side may change places, and nothing else. Of all alignments the one with the largest sum of
c is taken, of those the one with the largest sum of value, and

    score = sum of value

Each half is a part of the larger of the two skeletons' own sums, with themselves: inserted layers
tell, and so do removed ones. Values are whole multiples of 1/SCALE, so that sums do not depend on
the order of their terms, equal scores are equal, and a skeleton with itself has 1.

Why so:
- 0 <= score <= 1, as shared(i, j) <= p_i, p_j and alike <= 1.
- It is a property of the graph: names and numbers do not enter, nor does the order of what is added
  or multiplied. Each layer counts once, however many branches pass through it.
- A child that is the parent with blocks put into its edges: all of the parent is matched, and
  score = 1/2 T_P / T_C + 1/2 N_P / N_C, which falls with every block. Removed blocks are the same.
- A child that is the parent with sizes that all are larger, or all smaller: the number of pairs
  comes first, so that a pyramid of widths is not moved by a stage for the sake of equal shapes; and
  pairing each layer with itself is best, as sum |x_i + t_i - x_s(i)| >= sum |t_i| for each
  permutation s, where x is log2 d and all t have one sign. So the score is
  1/2 T_P / T_C + 1/2 sum c alike / N: it falls with every gap, until a layer is apart by APART.
- log2 of the product of ratios, because a layer x1.5 wider is a good match (0.85 of a layer), and
  one of kernel 5 for 3 a fair one (0.82); the product itself would leave 0.44 and 0.36.
- Half by parameters, half by count: parameters alone are those of one classifier or embedding, the
  count alone is that of the normalisations.

This holds while all orders of free branches are kept apart, `COPIES` of a layer; branches
nested more deeply stand in their canonical order.

A histogram is what is left when edges are forgotten; it bounds scores.

Two layers of one kind share no more parameters than the overlap of the intervals [0, p_i] and
[0, p_j], and are alike by no more than the overlap of [s_i, s_i + APART] and [s_j, s_j + APART],
divided by APART, where s is the sum of a layer's log2 sizes: |s_i - s_j| <= apart(i, j). Both
intervals are cut into fixed pieces, and a skeleton's histogram adds up the lengths that its
layers have in each piece. For a set of pairs in which each layer is at most once, the sum of
overlaps in a piece is at most the smaller of the two skeletons' entries there.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.ops.skeleton import ADD, CONCAT, MULTIPLY, UNREAD

#: A kind's number is its place here. Stored: names are only ever added, at the end.
KINDS = (
    ADD,
    CONCAT,
    MULTIPLY,
    "conv1d",
    "conv2d",
    "conv3d",
    "depthwise1d",
    "depthwise2d",
    "depthwise3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "linear",
    "linear_transposed",
    "batched_linear",
    "bilinear",
    "matmul_left",
    "einsum",
    "attention",
    "embedding",
    "batch_norm",
    "layer_norm",
    "group_norm",
    "instance_norm",
    "rms_norm",
    "lstm",
    "gru",
    "rnn_tanh",
    "rnn_relu",
    "scale",
    "bias",
    "prelu",
    UNREAD,
)
#: Where histograms count kinds: one slot each, with room, and the last ones for all other kinds.
SLOTS, OTHER_SLOTS = 56, 8
#: How much a layer counts, in quarters: one that holds tensors, and a place where results meet.
FULL, MEETING = 4, 1

_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
_OTHER = 1 << 30  # numbers from here on are hashes of names that are not in KINDS


def number_of(kind: str) -> int:
    """Return the number of a kind, below 2^31; the same in every process and version."""
    if kind in _NUMBERS:
        return _NUMBERS[kind]
    return _OTHER | int.from_bytes(blake2b(kind.encode(), digest_size=4).digest()) % _OTHER


def slot_of(number: int) -> int:
    """Return where histograms count a kind, below SLOTS."""
    return number if number < _OTHER else SLOTS - OTHER_SLOTS + number % OTHER_SLOTS


def weights_of(numbers: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return how much a layer of each kind counts, in quarters."""
    return np.where(numbers <= 2, MEETING, FULL).astype(np.int64)


def commutes(number: int) -> bool:
    """Return whether the arguments of a kind may change places."""
    return number in (_NUMBERS[ADD], _NUMBERS[MULTIPLY])


def are_numbers(numbers: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return whether each number can be a kind's."""
    found: NDArray[np.bool_] = (numbers >= 0) & (numbers < len(KINDS)) | (numbers >= _OTHER)
    return found


#: Halvings of the product of ratios after which two layers have nothing in common.
APART = 8.0
#: A value of 1.
SCALE = 1 << 40
#: Alignments are compared by (sum of c in quarters) << SHIFT | (sum of value).
SHIFT = 41
#: Sizes of a layer that are told apart; of more, the last ones count as one.
SIZES = 8


class Labels(NamedTuple):
    """Layers that differ in kind, sizes or parameters, each once.

    Attributes:
        form: (labels,) int64, kind and rank: only equal ones match.
        weight: (labels,) int64, c in quarters.
        logs: (labels, SIZES) float64, log2 of the groups and of the shape, then zeros.
        parameters: (labels,) float64.
    """

    form: NDArray[np.int64]
    weight: NDArray[np.int64]
    logs: NDArray[np.float64]
    parameters: NDArray[np.float64]


def labels_of(
    kind: NDArray[np.int32],
    groups: NDArray[np.int64],
    rank: NDArray[np.uint8],
    shape: NDArray[np.int64],
    parameters: NDArray[np.int64],
) -> Labels:
    """Return labels in the form that is compared.

    Args:
        rank: how many sizes each has.
        shape: their sizes, one label after the other; a size of 0 counts as 1.
    """
    ends = np.cumsum(rank, dtype=np.int64)
    owner = np.repeat(np.arange(len(rank)), rank)
    place = np.arange(len(shape)) - (ends - rank)[owner] + 1
    logs: NDArray[np.float64] = np.zeros(len(rank) * SIZES)
    logs += np.bincount(
        owner * SIZES + np.minimum(place, SIZES - 1),
        np.log2(np.maximum(1, shape.astype(np.float64))),
        len(logs),
    )
    logs = logs.reshape(-1, SIZES)
    logs[:, 0] = np.log2(np.maximum(1, groups.astype(np.float64)))
    return Labels(
        form=kind.astype(np.int64) << 8 | rank,
        weight=weights_of(kind),
        logs=logs,
        parameters=parameters.astype(np.float64),
    )


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
