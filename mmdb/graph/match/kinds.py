"""Kinds of layers as small numbers."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.flow.outline import ADD, CONCAT, MULTIPLY, UNREAD

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
