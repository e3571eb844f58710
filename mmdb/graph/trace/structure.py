"""The architecture of a model as a graph: nodes, edges, and hashes that ignore names.

Two architectures share a prefix, from the inputs on, where their prefix hashes are equal; a
table can index these.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, cast

from blake3 import blake3

from mmdb.errors import ArchitectureError
from mmdb.graph.trace.refinement import canonical_order

if TYPE_CHECKING:
    from networkx import DiGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixHash:
    """The nodes of one prefix hash: alike, with everything that feeds them.

    Args:
        nodes: how many nodes of the architecture have the hash; 1 but for parallel branches.
        parameter_bytes: of one such node.
        depth: nodes in its prefix: itself and all that feeds it, the inputs left out.
        prefix_bytes: bytes of the parameters in its prefix.
    """

    prefix_hash: bytes
    nodes: int
    parameter_bytes: int
    depth: int
    prefix_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonPrefix:
    """The longest prefix that two architectures share: its nodes, and bytes of parameters."""

    nodes: int
    parameter_bytes: int


def prefixes_of(structure: NetworkGraph) -> tuple[PrefixHash, ...]:
    """Return the distinct prefix hashes, in the order of their first nodes; inputs do not count."""
    counts = Counter(structure.prefix_hashes)
    sizes = _prefix_sizes(structure)
    found: dict[bytes, PrefixHash] = {}
    for node, name in zip(structure.nodes, structure.prefix_hashes, strict=True):
        if name not in found and node.op != "input":
            depth, prefix_bytes = sizes[node.ordinal]
            found[name] = PrefixHash(
                prefix_hash=name,
                nodes=counts[name],
                parameter_bytes=node.parameter_bytes,
                depth=depth,
                prefix_bytes=prefix_bytes,
            )
    return tuple(found.values())


def common_prefix(a: NetworkGraph, b: NetworkGraph) -> CommonPrefix:
    """Return how much of one architecture the other has too, from the inputs on.

    A node is in the common prefix if its prefix hash is in both; of parallel nodes with
    one hash, as many as both have. The same over stored rows: join on the prefix hash,
    sum the lesser `nodes`.

    Source: "longest common prefix" queries of EvoStore (HPDC 2024), on graphs for chains.
    """
    other = {prefix.prefix_hash: prefix.nodes for prefix in b.prefixes}
    shared = [(min(p.nodes, other.get(p.prefix_hash, 0)), p) for p in a.prefixes]
    return CommonPrefix(
        nodes=sum(count for count, _ in shared),
        parameter_bytes=sum(count * prefix.parameter_bytes for count, prefix in shared),
    )


def _prefix_sizes(structure: NetworkGraph) -> list[tuple[int, int]]:
    """Return (nodes, bytes of their parameters) at or below each node.

    The prefix of a node is that of its largest input and the few nodes that only the
    others bring, so that residual networks take time linear in their nodes.
    """
    below: list[int] = []  # sets of nodes, as bits; 0 when nothing will read them any more
    readers = Counter(edge.source for edge in structure.edges)
    sizes: list[tuple[int, int]] = []
    for node, inputs in zip(structure.nodes, structure.inputs, strict=True):
        depth, size = int(node.op != "input"), node.parameter_bytes
        bit = depth << node.ordinal  # inputs do not count
        if inputs:
            largest = max((source for _, source in inputs), key=lambda s: sizes[s][0])
            more = 0
            for _, source in inputs:
                more |= below[source]
            extra = more & ~below[largest]
            for _, source in inputs:
                readers[source] -= 1
                below[source] = below[source] if readers[source] else 0
            depth += sizes[largest][0] + extra.bit_count()
            size += sizes[largest][1] + sum(
                structure.nodes[n].parameter_bytes for n in _ones(extra)
            )
            bit |= more
        below.append(bit)
        sizes.append((depth, size))
    return sizes


def _ones(bits: int) -> list[int]:
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found


# Their tensor inputs may change places; with attributes (add's alpha) they may not.
COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})
UNTRACED = "untraced"  # the op that stands before layers whose wiring is not known
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor of the state dict that a node reads: `<node.path>.<name>`, and no values."""

    name: str
    dtype: str  # as torch names it: 'float32'
    shape: tuple[int, ...]
    byte_count: int
    is_buffer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """One operation.

    Args:
        ordinal: from 0; what a node reads has a lower one.
        path: of the module, '' for the root and for functions.
        op: 'input', 'output', 'conv2d', 'add' …
        attributes: what JSON can hold; never weights. `tied` lists the tensors that an
            earlier node owns: [index in parameters, position of the edge to the owner,
            index among the owner's parameters].
        parameters: the tensors that it reads, parameters and persistent buffers.
        parameter_bytes: of those that no earlier node owns.
    """

    ordinal: int
    path: str
    op: str
    attributes: Mapping[str, object] = field(default_factory=dict)
    parameters: tuple[TensorSpec, ...] = ()
    parameter_bytes: int = 0

    @property
    def is_commutative(self) -> bool:
        """Whether its tensor inputs may change places."""
        return self.op in COMMUTATIVE and not self.attributes

    @property
    def tied(self) -> frozenset[int]:
        """The places of tensors that an earlier node owns, or another place of this one."""
        tied = cast("Sequence[Sequence[int]]", self.attributes.get("tied", ()))
        return frozenset(entry[0] for entry in tied)


