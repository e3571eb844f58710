"""Memory: sums into new tensors, and copies into memory at hand; seconds over bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from mmdb.plan.profile.measures.timing import Allowance, Task, measure_sizes
from mmdb.plan.profile.row import Row

#: float32 numbers of a tensor: from less than a cache line's worth of work to beyond the caches.
NUMBERS = (2**8, 2**11, 2**13, 2**15, 2**17, 2**19, 2**21, 2**23)
_FLOAT = 4


def measure_memory(allowance: Allowance, seed: int, device: torch.device) -> Iterator[Row]:
    """Measure elementwise operations and copies."""
    return measure_sizes(allowance, [partial(_tasks, n, device) for n in NUMBERS])


def _tasks(numbers: int, device: torch.device) -> list[Task]:
    left, right = (torch.full((numbers,), value, device=device) for value in (1.0, 2.0))
    target = torch.empty_like(left)
    moved = float(_FLOAT * numbers)
    return [
        Task("elementwise", 3 * moved, partial(torch.add, left, right)),
        Task("copy", 2 * moved, partial(target.copy_, left)),
    ]
