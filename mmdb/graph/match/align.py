"""How a child and a parent fit together, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.match.orders import Orders, orders_of, passing_rows
from mmdb.graph.match.pack import Packed
from mmdb.graph.match.program import (
    alike_and_shared,
    every_score,
    fill_values,
    room_of,
    scales,
    score,
)
from mmdb.graph.match.trace import Frame, trace
from mmdb.graph.match.zoo import PackedZoo


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How a child and a parent fit together.

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


class Child(NamedTuple):
    """What is made of a child once, for all parents."""

    orders: Orders
    passing: NDArray[np.int32]


def child_of(packed: Packed) -> Child:
    """Return a child's orders of layers."""
    orders = orders_of(packed)
    return Child(orders, passing_rows(packed, orders))


def align(child: Packed, parent: Packed) -> Alignment:
    """Return the alignment of two outlines."""
    zoo = PackedZoo()
    zoo.add(b"", parent)
    return align_with(child_of(child), zoo, 0)


def score_all(child: Packed, zoo: PackedZoo) -> NDArray[np.float64]:
    """Return (Z,) the scores of a child with every outline, nothing left out."""
    orders, scores = orders_of(child), np.empty(len(zoo))
    every_score(orders, zoo.sequences, scores, *room_of(orders, zoo.sequences))
    return scores


def align_with(child: Child, zoo: PackedZoo, number: int) -> Alignment:
    """Return the alignment of a child with an outline of a zoo."""
    orders, arrays = child.orders, zoo.sequences
    values, sums = room_of(orders, arrays)
    found = float(score(orders, arrays, number, -1.0, values, sums))
    fill_values(orders, arrays, number, scales(orders, arrays, number), values)
    place = arrays.place[slice(*arrays.start[number : number + 2].tolist())]
    frame = Frame(
        place=place,
        passing_columns=np.append(0, zoo.crossing(number)).astype(np.int32),
        passing_rows=child.passing,
        values=values,
    )
    labels, ordinals = arrays.label[arrays.label_start[number] :], zoo.order(number)
    pairs, covered = [], 0.0
    for row, column in trace(orders, frame):
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
