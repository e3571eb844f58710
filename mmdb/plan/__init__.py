"""What a run will take, before it runs: equations, simulations, and the best way to train it.

From plain numbers, without a database: `explain` ranks every way of training a `Load` on a
`Cluster`, `simulate` runs the scheduler over a matrix of seconds.
"""

from __future__ import annotations

from mmdb.plan.cluster import cluster_of
from mmdb.plan.cost import (
    EXECUTED,
    PHASES,
    Cluster,
    ClusterNode,
    CostedWorkload,
    Estimate,
    Knobs,
    Link,
    StrategyName,
)
from mmdb.plan.matrix import simulate
from mmdb.plan.ranking import KINDS, Objective, explain
from mmdb.plan.step import CandidateCost, LayerCost

__all__ = [
    "EXECUTED",
    "KINDS",
    "PHASES",
    "CandidateCost",
    "Cluster",
    "ClusterNode",
    "CostedWorkload",
    "Estimate",
    "Knobs",
    "LayerCost",
    "Link",
    "Objective",
    "StrategyName",
    "cluster_of",
    "explain",
    "simulate",
]