@dataclass(frozen=True, slots=True, order=True)
class GraphEdge:
    """`target` reads the result of `source` as its argument number `position`.

    A negative position says that the target reads tensors that the source owns.
    """

    source: int
    target: int
    position: int


@dataclass(frozen=True, kw_only=True)
class NetworkGraph:
    """The nodes in the order in which they run, and the edges between them.

    Raises:
        ArchitectureError: an ordinal or an edge does not fit, or there is a cycle.
    """

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]

    def __post_init__(self) -> None:
        for ordinal, node in enumerate(self.nodes):
            if node.ordinal != ordinal:
                raise ArchitectureError(f"node {ordinal} of a structure has number {node.ordinal}")
        object.__setattr__(self, "edges", tuple(sorted(self.edges)))
        for edge in self.edges:
            if not 0 <= edge.source < edge.target < len(self.nodes):
                raise ArchitectureError(f"a structure cannot have the edge {edge}")

    @property
    def is_traced(self) -> bool:
        """Whether every edge was seen; else some layers stand in the order of the module tree."""
        return all(node.op != UNTRACED for node in self.nodes)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters and persistent buffers, each tensor once."""
        return sum(node.parameter_bytes for node in self.nodes)

    @property
    def parameter_count(self) -> int:
        """Elements of all parameters, each once."""
        return sum(
            math.prod(spec.shape)
            for node in self.nodes
            for place, spec in enumerate(node.parameters)
            if not spec.is_buffer and place not in node.tied
        )

    @cached_property
    def inputs(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each node, (position, source) of what it reads, by position."""
        read: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for edge in self.edges:
            read[edge.target].append((edge.position, edge.source))
        return tuple(tuple(sorted(entry)) for entry in read)

    @cached_property
    def signatures(self) -> tuple[bytes, ...]:
        """For each node, a hash of its op, attributes, and the shapes and dtypes of its tensors."""
        return tuple(_signature(node) for node in self.nodes)

    @cached_property
    def prefix_hashes(self) -> tuple[bytes, ...]:
        """For each node, 32 bytes that stand for it and all that feeds it.

        A parameter that is read by itself has no input, and would be found in any graph
        that has one of its shape. Such a node stands for itself and what reads it.
        """
        return _anchored(self, self._upward)

    @cached_property
    def canonical_order(self) -> tuple[int, ...]:
        """The nodes in an order that names and numbers do not change.

        Nodes at one place in the orders of two architectures with one canonical hash
        are the same node.
        """
        kinds = [(e.source, e.target, self._kind(e)) for e in self.edges]
        return tuple(canonical_order(self._upward, kinds))

    @cached_property
    def canonical_hash(self) -> bytes:
        """32 bytes that ignore names, paths and numbers, and nothing else.

        Prefix hashes alone would not do: one layer read twice and two equal layers
        read once each have the same. So the nodes are numbered in a canonical order,
        and each is written down with the numbers of what it reads.
        """
        number = {node: rank for rank, node in enumerate(self.canonical_order)}
        written: list[object] = []
        for node in self.canonical_order:
            read = [(self._kind(e), number[e.source]) for e in self._edges_into[node]]
            written.append([self.signatures[node].hex(), sorted(read)])
        return blake3(_dump(["structure", _FORMAT, written])).digest()

    @cached_property
    def prefixes(self) -> tuple[PrefixHash, ...]:
        """The distinct prefix hashes, in the order of their first nodes; inputs do not count."""
        return prefixes_of(self)

    @cached_property
    def _edges_into(self) -> tuple[tuple[GraphEdge, ...], ...]:
        into: list[list[GraphEdge]] = [[] for _ in self.nodes]
        for edge in self.edges:
            into[edge.target].append(edge)
        return tuple(tuple(edges) for edges in into)

    @cached_property
    def _upward(self) -> tuple[bytes, ...]:
        """For each node, a hash of its signature and of the hashes of what it reads."""
        hashes: list[bytes] = []
        for node in self.nodes:
            edges = self._edges_into[node.ordinal]
            times = Counter(e.source for e in edges)  # before the number, which must not count
            read = [(self._kind(e), hashes[e.source], -times[e.source], e.source) for e in edges]
            # One node read twice is not two nodes that are alike.
            seen: dict[int, int] = {}
            parts = [
                b"%d:%d:" % (kind, seen.setdefault(source, len(seen))) + name
                for kind, name, _, source in sorted(read)
            ]
            hashes.append(blake3(b"".join([self.signatures[node.ordinal], *parts])).digest())
        return tuple(hashes)

    def _kind(self, edge: GraphEdge) -> int:
        unordered = edge.position >= 0 and self.nodes[edge.target].is_commutative
        return 0 if unordered else edge.position

    def graph(self) -> DiGraph:
        """Return a `networkx.DiGraph`: nodes by their numbers, edges to what reads their results.

        Nodes have an op, a path, attributes, parameters (dtype and shape by name) and
        parameter_bytes; edges have positions: docs/architectures.md.
        """
        from networkx import DiGraph

        found = DiGraph()
        for node in self.nodes:
            found.add_node(
                node.ordinal,
                op=node.op,
                path=node.path,
                attributes=dict(node.attributes),
                parameters={t.name: {"dtype": t.dtype, "shape": t.shape} for t in node.parameters},
                parameter_bytes=node.parameter_bytes,
            )
        for edge in self.edges:  # one node may read another's result twice
            before = found.get_edge_data(edge.source, edge.target, {"positions": ()})
            positions = (*before["positions"], edge.position)
            found.add_edge(edge.source, edge.target, positions=positions)
        return found

    def to_json(self) -> str:
        """Return the architecture as JSON; the same architecture gives the same bytes."""
        nodes = [
            {
                "path": node.path,
                "op": node.op,
                "attributes": node.attributes,
                "parameters": [
                    [t.name, t.dtype, list(t.shape), t.byte_count, t.is_buffer]
                    for t in node.parameters
                ],
                "parameter_bytes": node.parameter_bytes,
            }
            for node in self.nodes
        ]
        edges = [[e.source, e.target, e.position] for e in self.edges]
        return _dump({"format": _FORMAT, "nodes": nodes, "edges": edges}).decode()


