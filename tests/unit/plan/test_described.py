"""Clusters out of a description."""

from __future__ import annotations

import pytest

from mmdb.errors import InvalidOption
from mmdb.plan import cluster_of, explain
from tests.unit.plan.loads import cluster_with, load_of


def test_nodes_are_counted_or_listed() -> None:
    found = cluster_of({"cluster": {"nodes": 3, "slots": 2, "memory_bytes": 1e9}})
    assert [(n.name, n.slots, n.memory_bytes) for n in found.nodes] == [
        (f"node {k}", 2, 1e9) for k in (1, 2, 3)
    ]
    assert found.simulated
    listed = cluster_of({"nodes": [{"name": "big", "slots": 8}, {"count": 2}], "slots": 3})
    assert [(n.name, n.slots) for n in listed.nodes] == [("big", 8), ("node 2", 3), ("node 3", 3)]


def test_what_is_left_out_is_as_measured() -> None:
    base = cluster_with(4, slowdown=(1.0, 1.5))
    found = cluster_of({"nodes": 2, "link": {"latency_s": 0.5}, "start_s": 0.25}, base)
    assert found.nodes[1].slots == 4
    assert found.nodes[1].slowdown == (1.0, 1.5)
    assert (found.link.latency_s, found.link.bytes_per_s) == (0.5, base.link.bytes_per_s)
    assert (found.start_s, found.encode_byte_s) == (0.25, base.encode_byte_s)


def test_a_thousand_nodes_are_planned() -> None:
    found = explain(load_of(10, 10), cluster_of({"nodes": 1000}), kinds=["mop"])
    assert max(e.knobs.workers for e in found) == 10
    assert all(e.simulated for e in found)


def test_partitions_lie_on_their_nodes() -> None:
    cluster = cluster_of({"nodes": 4, "shards": True})
    found = explain(load_of(8, 4), cluster, kinds=["mop", "task"])
    assert {e.knobs.workers for e in found if e.feasible} >= {4}
    assert all(not e.feasible for e in found if e.knobs.workers < 4 or e.strategy == "task")


@pytest.mark.parametrize(
    ("description", "names"),
    [
        ({"nodes": 0}, "count of nodes"),
        ({"nodes": 1001}, "more than 1000"),
        ({"nodes": "many"}, "count of nodes"),
        ({"nodes": []}, "no nodes"),
        ({"nodes": [7]}, "nodes is 7"),
        ({"node": 3}, "'node'"),
        ({"nodes": [{"cores": 3}]}, "'cores'"),
        ({"slots": 1.5}, "slots"),
        ({"slots": True}, "slots"),
        ({"memory_bytes": "much"}, "memory_bytes"),
        ({"slowdown": 2}, "slowdown"),
        ({"link": 3}, "link is 3"),
        ({"link": {"speed": 3}}, "'speed'"),
        ({"link": {"latency_s": None}}, "latency_s of link"),
        ({"shards": 1}, "shards"),
        ({"cluster": 5}, "cluster is 5"),
    ],
)
def test_a_description_that_is_wrong_says_where(description: dict[str, object], names: str) -> None:
    with pytest.raises(InvalidOption, match=names):
        cluster_of(description)


@pytest.mark.parametrize(
    "description",
    [
        {"memory_bytes": 0},
        {"memory_bytes": -1},
        {"slowdown": []},
        {"slowdown": [1, 0]},
        {"link": {"bytes_per_s": 0}},
        {"link": {"latency_s": -1}},
        {"local": {"bytes_per_s": float("nan")}},
        {"start_s": -1},
        {"meet_s": float("inf")},
        {"nodes": [{"name": "a"}, {"name": "a"}]},
    ],
)
def test_impossible_values_are_refused(description: dict[str, object]) -> None:
    with pytest.raises(InvalidOption):
        explain(load_of(2, 2), cluster_of(description))
