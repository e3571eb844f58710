"""How a child and a parent fit together, layer by layer: the best alignment itself.

Many alignments can be the best one: five equal blocks against three. Of those the one is taken
whose gaps are cheapest. A gap costs 1, and at both of its borders, in both skeletons, the results
that pass the border less one: nothing between two blocks, where only one result passes, more
within a block. So whole blocks are skipped. Two tables are filled: sums of alignments that end in a
pair, and of those that end in a gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.match.layer_orders import START, Orders, compiled, orders_of, passing_rows
from mmdb.graph.match.pack import PackedSkeleton
from mmdb.graph.match.packed_zoo import PackedZoo
from mmdb.graph.match.program import alike_and_shared, fill_values, room_of, scales, score

#: Bytes of choices that are kept at once; rows before them are filled a second time.
_ROOM_BYTES = 1 << 28
_NEVER = -(1 << 62)

# A choice: whether it follows a gap, whether it skips a column, and the number of the row's source.
_FROM_GAP, _SKIP_PARENT, _FIRST_SOURCE = 1, 2, 2


class Tables(NamedTuple):
    """Sums, and the cost of gaps, of the rows in use: (slots, columns + 1) each."""

    pair: NDArray[np.int64]
    gap: NDArray[np.int64]
    pair_cost: NDArray[np.int32]
    gap_cost: NDArray[np.int32]


class AlignmentFrame(NamedTuple):
    """The input of an alignment: the parent's labels by column, values of borders and of pairs."""

    place: NDArray[np.uint16]
    passing_columns: NDArray[np.int32]
    passing_rows: NDArray[np.int32]
    values: NDArray[np.int64]


