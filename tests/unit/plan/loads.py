"""Loads and clusters of the planner's tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from mmdb.plan import CandidateCost, Cluster, ClusterNode, CostedWorkload, LayerCost, Link
from mmdb.plan.cost_columns import in_turn

COST = CandidateCost(
    step_s=0.002,
    row_s=5e-5,
    batch_size=32,
    read_row_s=1e-6,
    validation_row_s=1e-5,
    hop_s=0.01,
    build_s=0.004,
    state_bytes=4e6,
    gradient_bytes=2e6,
    memory_bytes=2e8,
    memory_row_bytes=1e4,
    layers=(LayerCost(1e-6, 1e4, 1e5),) * 6,
)
#: Rates at which states move.
RATES: dict[str, float] = {
    "encode_byte_s": 1e-9,
    "publish_byte_s": 2e-9,
    "load_byte_s": 3e-9,
    "checkpoint_byte_s": 8e-9,
    "merge_byte_s": 1e-9,
}


def load_of(candidates: int = 4, partitions: int = 4, **given: Any) -> CostedWorkload:
    """Return a load of equal candidates."""
    rows = given.pop("rows", (500,) * partitions)
    cost = given.pop("cost", COST)
    return CostedWorkload(candidates=(cost,) * candidates, rows=rows, **given)


def cluster_with(*slots: int, slowdown: tuple[float, ...] = (1.0,), **given: Any) -> Cluster:
    """Return a cluster with so many slots on its nodes a, b, ..."""
    nodes = [
        ClusterNode(name="abcdefghijklmnop"[k], slots=count, slowdown=slowdown, memory_bytes=1e12)
        for k, count in enumerate(slots)
    ]
    return Cluster(nodes=tuple(nodes), **(RATES | given))


costs = st.builds(
    CandidateCost,
    step_s=st.floats(1e-4, 0.01),
    row_s=st.floats(1e-6, 1e-3),
    batch_size=st.sampled_from([1, 16, 33, 256]),
    read_row_s=st.floats(0, 1e-4),
    validation_row_s=st.floats(0, 1e-4),
    hop_s=st.floats(0, 0.1),
    build_s=st.floats(0, 0.1),
    state_bytes=st.floats(0, 1e8),
    gradient_bytes=st.floats(0, 1e8),
    deviation=st.just(0.0),
)
slowdowns = st.sampled_from([(1.0,), (1.0, 1.0), (1.0, 1.3), (1.0, 1.9, 2.6), (1.0, 2.5)])


@st.composite
def loads(draw: st.DrawFn) -> CostedWorkload:
    """Draw a load of few candidates, partitions and epochs, on one node or on several."""
    rows = tuple(draw(st.lists(st.integers(1, 400), min_size=1, max_size=6)))
    placed = draw(st.booleans())
    return CostedWorkload(
        candidates=tuple(draw(st.lists(costs, min_size=1, max_size=6))),
        rows=rows,
        validation_rows=draw(st.sampled_from([0, 100])),
        epochs=draw(st.integers(1, 3)),
        placement=in_turn(len(rows), ["a", "b"]) if placed else {},
        free=draw(st.booleans()),
    )


def clusters() -> st.SearchStrategy[Cluster]:
    """Draw a cluster of one or two nodes."""
    return st.builds(
        lambda first, second, slowdown: cluster_with(first, second, slowdown=slowdown),
        st.integers(1, 3),
        st.integers(1, 3),
        slowdowns,
    )


def alone(cost: CandidateCost, **changes: Any) -> CandidateCost:
    """Return a cost with some of its parts changed."""
    return replace(cost, **changes)


SLOW_LINK = Link(latency_s=0.01, bytes_per_s=1e7)
