"""The scores of a skeleton with a whole zoo, nothing left out: what a search is compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.match.layer_orders import orders_of
from mmdb.graph.match.pack import PackedSkeleton
from mmdb.graph.match.packed_zoo import PackedZoo
from mmdb.graph.match.program import room_of, score


def score_all(child: PackedSkeleton, zoo: PackedZoo) -> NDArray[np.float64]:
    """Return (Z,) the scores of a child with every skeleton."""
    orders = orders_of(child)
    room = room_of(orders, zoo.sequences)
    return np.array([score(orders, zoo.sequences, k, -1.0, *room) for k in range(len(zoo))])
