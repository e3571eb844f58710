"""The lineage graph: folded, laid out and drawn."""

from __future__ import annotations

import random
from html.parser import HTMLParser
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmdb.report.graph_layout import BEND, GraphLayout, layered
from mmdb.report.lineage_graph import NODES, LineageEdge, LineageGraph, LineageNode, graph_of
from mmdb.report.parts import DARK
from mmdb.report.picture import drawing
from tests.unit.report.rows import NASTY, edges_of

SUBJECT = "model:churn@1"


def names(graph: LineageGraph) -> list[str]:
    return [node.name for node in graph.nodes]


def named(graph: LineageGraph, name: str) -> LineageNode:
    (node,) = (node for node in graph.nodes if node.name == name)
    return node


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]], int]:
    count = draw(st.integers(1, 25))
    nodes = [f"n{k}" for k in range(count)]
    ends = st.sampled_from(nodes)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=50))
    return nodes, edges, draw(st.integers(1, 6))


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_no_node_lies_over_another_and_all_are_within(
    given: tuple[list[str], list[tuple[str, str]], int],
) -> None:
    nodes, edges, most = given
    found = layered(nodes, edges, most)
    rows: dict[int, list[float]] = {}
    for node in nodes:
        rows.setdefault(found.layer[node], []).append(found.across[node])
    assert set(rows) == set(range(found.layers))  # none is empty
    for row in rows.values():
        assert len(row) <= most
        assert all(right - left > 1 - 1e-9 for left, right in pairwise(sorted(row)))
        assert min(row) > -1e-9 and max(row) + 1 < found.width + 1e-9
    wanted = {edge for edge in edges if edge[0] != edge[1]}
    assert set(found.paths) == wanted
    for (parent, child), bends in found.paths.items():
        passed = [found.layer[parent], *(layer for _, layer in bends), found.layer[child]]
        assert passed == sorted(passed) or passed == sorted(passed, reverse=True)
        assert len(set(passed)) == len(passed)
    assert layered(nodes, edges, most) == found


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_without_cycles_all_edges_go_down(
    given: tuple[list[str], list[tuple[str, str]], int],
) -> None:
    nodes, edges, most = given
    down = [edge for edge in edges if nodes.index(edge[0]) < nodes.index(edge[1])]
    found = layered(nodes, down, most)
    assert all(found.layer[parent] < found.layer[child] for parent, child in down)


def test_of_a_cycle_one_edge_goes_up() -> None:
    found = layered(["a", "b", "c"], [("a", "b"), ("b", "c"), ("c", "a")])
    ups = [edge for edge in found.paths if found.layer[edge[0]] > found.layer[edge[1]]]
    assert ups == [("c", "a")]
    assert layered([], []).layers == 0


def crossings(found: GraphLayout) -> int:
    pairs = combinations(found.paths, 2)
    return sum(
        (found.across[a] - found.across[c]) * (found.across[b] - found.across[d]) < 0
        for (a, b), (c, d) in pairs
        if found.layer[a] == found.layer[c] and found.layer[b] == found.layer[d]
    )


@pytest.mark.parametrize("seed", range(5))
def test_what_can_be_drawn_without_crossings_is(seed: int) -> None:
    edges = [(f"{k}{a}", f"{k}{b}") for k in range(4) for a, b in ("ab", "bc", "bd", "ce")]
    nodes = sorted({end for edge in edges for end in edge})
    random.Random(seed).shuffle(nodes)
    random.Random(seed).shuffle(edges)
    assert crossings(layered(nodes, edges, 8)) == 0


def test_branches_beyond_the_width_go_on_below_with_short_edges() -> None:
    chains = [[f"{part}{k}" for part in "abcd"] for k in range(40)]
    edges = [("root", chain[0]) for chain in chains]
    edges += [edge for chain in chains for edge in pairwise(chain)]
    nodes = sorted({end for edge in edges for end in edge})
    found = layered(nodes, edges, 5)
    spans = [found.layer[b] - found.layer[a] for a, b in found.paths if a != "root"]
    assert max(spans) <= 2
    assert found.width < 6 and found.layers <= 40 * 4 / 5 + 5


def test_an_edge_past_others_has_a_way_of_its_own() -> None:
    found = layered(["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")])
    ((across, layer),) = found.paths[("a", "c")]
    assert layer == found.layer["b"]
    left = found.across["b"]
    assert across + BEND <= left + 1e-9 or across >= left + 1 - 1e-9


def test_three_hundred_nodes_have_their_places() -> None:
    draw = random.Random(0)
    nodes = [f"n{k}" for k in range(NODES)]
    edges = [(nodes[draw.randrange(max(0, k - 40), k)], nodes[k]) for k in range(1, NODES)]
    assert len({(found, layer) for found, layer in _places(layered(nodes, edges))}) == NODES


