"""What a step holds in memory beside weights and optimizer state, at each moment of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.ops.op_graph import INPUT, PARAMETER, Value
from mmdb.plan.work.counts import Counted
from mmdb.plan.work.tensors import Tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Bytes at one batch size.

    Attributes:
        inputs: of the batch itself.
        kept: of what lies between forward and backward because the backward reads it, without the
            batch.
        alive: at each operation forward, then at each one backward, from the last to the first:
            the batch, what is kept, intermediate results, gradients, workspaces.
        crossing: at each operation, of results of earlier ones that it or a later one reads.
    """

    inputs: int
    kept: int
    alive: NDArray[np.float64]
    crossing: NDArray[np.float64]


def held(t: Tensors, counted: Sequence[Counted]) -> Held:
    """Follow the memory of a step, forward and backward."""
    operations = t.flow.operations
    n = len(operations)
    last = [storage.made_by for storage in t.storages]
    saver = [n] * len(t.storages)  # the first operation whose backward reads it: it goes then
    for op, one in zip(operations, counted, strict=True):
        for value in op.reads:
            last[t.storage(value)] = op.ordinal
        if one.backward:
            for value in one.saves:
                saver[t.storage(value)] = min(saver[t.storage(value)], op.ordinal)
    for value in t.flow.outputs:
        last[t.storage(value)] = n - 1
    forward, backward, crossing = _Sweep(n), _Sweep(n), _Sweep(n)
    inputs = kept = 0
    for number, storage in enumerate(t.storages):
        if storage.is_weight:
            continue
        made, size = storage.made_by, storage.bytes
        crossing.add(made + 1, last[number], size)
        if operations[made].op == INPUT:
            inputs += size
            forward.add(0, n - 1, size)
            backward.add(0, n - 1, size)
            continue
        is_kept = saver[number] < n
        kept += size if is_kept else 0
        forward.add(made, n - 1 if is_kept else last[number], size)
        if is_kept:
            backward.add(saver[number], n - 1, size)
        if t.needs_gradient(Value(made)):
            backward.add(made, last[number], size)
    for op, one in zip(operations, counted, strict=True):
        at = op.ordinal
        if op.op == PARAMETER and t.needs_gradient(Value(at)) and op.path not in t.flow.unread:
            backward.add(0, last[t.storage(Value(at))], t.bytes(Value(at)))
        if one.backward:
            kept += one.saved_bytes
            forward.add(at, n - 1, one.saved_bytes)
            backward.add(at, n - 1, one.saved_bytes)
            backward.add(at, at, one.workspace)
        forward.add(at, at, one.workspace)
    alive = np.concatenate([forward.sums(), backward.sums()[::-1]])
    return Held(inputs=inputs, kept=kept, alive=alive, crossing=crossing.sums())


class _Sweep:
    """Sums at each position, of amounts that hold over a range of positions."""

    def __init__(self, positions: int) -> None:
        self._steps = np.zeros(positions + 1)

    def add(self, first: int, last: int, amount: float) -> None:
        """Add an amount from the first to the last position; nothing if the last comes before."""
        if last >= first:
            self._steps[first] += amount
            self._steps[last + 1] -= amount

    def sums(self) -> NDArray[np.float64]:
        return np.cumsum(self._steps)[:-1]
