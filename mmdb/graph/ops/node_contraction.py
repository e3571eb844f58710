"""Contracts an architecture to its layer skeleton: nodes without tensors are left out.

It gives what `skeleton_of` (op_contraction.py) gives of an op graph, as far as an architecture
shows it: sizes of results are not known, and neither are paths where it was read from a database.
So nothing here depends on paths, and two architectures with one canonical hash have skeletons that
differ in the order of layers alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mmdb.errors import ArchitectureError
from mmdb.graph.ops.skeleton import (
    ADD,
    CONCAT,
    INPUTS,
    MODEL_INPUT,
    MULTIPLY,
    UNREAD,
    Layers,
    LayerSkeleton,
    Sources,
    TensorPlace,
    kind_of_node,
    parts_of,
    union,
)
from mmdb.graph.trace.structure import GraphNode, NetworkGraph

#: Nodes of an architecture; beyond them nobody would wait for a search.
MOST_NODES = 50_000

_MEETINGS = {
    "add": ADD, "sub": ADD, "rsub": ADD,
    "mul": MULTIPLY, "div": MULTIPLY,
    "cat": CONCAT, "stack": CONCAT, "hstack": CONCAT, "vstack": CONCAT,
}  # fmt: skip
_SCALES, _SHIFTS = frozenset({"mul", "div", "pow"}), frozenset({"add", "sub", "rsub"})
_MATMULS = frozenset({"matmul", "mm", "bmm"})
_PRODUCTS = _MATMULS | {"baddbmm", "einsum", "scaled_dot_product_attention"}
_FLIPS = frozenset({"t", "transpose", "T", "mT"})
_TABLES = frozenset({"embedding", "embedding_bag", "index_select", "getitem", "gather", "take"})
_LOOKUPS = frozenset({"embedding", "embedding_bag"})
#: Of these only the sizes of what they read count.
_SIZES = frozenset({"size", "dim", "numel", "len"})
_FILLED = frozenset(
    f"{fill}_like" for fill in ("zeros", "ones", "full", "empty", "rand", "randn")
) | frozenset(f"new_{fill}" for fill in ("zeros", "ones", "full", "empty"))
_LIKE = frozenset({"view_as", "expand_as", "type_as"})  # and here of the second
_FACTS = frozenset({"shape", "ndim", "dtype", "device", "requires_grad", "is_cuda"})
_MOST_SOURCES = 4  # beyond them results meet wherever they do, so that inputs stay few


def skeleton_of_architecture(structure: NetworkGraph) -> LayerSkeleton:
    """Return the layers of an architecture, and what each one reads.

    Raises:
        ArchitectureError: it has more than 50,000 nodes.
    """
    if len(structure.nodes) > MOST_NODES:
        raise ArchitectureError(
            f"The architecture has {len(structure.nodes)} nodes.",
            hint=f"Parents are found for architectures of up to {MOST_NODES} nodes.",
        )
    contraction = _NodeContraction(structure)
    for node in structure.nodes:
        contraction.add(node)
    contraction.add_rest()
    return contraction.layers.outline


class _NodeContraction:
    def __init__(self, structure: NetworkGraph) -> None:
        self._nodes = structure.nodes
        self._reads = [
            [source for position, source in inputs if position >= 0] for inputs in structure.inputs
        ]
        self._readers = Counter(source for reads in self._reads for source in reads)
        self.layers = Layers(structure.nodes)
        self._sources: dict[int, Sources] = {}  # of nodes that an input reaches
        self._weights: dict[int, tuple[TensorPlace, ...]] = {}  # of others: what they follow from
        self._alone: dict[int, int] = {}  # layers of weights that no node takes in
        self._made: dict[int, int] = {}  # the layer that a function is
        self._flipped: set[int] = set()  # transposed parameters
        self._concatenations: dict[tuple[tuple[int, ...], str], int] = {}

    def add(self, node: GraphNode) -> None:
        """Take in the next node."""
        reads = self._reads[node.ordinal][: 1 if node.op in _LIKE else None]
        if node.op == "input":
            self._sources[node.ordinal] = (MODEL_INPUT,)
        elif node.op == "parameter":
            is_weight = not all(spec.is_buffer for spec in node.parameters)
            places = range(len(node.parameters)) if is_weight else ()
            self._weights[node.ordinal] = tuple((node.ordinal, place) for place in places)
        elif _is_constant(node):
            self._weights[node.ordinal] = ()
        elif node.parameters and self._is_lookup(node, reads):
            self._weights[node.ordinal] = ((node.ordinal, 0),)
        elif node.parameters:
            self._sources[node.ordinal] = self._add_module(node, reads)
        elif all(source in self._weights for source in reads):  # a constant, if it reads nothing
            self._weights[node.ordinal] = union(self._weights[source] for source in reads)
            self._follow_flip(node, reads)
        else:
            self._sources[node.ordinal] = self._add_function(node, reads)

    def add_rest(self) -> None:
        """Add the parameters that no layer has taken in."""
        for source, tensors in self._weights.items():
            if self._nodes[source].parameters and not self.layers.are_owned(tensors):
                shape = self.layers.shape_of(tensors[0])
                path = self._nodes[source].path
                self.layers.append(UNREAD, tensors, (), path=path, shape=shape)

    # -- modules -------------------------------------------------------------------

    def _add_module(self, node: GraphNode, reads: Sequence[int]) -> Sources:
        tensors = [(node.ordinal, place) for place in range(len(node.parameters))]
        if not reads and not self._readers[node.ordinal]:
            if all(spec.is_buffer for spec in node.parameters):
                return ()
            shape = self.layers.shape_of(tensors[0])
            self.layers.append(UNREAD, tensors, (), path=node.path, shape=shape)
            return ()
        found = union(self._fed_by(reads))
        start = len(self.layers)
        for part in parts_of(node):
            self.layers.append(
                part.kind,
                [tensors[place] for place in part.tensors],
                union(found if one == INPUTS else (start + one,) for one in part.reads),
                path=node.path,
                shape=part.shape,
                groups=part.groups,
            )
        return (len(self.layers) - 1,)

    def _is_lookup(self, node: GraphNode, reads: Sequence[int]) -> bool:
        """Whether a node looks up rows that are the same for every input, such as positions."""
        constant = [source in self._weights and not self._weights[source] for source in reads]
        return node.op in _LOOKUPS and bool(reads) and all(constant)

    def _fed_by(self, reads: Sequence[int]) -> list[Sources]:
        found = []
        for source in reads:
            if source in self._sources:
                found.append(self._sources[source])
            elif self._weights[source]:
                found.append((self._layer_of(source),))
        return found

    def _layer_of(self, source: int) -> int:
        """Return the layer of weights that no node takes in, a learned token."""
        if source not in self._alone:
            tensors = self._weights[source]
            shape = self.layers.shape_of(tensors[0])
            kind = "embedding" if len(shape) > 1 else "scale"
            path = self._nodes[tensors[0][0]].path
            self._alone[source] = self.layers.append(kind, tensors, (), path=path, shape=shape)
        return self._alone[source]

    # -- functions -----------------------------------------------------------------

    def _add_function(self, node: GraphNode, reads: Sequence[int]) -> Sources:
        weights = [source for source in reads if self._weights.get(source)]
        dynamic = [source for source in reads if source in self._sources]
        if len(weights) == 1 == len(dynamic) and self._join_bias(node.op, weights[0], dynamic[0]):
            return self._sources[dynamic[0]]
        kind = self._kind(node, reads, weights, dynamic) if weights else None
        if kind is None:
            return self._meet(node, self._fed_by(self._operands(node, reads)))
        tensors = union(self._weights[source] for source in weights)
        self._made[node.ordinal] = number = self.layers.append(
            kind,
            tensors,
            union(self._sources[source] for source in dynamic),
            path=node.path,
            shape=self.layers.shape_of(tensors[0]),
            groups=_groups(node) if kind.startswith(("conv", "depthwise")) else 1,
        )
        return (number,)

    def _kind(
        self, node: GraphNode, reads: Sequence[int], weights: Sequence[int], dynamic: Sequence[int]
    ) -> str | None:
        """Return the kind of a function that takes in weights; None where results meet."""
        shape = self.layers.shape_of(self._weights[weights[0]][0])
        is_wide = sum(length != 1 for length in shape) > 1
        if node.op in _SCALES | _SHIFTS and len(dynamic) == 1 == len(weights):
            return "scale" if node.op in _SCALES else "embedding" if is_wide else "bias"
        if node.op in _TABLES:
            return "embedding"
        if node.op == "addmm":
            return "linear" if weights[-1] in self._flipped else "linear_transposed"
        if node.op in _MATMULS:
            if reads[0] in weights:
                return "matmul_left"
            if len(shape) > 2:
                return "batched_linear"
            return "linear" if weights[0] in self._flipped else "linear_transposed"
        return node.op if node.op == "einsum" else kind_of_node(node.op, shape, _groups(node))

    def _join_bias(self, op: str, weight: int, result: int) -> bool:
        """Add the bias of a layer that a function computed just before to that layer."""
        number, tensors = self._made.get(result), self._weights[weight]
        if op not in _SHIFTS or number is None or len(tensors) > 1 or self._readers[result] > 1:
            return False
        layer, shape = self.layers[number], self.layers.shape_of(tensors[0])
        if layer.kind in ("bias", "scale", "embedding"):
            return False
        if shape not in (layer.shape[:1], layer.shape[-1:]):
            return False
        self.layers.extend(number, tensors)
        return True

    def _follow_flip(self, node: GraphNode, reads: Sequence[int]) -> None:
        is_flip = node.op in _FLIPS or _attribute(node) in _FLIPS
        was_flipped = bool(reads) and reads[0] in self._flipped
        if was_flipped != is_flip:
            self._flipped.add(node.ordinal)

    # -- where results meet --------------------------------------------------------

    def _operands(self, node: GraphNode, reads: Sequence[int]) -> Sequence[int]:
        """Return what a node reads, a concatenation that is part of it in place of its parts.

        A dense block concatenates all that came before, again and again.
        """
        if node.op == "cat":
            dim = str(node.attributes.get("dim"))
            self._concatenations[tuple(reads), dim] = node.ordinal
            earlier = self._concatenations.get((tuple(reads[:-1]), dim))
            if earlier is not None:
                return (earlier, reads[-1])
        return reads

    def _meet(self, node: GraphNode, found: Sequence[Sources]) -> Sources:
        whole = union(found)
        if node.op in _PRODUCTS:
            self.layers.note_attention(found)
        kind = _MEETINGS.get(node.op)
        if kind is None and len(whole) > _MOST_SOURCES:
            kind = MULTIPLY if node.op in _PRODUCTS else ADD
        if kind is None or len({frozenset(one) for one in found}) < 2:
            return whole
        return (self.layers.append(kind, (), whole, path=node.path),)


def _is_constant(node: GraphNode) -> bool:
    """Whether a node's value is known before any data is, though it reads some."""
    return _attribute(node) in _FACTS or node.op in _SIZES or node.op in _FILLED


def _attribute(node: GraphNode) -> str:
    """Return which attribute of a tensor a node is; "" for other nodes."""
    args = node.attributes.get("args")
    return str(args[1]) if node.op == "getattr" and isinstance(args, list) and args[1:] else ""


def _groups(node: GraphNode) -> int:
    """Return the groups of a convolution that was called as a function."""
    args, named = node.attributes.get("args"), node.attributes.get("kwargs")
    found: object = None
    if isinstance(named, dict):
        found = named.get("groups")
    if isinstance(args, list) and len(args) > 6:
        found = args[6]
    return found if isinstance(found, int) else 1
