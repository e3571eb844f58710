from __future__ import annotations

import random
from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmdb.errors import ArchitectureError
from mmdb.graph.trace.structure import (
    GraphEdge,
    GraphNode,
    NetworkGraph,
    TensorSpec,
    common_prefix,
    from_json,
)

QUICK = settings(max_examples=150, deadline=None, database=None, derandomize=True)
WEIGHT = TensorSpec(name="weight", dtype="float32", shape=(2, 2), byte_count=16)


def node(ordinal: int, op: str, **attributes: object) -> GraphNode:
    owns = op in ("linear", "parameter")
    return GraphNode(
        ordinal=ordinal,
        path=f"part{ordinal}",
        op=op,
        attributes=attributes,
        parameters=(WEIGHT,) if owns else (),
        parameter_bytes=16 if owns else 0,
    )


def graph(*rows: tuple[str, list[int]]) -> NetworkGraph:
    """Return the structure whose nodes are (op, what it reads by position)."""
    nodes = tuple(node(number, op) for number, (op, _) in enumerate(rows))
    edges = [
        GraphEdge(source, target, position)
        for target, (_, sources) in enumerate(rows)
        for position, source in enumerate(sources)
    ]
    return NetworkGraph(nodes=nodes, edges=tuple(edges))


@st.composite
def structures(draw: st.DrawFn) -> NetworkGraph:
    """Small graphs of few ops, so that many of their parts are alike."""
    rows: list[tuple[str, list[int]]] = [("input", [])]
    for number in range(1, draw(st.integers(1, 9))):
        op = draw(st.sampled_from(["linear", "relu", "add", "sub", "parameter"]))
        count = {"linear": 1, "relu": 1, "parameter": 0}.get(op, 2)
        rows.append((op, [draw(st.integers(0, number - 1)) for _ in range(count)]))
    read = {source for _, sources in rows for source in sources}
    rows.append(("output", [n for n in range(len(rows)) if n not in read][:2]))
    return graph(*rows)


def rewritten(structure: NetworkGraph, seed: int) -> NetworkGraph:
    """Return the same graph with other numbers, other names, and sums the other way round."""
    draw = random.Random(seed)
    waiting = {n.ordinal: {s for _, s in structure.inputs[n.ordinal]} for n in structure.nodes}
    order: list[int] = []
    while waiting:
        order.append(draw.choice([n for n, sources in waiting.items() if sources <= set(order)]))
        del waiting[order[-1]]
    number = {old: new for new, old in enumerate(order)}
    nodes = [replace(structure.nodes[o], ordinal=k, path=f"other{k}") for k, o in enumerate(order)]
    edges = []
    for edge in structure.edges:
        turned = structure.nodes[edge.target].is_commutative
        position = 1 - edge.position if turned else edge.position
        edges.append(GraphEdge(number[edge.source], number[edge.target], position))
    draw.shuffle(edges)
    return NetworkGraph(nodes=tuple(nodes), edges=tuple(edges))


def networkx_graph(structure: NetworkGraph) -> nx.MultiDiGraph:
    built = nx.MultiDiGraph()
    for at in structure.nodes:
        built.add_node(at.ordinal, signature=structure.signatures[at.ordinal])
    for e in structure.edges:
        unordered = structure.nodes[e.target].is_commutative
        built.add_edge(e.source, e.target, position=0 if unordered else e.position)
    return built


# -- the canonical hash -------------------------------------------------------


@QUICK
@given(structures(), st.integers(0, 2**32))
def test_names_numbers_and_order_do_not_change_the_hash(structure: NetworkGraph, seed: int) -> None:
    other = rewritten(structure, seed)
    assert other.canonical_hash == structure.canonical_hash
    orders = zip(other.canonical_order, structure.canonical_order, strict=True)
    assert all(other.signatures[a] == structure.signatures[b] for a, b in orders)
    assert sorted(other.prefix_hashes) == sorted(structure.prefix_hashes)