def _places(found: GraphLayout) -> list[tuple[float, int]]:
    return [(found.across[node], found.layer[node]) for node in found.layer]


def test_hops_columns_and_partitions_are_folded() -> None:
    graph = graph_of(edges_of("churn"), SUBJECT)
    assert names(graph).count("6 hops") == 2  # one for each candidate, of both epochs
    hops = next(node for node in graph.nodes if node.name == "6 hops")
    assert hops.more == "candidate 100, epochs 1 to 2" and hops.kind == "hop"
    assert {f"hop:100/{e}/{p}" for e in (0, 1) for p in (1, 2, 3)} < set(hops.members)
    assert named(graph, "6 columns").members == tuple(
        f"column:public.orders.c{k}" for k in range(6)
    )
    assert named(graph, "3 partitions").more == "1 to 3"
    vias = {(p, c): via for p, c, via in graph.edges}
    assert vias["column:public.orders.c0", "dataset:digits"] == "c0, c1, c2, c3 …"
    assert vias["model:churn@1", "model:churn@2"] == "fine-tune"
    assert [node.is_subject for node in graph.nodes if node.key == SUBJECT] == [True]


def test_an_epoch_of_which_a_model_came_is_not_folded() -> None:
    saved = ("checkpoint:100/0", "model:early@1", "save")
    graph = graph_of([*edges_of("churn"), saved], SUBJECT)
    assert [node.key for node in graph.nodes if node.kind == "checkpoint"] == [
        "checkpoint:100/0", "checkpoint:100/1", "checkpoint:101/1",
    ]  # fmt: skip
    assert sorted(name for name in names(graph) if "hops" in name) == ["3 hops", "3 hops", "6 hops"]


def test_the_subject_is_never_folded() -> None:
    for subject in ("hop:100/0/2", "partition:2", "column:public.orders.c3", "checkpoint:100/0"):
        graph = graph_of(edges_of("churn"), subject)
        (found,) = (node for node in graph.nodes if node.is_subject)
        assert found.key == subject and not found.members


def test_every_entity_is_in_one_node() -> None:
    edges = edges_of("churn")
    graph = graph_of(edges, SUBJECT)
    members = [one for node in graph.nodes for one in (node.members or (node.key,))]
    assert sorted(members) == sorted({end for edge in edges for end in edge[:2]})


def test_candidates_of_a_large_run_are_one_node() -> None:
    edges: list[LineageEdge] = [("run:search", f"candidate:{k}", "search") for k in range(1000)]
    edges += [("candidate:7", "checkpoint:7/0", "train"), ("checkpoint:7/0", "model:m@1", "save")]
    graph = graph_of(edges, "run:search")
    assert names(graph) == ["search", "999 candidates", "candidate 7", "epoch 1", "m@1"]


def test_what_is_too_far_away_is_left_out_and_counted() -> None:
    edges = [(f"model:m@{k}", f"model:m@{k + 1}", "update") for k in range(500)]
    graph = graph_of(edges, "model:m@100")
    assert len(graph.nodes) == NODES and graph.left_out == 501 - NODES
    kept = {node.key for node in graph.nodes}
    assert {"model:m@0", "model:m@100", "model:m@200"} <= kept and "model:m@500" not in kept
    assert all(parent in kept and child in kept for parent, child, _ in graph.edges)


def test_a_cycle_through_a_table_of_predictions_can_be_drawn() -> None:
    edges: list[LineageEdge] = [
        ("dataset:d", "model:m@1", "train"),
        ("model:m@1", "table:p", "predictions"),
        ("table:p", "dataset:d", "unresolved"),
    ]
    text = drawing(graph_of(edges, "model:m@1"), href=lambda k, _: f"#node-{k}")
    assert text.count('class="edge"') == 3 and text.count("<a ") == 3


class Elements(HTMLParser):
    """Collects elements with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_drawing_has_a_link_with_a_name_for_each_node() -> None:
    edges: list[LineageEdge] = [(f"table:{NASTY}", f"dataset:{NASTY}", NASTY)]
    graph = graph_of(edges, f"dataset:{NASTY}")
    elements = Elements(drawing(graph, href=lambda k, node: f"#{node.name}{k}")).found
    links = [attributes for tag, attributes in elements if tag == "a"]
    assert [link["href"] for link in links] == [f"#{n}{k}" for k, n in enumerate(names(graph))]
    assert all(NASTY.split(".")[0] in (link["aria-label"] or "") for link in links)
    assert not any(tag == "script" for tag, _ in elements)


def test_a_drawing_alone_has_its_colours_and_no_links() -> None:
    text = drawing(graph_of(edges_of("churn"), SUBJECT), theme=DARK)
    assert "var(" not in text and DARK.ground in text and "<a " not in text
    assert "https:" not in text and "fine-tune" in text
