"""All orders of a skeleton's layers at once, as rows of a dynamic program that is compiled.

Branches that may change places are written once for each set of those that can stand before them: a
row is a layer after such a set. Every path from the start to an end is an order of all layers, and
every order of free branches is a path, as long as there are at most COPIES rows of a layer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from mmdb.graph.match.pack import BranchPart, PackedSkeleton
from mmdb.graph.match.score import Labels

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Return a function compiled for the types that it is first called with.

    The result is kept beside the source, or in the user's folder of caches; where neither can be
    written, each process compiles anew.
    """
    try:
        made = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to keep it in
        made = numba.njit(nogil=True, error_model="numpy")(function)
    return cast(F, made)


#: Rows of one layer. Branches that would need more stand in their canonical order.
COPIES = 8
#: Stands before the first rows.
START = -1


class Orders(NamedTuple):
    """The rows, each after those that it can follow; and the skeleton that they are of.

    Attributes:
        layer, label: (rows,) int32, the layer of each row, and its label.
        first: (rows + 1,) int32; sources[first[r] : first[r + 1]] are what row r can follow.
        sources: int32, rows or START.
        ends: int32, the rows that nothing follows, or START.
        slot: (rows,) int32, where a row's values are kept while others need them; 0 is START's.
        slots: how many there are.
        labels, counts: as of the skeleton.
        weight, parameters: of all layers, in quarters; elements.
    """

    layer: NDArray[np.int32]
    label: NDArray[np.int32]
    first: NDArray[np.int32]
    sources: NDArray[np.int32]
    ends: NDArray[np.int32]
    slot: NDArray[np.int32]
    slots: int
    labels: Labels
    counts: NDArray[np.int64]
    weight: float
    parameters: float


def orders_of(packed: PackedSkeleton) -> Orders:
    """Return the orders of a skeleton's layers."""
    rows = _OrderRows()
    ends = rows.write(packed.branches, (START,), 1)
    sources = [source for row in rows.sources for source in row]
    slot = _slots(rows.sources, ends)
    layer = np.array(rows.layers, np.int32)
    return Orders(
        layer=layer,
        label=packed.label[layer].astype(np.int32),
        first=np.cumsum([0, *(len(row) for row in rows.sources)], dtype=np.int32),
        sources=np.array(sources, np.int32),
        ends=np.array(ends, np.int32),
        slot=np.array(slot, np.int32),
        slots=max(slot, default=0) + 1,
        labels=packed.labels,
        counts=packed.counts,
        weight=float(packed.labels.weight @ packed.counts),
        parameters=float(packed.labels.parameters @ packed.counts),
    )


class _OrderRows:
    def __init__(self) -> None:
        self.layers: list[int] = []
        self.sources: list[tuple[int, ...]] = []

    def write(self, part: BranchPart, ends: tuple[int, ...], copies: int) -> tuple[int, ...]:
        """Add the rows of a part that follow `ends`; return those that end it."""
        for item in part.items:
            if isinstance(item, int):
                ends = self._row(item, ends)
            elif (more := copies << len(item.parts) - 1) <= COPIES:
                ends = self._every_order(item.parts, ends, more)
            else:
                for branch in item.parts:
                    for layer in branch:
                        ends = self._row(layer, ends)
        return ends

    def _row(self, layer: int, ends: tuple[int, ...]) -> tuple[int, ...]:
        self.layers.append(layer)
        self.sources.append(ends)
        return (len(self.layers) - 1,)

    def _every_order(
        self, branches: Sequence[BranchPart], ends: tuple[int, ...], copies: int
    ) -> tuple[int, ...]:
        after = {0: ends}  # by the set of branches that stand before, as bits
        for done in range(1, 1 << len(branches)):
            last: tuple[int, ...] = ()
            for number, branch in enumerate(branches):
                if done >> number & 1:
                    last += self.write(branch, after[done ^ 1 << number], copies)
            after[done] = last
        return after[done]


def _slots(sources: Sequence[Sequence[int]], ends: Sequence[int]) -> list[int]:
    """Return a slot from 1 on for each row, used again once nothing reads the row any more."""
    last_use = {source: row for row, found in enumerate(sources) for source in found}
    last_use |= dict.fromkeys(ends, len(sources))
    slots: list[int] = []
    free: list[int] = []
    most = 0
    for row, found in enumerate(sources):
        if free:
            slots.append(heapq.heappop(free))
        else:
            most += 1
            slots.append(most)
        for source in found:
            if source != START and last_use[source] == row:
                heapq.heappush(free, slots[source])
    return slots


def passing_rows(packed: PackedSkeleton, orders: Orders) -> NDArray[np.int32]:
    """Return (rows + 1,) how many results, less one, are still to be read: at START, and by row."""
    readers = np.bincount(packed.sources, minlength=len(packed)).tolist()
    alive: dict[int, dict[int, int]] = {0: {}}  # by slot: readers to come, by layer
    passing = [0]
    for row, layer in enumerate(orders.layer.tolist()):
        before = int(orders.sources[orders.first[row]])
        unread = dict(alive[0 if before == START else int(orders.slot[before])])
        for source in packed.inputs[layer]:
            unread[source] -= 1
            if not unread[source]:
                del unread[source]
        if readers[layer]:
            unread[layer] = readers[layer]
        alive[int(orders.slot[row])] = unread
        passing.append(max(0, len(unread) - 1))
    return np.array(passing, np.int32)