def from_json(text: str | bytes) -> NetworkGraph:
    """Return the architecture that `NetworkGraph.to_json` wrote.

    Raises:
        ArchitectureError: the text is something else.
    """
    try:
        read = json.loads(text)
        if read["format"] != _FORMAT:
            raise ValueError(f"its format is {read['format']}, not {_FORMAT}")
        nodes = tuple(_read_node(ordinal, item) for ordinal, item in enumerate(read["nodes"]))
        edges = tuple(GraphEdge(*(int(number) for number in item)) for item in read["edges"])
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise ArchitectureError(
            f"the structure of an architecture cannot be read: {type(exc).__name__}: {exc}",
            hint="Only text that mmdb wrote can be read.",
        ) from exc
    return NetworkGraph(nodes=nodes, edges=edges)


def _read_node(ordinal: int, item: Mapping[str, object]) -> GraphNode:
    specs = item["parameters"]
    if not isinstance(specs, list) or not isinstance(item["attributes"], dict):
        raise ValueError(f"node {ordinal} is malformed")
    return GraphNode(
        ordinal=ordinal,
        path=str(item["path"]),
        op=str(item["op"]),
        attributes=item["attributes"],
        parameters=tuple(
            TensorSpec(name=name, dtype=dtype, shape=tuple(shape), byte_count=size, is_buffer=flag)
            for name, dtype, shape, size, flag in specs
        ),
        parameter_bytes=int(str(item["parameter_bytes"])),
    )


def _signature(node: GraphNode) -> bytes:
    # Sorted: a custom module may register its tensors in any order. Their names do not count.
    specs = sorted([t.dtype, list(t.shape), t.is_buffer] for t in node.parameters)
    return blake3(_dump([node.op, node.attributes, specs])).digest()


def _anchored(structure: NetworkGraph, upward: Sequence[bytes]) -> tuple[bytes, ...]:
    fed = _fed_by_an_input(structure)
    hashes = list(upward)
    readers: list[list[int]] = [[] for _ in structure.nodes]
    for edge in structure.edges:
        readers[edge.source].append(edge.target)
    whole = [upward[node.ordinal] for node in structure.nodes if node.op == "output"]
    for node in reversed(structure.nodes):
        if not fed[node.ordinal]:
            # What nothing reads is shared only with the same whole.
            above = sorted(hashes[reader] for reader in readers[node.ordinal]) or whole
            parts = [b"read by", upward[node.ordinal], *above]
            hashes[node.ordinal] = blake3(b"".join(parts)).digest()
    return tuple(hashes)


def _fed_by_an_input(structure: NetworkGraph) -> list[bool]:
    fed: list[bool] = []
    for node, inputs in zip(structure.nodes, structure.inputs, strict=True):
        reads = any(fed[source] for position, source in inputs)
        fed.append(node.op in ("input", "output") or reads)
    return fed


def _dump(value: object) -> bytes:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode("utf-8", "surrogatepass")