def traceback(child: Orders, frame: AlignmentFrame) -> list[tuple[int, int]]:
    """Return the pairs (row, column) of the best alignment, ascending."""
    rows, columns = len(child.layer), len(frame.place)
    tables = _started(child.slots, columns, frame)
    height = max(1, _ROOM_BYTES // (2 * (columns + 1)))
    height = min(height, max(1, rows))
    choices = np.zeros((2, height, columns + 1), np.uint8)
    starts = list(range(0, rows, height)) or [0]
    kept = []
    for begin in starts:
        kept.append(_copy(tables) if len(starts) > 1 else tables)
        fill(child, frame, tables, begin, min(rows, begin + height), choices)
    row, in_gap = _best_end(child, tables, columns)
    pairs: list[tuple[int, int]] = []
    column = columns
    for begin in reversed(starts):
        if begin != starts[-1]:
            fill(child, frame, kept[starts.index(begin)], begin, begin + height, choices)
        row, column, in_gap = _follow(child, choices, begin, (row, column, in_gap), pairs)
    return pairs[::-1]


def _started(slots: int, columns: int, frame: AlignmentFrame) -> Tables:
    shape = slots, columns + 1
    tables = Tables(
        pair=np.full(shape, _NEVER, np.int64),
        gap=np.full(shape, _NEVER, np.int64),
        pair_cost=np.zeros(shape, np.int32),
        gap_cost=np.zeros(shape, np.int32),
    )
    tables.pair[0, 0] = 0
    tables.gap[0, 1:] = 0
    tables.gap_cost[0, 1:] = 1
    return tables


def _copy(tables: Tables) -> Tables:
    return Tables(
        pair=tables.pair.copy(),
        gap=tables.gap.copy(),
        pair_cost=tables.pair_cost.copy(),
        gap_cost=tables.gap_cost.copy(),
    )


def _best_end(child: Orders, tables: Tables, columns: int) -> tuple[int, bool]:
    def worth(end: int, in_gap: bool) -> tuple[int, int]:
        slot = 0 if end == START else int(child.slot[end])
        sums, costs = (tables.gap, tables.gap_cost) if in_gap else (tables.pair, tables.pair_cost)
        return int(sums[slot, columns]), -int(costs[slot, columns])

    ends = [(end, in_gap) for end in child.ends.tolist() for in_gap in (False, True)]
    return max(ends, key=lambda end: worth(*end))


def _follow(
    child: Orders,
    choices: NDArray[np.uint8],
    begin: int,
    state: tuple[int, int, bool],
    pairs: list[tuple[int, int]],
) -> tuple[int, int, bool]:
    """Go back from a cell until the rows before `begin`; add the pairs on the way."""
    row, column, in_gap = state
    while row >= begin and row != START:
        choice = int(choices[int(in_gap), row - begin, column])
        skips_parent = in_gap and bool(choice & _SKIP_PARENT)
        if not in_gap:
            pairs.append((row, column - 1))
        if not in_gap or skips_parent:
            column -= 1
        if not skips_parent:
            row = int(child.sources[child.first[row] + (choice >> _FIRST_SOURCE)])
        in_gap = bool(choice & _FROM_GAP)
    return row, column, in_gap


@compiled
def fill(
    child: Orders,
    frame: AlignmentFrame,
    tables: Tables,
    begin: int,
    end: int,
    choices: NDArray[np.uint8],
) -> None:
    """Fill the tables for the rows from `begin` to `end`, and their choices."""
    for row in range(begin, end):
        slot = child.slot[row]
        here = frame.passing_rows[row + 1]
        worth = frame.values[child.label[row]]
        tables.pair[slot, :] = _NEVER
        tables.gap[slot, :] = _NEVER
        for number in range(child.first[row + 1] - child.first[row]):
            source = child.sources[child.first[row] + number]
            there = frame.passing_rows[source + 1]
            _enter(
                tables,
                (slot, 0 if source == START else child.slot[source]),
                (there, number << _FIRST_SOURCE),
                worth,
                frame,
                choices[:, row - begin],
            )
        _skip_columns(tables, slot, here, frame, choices[1, row - begin])


@compiled
def _enter(
    tables: Tables,
    slots: tuple[int, int],
    source: tuple[int, int],
    worth: NDArray[np.int64],
    frame: AlignmentFrame,
    choices: NDArray[np.uint8],
) -> None:
    """Extend a source's row by a layer of the child, matched or skipped."""
    slot, before = slots
    passing, choice = source
    for j in range(frame.place.size + 1):
        border = passing + frame.passing_columns[j]
        pair, pair_cost = tables.pair[before, j], tables.pair_cost[before, j]
        gap, gap_cost = tables.gap[before, j], tables.gap_cost[before, j]
        # SKIP_CHILD
        total, cost, origin = gap, gap_cost, _FROM_GAP
        opened = pair_cost + 1 + border
        if pair > total or (pair == total and opened < cost):
            total, cost, origin = pair, opened, 0
        if total > tables.gap[slot, j] or (
            total == tables.gap[slot, j] and cost < tables.gap_cost[slot, j]
        ):
            tables.gap[slot, j], tables.gap_cost[slot, j] = total, cost
            choices[1, j] = choice | origin
        if j == frame.place.size or worth[frame.place[j]] < 0:
            continue
        # MATCH
        total, cost, origin = pair, pair_cost, 0
        closed = gap_cost + border
        if gap > total or (gap == total and closed < cost):
            total, cost, origin = gap, closed, _FROM_GAP
        total += worth[frame.place[j]]
        if total > tables.pair[slot, j + 1] or (
            total == tables.pair[slot, j + 1] and cost < tables.pair_cost[slot, j + 1]
        ):
            tables.pair[slot, j + 1], tables.pair_cost[slot, j + 1] = total, cost
            choices[0, j + 1] = choice | origin


@compiled
def _skip_columns(
    tables: Tables, slot: int, passing: int, frame: AlignmentFrame, choices: NDArray[np.uint8]
) -> None:
    """Extend a row by layers of the parent, skipped."""
    for j in range(frame.place.size):
        total, cost, origin = tables.gap[slot, j], tables.gap_cost[slot, j], _FROM_GAP
        pair = tables.pair[slot, j]
        opened = tables.pair_cost[slot, j] + 1 + passing + frame.passing_columns[j]
        if pair > total or (pair == total and opened < cost):
            total, cost, origin = pair, opened, 0
        if total > tables.gap[slot, j + 1] or (
            total == tables.gap[slot, j + 1] and cost < tables.gap_cost[slot, j + 1]
        ):
            tables.gap[slot, j + 1], tables.gap_cost[slot, j + 1] = total, cost
            choices[j + 1] = _SKIP_PARENT | origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """An alignment of a child's layers with a parent's.

    Attributes:
        score: as `score.py` defines it.
        coverage: the fraction of the child's parameters that the matched layers of the parent have
            values for: sum of p_i * prod min(1, d_j / d_i), over T_C; 1 without parameters.
        pairs: ordinals of child and parent, ascending by the child's; layers that have nothing in
            common but their kind are left out.
    """

    score: float
    coverage: float
    pairs: tuple[tuple[int, int], ...]


class PackedChild(NamedTuple):
    """A child, prepared once for the comparison with all parents."""

    orders: Orders
    passing: NDArray[np.int32]


def child_of(packed: PackedSkeleton) -> PackedChild:
    """Return a child's orders of layers."""
    orders = orders_of(packed)
    return PackedChild(orders, passing_rows(packed, orders))


def alignment_with_itself(packed: PackedSkeleton) -> Alignment:
    """Return the alignment of a skeleton with itself: each layer with itself."""
    return Alignment(score=1.0, coverage=1.0, pairs=tuple((i, i) for i in range(len(packed.label))))


def align(child: PackedSkeleton, parent: PackedSkeleton) -> Alignment:
    """Return the alignment of two skeletons."""
    zoo = PackedZoo()
    zoo.add(b"", parent)
    return align_with(child_of(child), zoo, 0)


def align_with(child: PackedChild, zoo: PackedZoo, number: int) -> Alignment:
    """Return the alignment of a child with a skeleton of a zoo."""
    orders, arrays = child.orders, zoo.sequences
    values, sums = room_of(orders, arrays)
    found = float(score(orders, arrays, number, -1.0, values, sums))
    fill_values(orders, arrays, number, scales(orders, arrays, number), values)
    place = arrays.place[slice(*arrays.start[number : number + 2].tolist())]
    frame = AlignmentFrame(
        place=place,
        passing_columns=np.append(0, zoo.crossing(number)).astype(np.int32),
        passing_rows=child.passing,
        values=values,
    )
    labels, ordinals = arrays.label[arrays.label_start[number] :], zoo.order(number)
    pairs, covered = [], 0.0
    for row, column in traceback(orders, frame):
        i, j = int(orders.label[row]), int(labels[place[column]])
        if alike_and_shared(orders.labels, i, arrays.labels, j)[0] > 0:
            pairs.append((int(orders.layer[row]), int(ordinals[column])))
            missing = orders.labels.logs[i] - arrays.labels.logs[j]
            missing[0] = abs(missing[0])  # other groups are other weights
            covered += orders.labels.parameters[i] * 2.0 ** -np.maximum(0.0, missing).sum()
    return Alignment(
        score=found,
        coverage=float(covered / orders.parameters) if orders.parameters else 1.0,
        pairs=tuple(sorted(pairs)),
    )