@QUICK
@given(structures(), structures())
def test_the_hash_is_equal_exactly_for_isomorphic_graphs(a: NetworkGraph, b: NetworkGraph) -> None:
    isomorphic = nx.is_isomorphic(
        networkx_graph(a),
        networkx_graph(b),
        node_match=lambda x, y: x["signature"] == y["signature"],
        edge_match=lambda x, y: (
            sorted(e["position"] for e in x.values()) == sorted(e["position"] for e in y.values())
        ),
    )
    assert (a.canonical_hash == b.canonical_hash) == isomorphic


@QUICK
@given(structures(), st.data())
def test_one_changed_attribute_changes_the_hash(
    structure: NetworkGraph, data: st.DataObject
) -> None:
    at = data.draw(st.sampled_from(structure.nodes))
    nodes = list(structure.nodes)
    nodes[at.ordinal] = replace(at, attributes={"stride": 2})
    assert replace(structure, nodes=tuple(nodes)).canonical_hash != structure.canonical_hash


@QUICK
@given(structures(), st.data())
def test_one_edge_less_changes_the_hash(structure: NetworkGraph, data: st.DataObject) -> None:
    if structure.edges:
        gone = data.draw(st.sampled_from(structure.edges))
        left = tuple(edge for edge in structure.edges if edge != gone)
        assert replace(structure, edges=left).canonical_hash != structure.canonical_hash


def test_one_layer_read_twice_is_not_two_equal_layers() -> None:
    once = graph(("input", []), ("linear", [0]), ("add", [1, 1]), ("output", [2]))
    twice = graph(("input", []), ("linear", [0]), ("linear", [0]), ("add", [1, 2]), ("output", [3]))
    assert once.canonical_hash != twice.canonical_hash
    assert once.prefix_hashes[-1] != twice.prefix_hashes[-1]


def test_sharing_far_below_is_told_apart_though_the_prefixes_are_alike() -> None:
    stem = [("input", []), ("linear", [0]), ("linear", [0])]
    tops: list[tuple[str, list[int]]] = [("add", [3, 4]), ("output", [5])]
    shared = graph(*stem, ("relu", [1]), ("relu", [1]), ("add", [3, 4]), ("sub", [5, 2]))
    apart = graph(*stem, ("relu", [1]), ("relu", [2]), ("add", [3, 4]), ("sub", [5, 2]))
    assert shared.prefix_hashes[-1] == apart.prefix_hashes[-1]
    assert shared.canonical_hash != apart.canonical_hash
    assert graph(*stem, *tops[:0], ("add", [1, 2])).canonical_hash != shared.canonical_hash


def test_a_ring_of_six_is_not_two_rings_of_three() -> None:
    def sums(pairs: list[tuple[int, int]]) -> NetworkGraph:
        rows: list[tuple[str, list[int]]] = [("input", [])] + [("linear", [0])] * 6
        rows += [("add", [1 + a, 1 + b]) for a, b in pairs]
        total = 7
        for number in range(8, 13):
            rows.append(("add", [total, number]))
            total = len(rows) - 1
        return graph(*rows[:13], ("cat", list(range(7, 13))))

    ring = sums([(k, (k + 1) % 6) for k in range(6)])
    turned = sums([((k + 1) % 6, (k + 2) % 6) for k in range(6)])
    rings = sums([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])
    assert ring.canonical_hash == turned.canonical_hash != rings.canonical_hash


