"""What two architectures share from the inputs on, by prefix hashes that a table can index."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a structure has its prefixes as an attribute
    from mmdb.graph.structure import Structure


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """The nodes of one prefix hash: alike, with everything that feeds them.

    Args:
        nodes: how many nodes of the structure have the hash; 1 but for parallel branches.
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
    """What two structures share, from the inputs on."""

    nodes: int
    parameter_bytes: int


def prefixes_of(structure: Structure) -> tuple[Prefix, ...]:
    """Return the distinct prefix hashes, in the order of their first nodes; inputs do not count."""
    counts = Counter(structure.prefix_hashes)
    sizes = _prefix_sizes(structure)
    found: dict[bytes, Prefix] = {}
    for node, name in zip(structure.nodes, structure.prefix_hashes, strict=True):
        if name not in found and node.op != "input":
            depth, prefix_bytes = sizes[node.ordinal]
            found[name] = Prefix(
                prefix_hash=name,
                nodes=counts[name],
                parameter_bytes=node.parameter_bytes,
                depth=depth,
                prefix_bytes=prefix_bytes,
            )
    return tuple(found.values())


def common_prefix(a: Structure, b: Structure) -> CommonPrefix:
    """Return how much of one structure the other has too, from the inputs on.

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


def _prefix_sizes(structure: Structure) -> list[tuple[int, int]]:
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
