"""The walk against networkx, over random graphs with cycles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmdb.errors import InvalidOption
from mmdb.lineage.entity import kind_of
from mmdb.lineage.graph import Direction, Edge, Step, walk

nodes = st.builds(
    lambda kind, number: f"{kind}:{number}",
    st.sampled_from(["model", "table", "dataset"]),
    st.integers(0, 6),
)
edges = st.lists(st.builds(Edge, nodes, nodes, st.sampled_from(["a", "b"])), max_size=60)
directions = st.sampled_from(["up", "down"])


class Lister:
    """Gives the edges of a list, some twice, and notes what it was asked for."""

    def __init__(self, edges: Sequence[Edge], direction: Direction) -> None:
        self.edges, self.place = edges, 0 if direction == "down" else 1
        self.asked: list[str] = []

    def __call__(self, kind: str, nodes: Sequence[str]) -> Iterable[Edge]:
        assert {kind_of(node) for node in nodes} == {kind}
        self.asked += nodes
        found = [edge for edge in self.edges if edge[self.place] in nodes]
        return [*found, *found[:1]]


def reference(
    start: str, direction: str, edges: Iterable[Edge], max_depth: int | None
) -> list[Step]:
    graph = nx.MultiDiGraph()
    graph.add_node(start)
    for parent, child, _ in edges:
        graph.add_edge(*((parent, child) if direction == "down" else (child, parent)))
    depths = nx.single_source_shortest_path_length(graph, start)
    steps = set()
    for edge in edges:
        near, far = edge[:2] if direction == "down" else (edge.child, edge.parent)
        if near in depths and (max_depth is None or depths[near] < max_depth):
            steps.add(Step(depths[near] + 1, kind_of(far), *edge))
    return sorted(steps)


@given(nodes, directions, edges, st.none() | st.integers(1, 4))
def test_every_edge_that_can_be_reached_comes_once_at_its_least_depth(
    start: str, direction: Direction, edges: list[Edge], max_depth: int | None
) -> None:
    neighbours = Lister(edges, direction)
    steps = walk(start, direction, neighbours, max_depth=max_depth)
    assert steps == reference(start, direction, edges, max_depth)
    assert len(neighbours.asked) == len(set(neighbours.asked))  # so that cycles end


def test_more_edges_than_may_be_are_refused() -> None:
    chain = [Edge(f"model:{k}", f"model:{k + 1}", "update") for k in range(11)]
    neighbours = Lister(chain, "down")
    assert len(walk("model:0", "down", neighbours, most_edges=11)) == 11
    with pytest.raises(InvalidOption, match="more than 10 edges") as raised:
        walk("model:0", "down", neighbours, most_edges=10)
    assert "max_depth" in raised.value.hint


def test_the_order_is_that_of_code_points() -> None:
    star = [Edge("model:a", f"model:{name}", "update") for name in ("ä", "b", "Z", "_", "10", "9")]
    found = [step.child for step in walk("model:a", "down", Lister(star, "down"))]
    assert found == ["model:10", "model:9", "model:Z", "model:_", "model:b", "model:ä"]
