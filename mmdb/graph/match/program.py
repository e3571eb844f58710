"""Scores of a child with skeletons of a zoo, best first: an exact dynamic program, compiled.

S[r][j] is the best sum over alignments of the layers on a path to row r with j of the parent's:

    S[r][j] = max( S[r][j-1],                                  SKIP_PARENT
                   max over s before r of S[s][j],             SKIP_CHILD
                   max over s before r of S[s][j-1] + v(r, j)  MATCH )

A sum holds the weight of the pairs above and their value below, as one int64. Where paths meet the
best one is taken, never their sum, so that a layer counts once.

The formulas are those of `score.py`. All that is compiled for a score stands here, since what numba
keeps of a function notices changes of the function's own file only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.match.layer_orders import START, Orders, compiled
from mmdb.graph.match.packed_zoo import Sequences
from mmdb.graph.match.score import APART, SCALE, SHIFT, Labels

#: Of a pair of different form: less than any sum can make good.
NO_MATCH = -(1 << 61)
#: The part of an int64 that holds the sum of value.
VALUE_BITS = (1 << SHIFT) - 1

_ROUNDING = 1e-9  # of a sum of logarithms


@compiled
def scales(child: Orders, zoo: Sequences, number: int) -> tuple[float, float]:
    """Return SCALE / 2 T* and SCALE / 2 N*, N in quarters; without parameters 0 and SCALE / N*."""
    parameters = max(child.parameters, zoo.parameters[number])
    weight = max(1.0, child.weight, zoo.weight[number])
    if parameters == 0:
        return 0.0, SCALE / weight
    return SCALE / 2 / parameters, SCALE / 2 / weight


@compiled
def alike_and_shared(ours: Labels, i: int, theirs: Labels, j: int) -> tuple[float, float]:
    """Return alike(i, j) and shared(i, j) of two labels of one form, both 0 if that far apart."""
    apart = larger = 0.0
    for size in range(ours.logs.shape[1]):
        gap = ours.logs[i, size] - theirs.logs[j, size]
        apart += abs(gap)
        larger += gap
    if apart >= APART:
        return 0.0, 0.0
    crossed = apart - abs(larger)  # 0 where one tensor fits into the other
    inner = 1.0 if crossed < _ROUNDING else 2.0 ** (-crossed / 2)
    return 1.0 - apart / APART, min(ours.parameters[i], theirs.parameters[j]) * inner


@compiled
def self_value(parameters: float, weight: int, by: tuple[float, float]) -> tuple[int, int]:
    """Return the two halves of a layer's value with itself."""
    return int(by[0] * parameters), int(by[1] * weight)


@compiled
def fill_values(
    child: Orders, zoo: Sequences, number: int, by: tuple[float, float], values: NDArray[np.int64]
) -> tuple[int, int]:
    """Write for each pair of labels its weight << SHIFT | value, or NO_MATCH.

    Args:
        by: as `scales` returns.
        values: (labels of the child, at least as many as the parent has), written.
    Returns:
        The value of 1, and what no alignment exceeds.
    """
    ours, theirs = child.labels, zoo.labels
    first, last = zoo.label_start[number], zoo.label_start[number + 1]
    shared_own = alike_own = shared_their = alike_their = most_own = most_their = 0
    for i in range(ours.form.size):
        best = 0
        for k in range(last - first):
            j = zoo.label[first + k]
            values[i, k] = NO_MATCH
            if ours.form[i] == theirs.form[j]:
                alike, shared = alike_and_shared(ours, i, theirs, j)
                value = int(by[0] * shared) + int(by[1] * (ours.weight[i] * alike))
                values[i, k] = (ours.weight[i] << SHIFT) + value
                best = max(best, value)
        most_own += child.counts[i] * best
        shared_self, alike_self = self_value(ours.parameters[i], ours.weight[i], by)
        shared_own += child.counts[i] * shared_self
        alike_own += child.counts[i] * alike_self
    for k in range(last - first):
        j, best, count = zoo.label[first + k], 0, zoo.counts[first + k]
        for i in range(ours.form.size):
            if values[i, k] >= 0:
                best = max(best, values[i, k] & VALUE_BITS)
        most_their += count * best
        shared_self, alike_self = self_value(theirs.parameters[j], theirs.weight[j], by)
        shared_their += count * shared_self
        alike_their += count * alike_self
    one = max(shared_own, shared_their) + max(alike_own, alike_their)
    return one, min(most_own, most_their)


