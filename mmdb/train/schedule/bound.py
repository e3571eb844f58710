"""Lower bounds of a makespan."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from mmdb.train.schedule.layout import Placement


def lower_bound(
    work: npt.NDArray[np.float64],
    slots: Mapping[str, int],
    placement: Placement,
    *,
    chain_s: float | None = None,
) -> float:
    """Return the seconds that no schedule can go below.

    The longest of: a candidate's own hops one after another; what only one node can do, shared by
    its slots; everything, shared by all slots (open shop; Gonzalez and Sahni, JACM 23(4) 1976).

    Args:
        work: (M, P) seconds of every candidate on every partition, all epochs added up.
        slots: node -> its workers.
        placement: see `Placement`.
        chain_s: the longest chain of hops, where a candidate is in several places at once.
    """
    by_part = work.sum(axis=0)
    bound = by_part.sum() / sum(slots.values())
    longest = work.sum(axis=1).max(initial=0.0) if chain_s is None else chain_s
    for node, count in slots.items():
        alone = [p for p, nodes in placement.items() if nodes == {node} and p >= 0]
        bound = max(bound, by_part[alone].sum() / count)
    return float(max(bound, longest))
