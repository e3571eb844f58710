"""Seeds and partition orders: pure functions of a run's seed and of ordinals, never of ids.

Ids differ from engine to engine; ordinals do not, so the same run gives the same bits everywhere.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

#: Part ordinal of the validation slice, which every epoch visits last.
VALIDATION = -1
#: Part ordinal of the hop that makes one state of an epoch's states, where a strategy has several.
MERGE = -2


def _digest(purpose: bytes, numbers: Iterable[int]) -> int:
    packed = b"".join(struct.pack("<q", n) for n in numbers)
    raw = hashlib.blake2b(packed, digest_size=8, person=purpose).digest()
    return int.from_bytes(raw, "little") >> 1  # 63 bits: fits a signed bigint


def candidate_seed(run_seed: int, candidate: int) -> int:
    """Return the seed of a candidate's initial weights."""
    return _digest(b"mmdb.candidate", (run_seed, candidate))


def frozen_seed(run_seed: int) -> int:
    """Return the seed of frozen layers that no model gives: all candidates of a run share them."""
    return _digest(b"mmdb.frozen", (run_seed,))


def hop_seed(run_seed: int, candidate: int, epoch: int, part: int) -> int:
    """Return the seed of a hop's row order and dropout."""
    return _digest(b"mmdb.hop", (run_seed, candidate, epoch, part))


def visit_order(run_seed: int, candidate: int, epoch: int, partitions: int) -> tuple[int, ...]:
    """Return the part ordinals in the order in which a candidate visits them in an epoch.

    All candidates of an epoch share one permutation, each rotated by its own ordinal, so that the
    k-th visits of any P consecutive candidates are to P different partitions (a Latin square).
    """
    base = sorted(range(partitions), key=lambda p: _digest(b"mmdb.order", (run_seed, epoch, p)))
    start = candidate % partitions
    return tuple(base[start:] + base[:start])