@compiled
def score(
    child: Orders,
    zoo: Sequences,
    number: int,
    floor: float,
    values: NDArray[np.int64],
    sums: NDArray[np.int64],
) -> float:
    """Return the child's score with skeleton `number`, or -1 if it is seen to be below `floor`.

    Args:
        values, sums: room that `room_of` returns; what is in it does not matter.
    """
    divisor, most = fill_values(child, zoo, number, scales(child, zoo, number), values)
    if divisor == 0:  # two skeletons without layers
        return 1.0
    if most / divisor < floor:
        return -1.0
    place = zoo.place[zoo.start[number] : zoo.start[number + 1]]
    found = _best_sum(child, place, values, sums)
    return (found & VALUE_BITS) / divisor


@compiled
def _best_sum(
    child: Orders, place: NDArray[np.uint16], values: NDArray[np.int64], sums: NDArray[np.int64]
) -> int:
    columns = place.size
    merged = sums[child.slots]
    sums[0, : columns + 1] = 0
    for row in range(child.layer.size):
        first, last = child.first[row], child.first[row + 1]
        before = sums[_slot(child, child.sources[first])]
        if last > first + 1:
            merged[: columns + 1] = before[: columns + 1]
            for other in range(first + 1, last):
                joined = sums[_slot(child, child.sources[other])]
                for j in range(columns + 1):
                    merged[j] = max(merged[j], joined[j])
            before = merged
        worth = values[child.label[row]]
        after = sums[child.slot[row]]
        best = before[0]
        after[0] = best
        for j in range(columns):
            matched = before[j] + worth[place[j]]
            best = max(best, max(before[j + 1], matched))
            after[j + 1] = best
    found = 0
    for end in child.ends:
        found = max(found, sums[_slot(child, end), columns])
    return found


@compiled
def _slot(child: Orders, row: int) -> int:
    return 0 if row == START else child.slot[row]


@compiled
def best_of(
    child: Orders,
    zoo: Sequences,
    numbers: NDArray[np.int64],
    bounds: NDArray[np.float64],
    best: NDArray[np.int64],
    scores: NDArray[np.float64],
    values: NDArray[np.int64],
    sums: NDArray[np.int64],
) -> int:
    """Find the skeletons with the highest scores; among equals those with the lowest numbers.

    Args:
        numbers: of the skeletons to look at, by falling bound.
        bounds: of their scores.
        best, scores: (k,) int64, float64, from the best on; filled with -1 where there is none.
    Returns:
        How many skeletons were looked at before the bound of the rest was too low.
    """
    last = best.size - 1
    for looked in range(numbers.size):
        if bounds[looked] < scores[last]:
            return looked
        number = numbers[looked]
        found = score(child, zoo, number, scores[last], values, sums)
        place = last + 1
        while place > 0 and (
            found > scores[place - 1] or (found == scores[place - 1] and number < best[place - 1])
        ):
            place -= 1
        if place <= last:
            for later in range(last, place, -1):
                best[later], scores[later] = best[later - 1], scores[later - 1]
            best[place], scores[place] = number, found
    return numbers.size


def room_of(child: Orders, zoo: Sequences) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return arrays for `score`: of the labels' pairs, and of sums for each slot and one more."""
    labels = int(np.diff(zoo.label_start).max(initial=1))
    columns = int(np.diff(zoo.start).max(initial=0)) + 1
    values = np.empty((max(1, len(child.labels.form)), max(1, labels)), np.int64)
    return values, np.empty((child.slots + 1, columns), np.int64)