@pytest.mark.parametrize("branches", [2, 32])
def test_any_number_of_equal_branches_may_be_listed_in_any_order(branches: int) -> None:
    def towers(seed: int) -> NetworkGraph:
        rows: list[tuple[str, list[int]]] = [("input", [])]
        ends = []
        for _ in range(branches):
            rows += [("linear", [0]), ("relu", [len(rows)])]
            ends.append(len(rows) - 1)
        random.Random(seed).shuffle(ends)
        while len(ends) > 1:
            rows += [("add", [ends[k], ends[k + 1]]) for k in range(0, len(ends), 2)]
            ends = list(range(len(rows) - len(ends) // 2, len(rows)))
        return graph(*rows)

    assert len({towers(seed).canonical_hash for seed in range(4)}) == 1


# -- as a graph of networkx ---------------------------------------------------


@QUICK
@given(structures())
def test_the_graph_has_every_node_and_every_position(structure: NetworkGraph) -> None:
    found = structure.graph()
    assert isinstance(found, nx.DiGraph) and not found.is_multigraph()
    assert [data["path"] for _, data in found.nodes(data=True)] == [n.path for n in structure.nodes]
    edges = {
        GraphEdge(source, target, position)
        for source, target, positions in found.edges(data="positions")
        for position in positions
    }
    assert edges == set(structure.edges)


def test_a_node_of_the_graph_has_its_op_its_shapes_and_its_attributes() -> None:
    found = NetworkGraph(nodes=(node(0, "linear", bias=False),), edges=()).graph()
    assert found.nodes[0] == {
        "op": "linear",
        "path": "part0",
        "attributes": {"bias": False},
        "parameters": {"weight": {"dtype": "float32", "shape": (2, 2)}},
        "parameter_bytes": 16,
    }


# -- prefixes -----------------------------------------------------------------


@QUICK
@given(structures(), structures())
def test_a_common_prefix_is_symmetric_and_that_with_itself_is_the_whole(
    a: NetworkGraph, b: NetworkGraph
) -> None:
    assert common_prefix(a, b) == common_prefix(b, a)
    whole = common_prefix(a, a)
    assert whole.nodes == sum(at.op != "input" for at in a.nodes)
    assert whole.parameter_bytes == a.parameter_bytes


@QUICK
@given(structures())
def test_depth_and_bytes_of_a_prefix_are_those_of_all_that_feeds_it(
    structure: NetworkGraph,
) -> None:
    ancestors = {n: nx.ancestors(networkx_graph(structure), n) for n in range(len(structure.nodes))}
    found = {p.prefix_hash: p for p in structure.prefixes}
    for at, name in zip(structure.nodes, structure.prefix_hashes, strict=True):
        below = [structure.nodes[n] for n in {at.ordinal, *ancestors[at.ordinal]}]
        if at.op != "input" and found[name].nodes == 1:
            assert found[name].depth == sum(n.op != "input" for n in below)
            assert found[name].prefix_bytes == sum(n.parameter_bytes for n in below)


def test_chains_share_up_to_the_first_layer_that_differs() -> None:
    a = graph(("input", []), ("linear", [0]), ("relu", [1]), ("linear", [2]), ("output", [3]))
    b = graph(("input", []), ("linear", [0]), ("relu", [1]), ("tanh", [2]), ("linear", [3]))
    shared = common_prefix(a, b)
    assert (shared.nodes, shared.parameter_bytes) == (2, 16)


def test_a_lone_parameter_is_shared_only_with_what_reads_it() -> None:
    a = graph(("input", []), ("relu", [0]), ("parameter", []), ("add", [1, 2]))
    b = graph(("input", []), ("tanh", [0]), ("parameter", []), ("add", [1, 2]))
    assert common_prefix(a, b).nodes == 0
    assert common_prefix(a, a).parameter_bytes == 16


def test_of_parallel_layers_as_many_are_shared_as_both_have() -> None:
    def heads(count: int) -> NetworkGraph:
        return graph(("input", []), *[("linear", [0])] * count, ("cat", list(range(1, count + 1))))

    assert common_prefix(heads(3), heads(2)).nodes == 2
    assert [p.nodes for p in heads(3).prefixes] == [3, 1]


# -- JSON ---------------------------------------------------------------------


@QUICK
@given(structures())
def test_json_gives_back_the_structure_and_the_same_bytes(structure: NetworkGraph) -> None:
    text = structure.to_json()
    again = from_json(text.encode())
    assert again == structure
    assert again.to_json() == text
    assert again.canonical_hash == structure.canonical_hash


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format":9,"nodes":[],"edges":[]}', '{"format":1,"nodes":[3],"edges":[]}'],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ArchitectureError, match="cannot be read"):
        from_json(text)


@pytest.mark.parametrize(
    "edge", [GraphEdge(1, 0, 0), GraphEdge(0, 0, 0), GraphEdge(0, 9, 0), GraphEdge(-1, 1, 0)]
)
def test_edges_that_make_a_cycle_or_lead_nowhere_are_refused(edge: GraphEdge) -> None:
    with pytest.raises(ArchitectureError, match="cannot have the edge"):
        NetworkGraph(nodes=(node(0, "input"), node(1, "relu")), edges=(edge,))
