"""A layer skeleton as a few small arrays, and as the bytes of one row; its branches.

Every such graph is a sequence of nodes and of branches that lie side by side. Towards a node that
several results reach, what two or more of them share comes first; what is left to each alone are
the branches. No branch reads another one, so that they can stand in any order, each in one piece:

    a ── b ── c ── d        (a, [b, c | e], d): a b c e d, or a e b c d
     └─────── e ──┘

The decomposition depends on the graph alone, not on names or numbers. A block put into an edge
leaves every order of the nodes around it possible.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from zlib import crc32

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from mmdb.errors import ArchitectureError
from mmdb.graph.match.score import Labels, commutes, histogram, labels_of, number_of
from mmdb.graph.ops.skeleton import MODEL_INPUT, UNREAD, LayerSkeleton, SkeletonLayer


@dataclass(slots=True)
class BranchPart:
    """Nodes and branches, one after the other.

    Attributes:
        size: nodes in it.
        form, name: hashes of the forms and of the names of its nodes; equal ones are written alike.
        cost: of its nodes together.
    """

    items: list[int | ParallelBranches] = field(default_factory=list)
    size: int = 0
    cost: int = 0
    form: bytes = b""
    name: bytes = b""

    def __iter__(self) -> Iterator[int]:
        """Yield the nodes, branches in their own order."""
        waiting: list[int | ParallelBranches] = self.items[::-1]
        while waiting:
            item = waiting.pop()
            if isinstance(item, int):
                yield item
            else:
                for part in reversed(item.parts):
                    waiting.extend(reversed(part.items))


@dataclass(slots=True)
class ParallelBranches:
    """Parts side by side; where `are_free`, each order of them means the same."""

    parts: list[BranchPart]
    are_free: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """A directed acyclic graph; what a node reads has a lower number.

    Attributes:
        inputs: what each node reads, in the order of its arguments.
        commutes: whether the arguments of a node may change places.
        alone: those that have no edges and never could have any; they come last.
        forms: what kind of node each is.
        names: the same and its sizes. Nodes of one name can stand for each other.
        costs: of each node.
    """

    inputs: Sequence[Sequence[int]]
    commutes: Sequence[bool]
    alone: Collection[int]
    forms: Sequence[bytes]
    names: Sequence[bytes]
    costs: Sequence[int]


def decompose(nodes: Nodes) -> BranchPart:
    """Return the sequence that a graph is.

    Iterating it gives the canonical order: branches that may change places stand by size, form,
    cost and name. Two numberings of one graph give the same names in that order. Branches whose
    order matters, or that are all alike, are dissolved into the sequence.
    """
    root, parts = _split(nodes)
    for part in reversed(parts):  # branches before the part that they belong to
        part.items.reverse()
        _settle(part, nodes)
    return root


def _split(nodes: Nodes) -> tuple[BranchPart, list[BranchPart]]:
    """Return the whole and all parts, each from its last node to its first."""
    above = _ancestors(nodes.inputs)
    inner = {source for sources in nodes.inputs for source in sources}.union(nodes.alone)
    ends = [node for node in range(len(nodes.inputs)) if node not in inner]
    last = sorted(nodes.alone, key=lambda node: (nodes.costs[node], nodes.names[node]))
    root = BranchPart([*reversed(last)])
    parts = [root]
    waiting = [(root, ends, True, 0)]
    while waiting:
        part, tops, free, done = waiting.pop()
        while tops := [top for top in dict.fromkeys(tops) if not done & 1 << top]:
            if len(tops) == 1:
                part.items.append(tops[0])
                tops, free = list(nodes.inputs[tops[0]]), nodes.commutes[tops[0]]
                continue
            seen = shared = 0
            for top in tops:
                seen, shared = seen | above[top], shared | (seen & above[top])
            shared &= ~done
            own = [top for top in tops if not shared & 1 << top]
            branches = [BranchPart() for _ in own]
            if branches:
                # From the last to the first, as all items.
                part.items.append(ParallelBranches(branches, free and len(own) > 1))
            parts += branches
            waiting += [(b, [t], True, done | shared) for b, t in zip(branches, own, strict=True)]
            tops, free = _latest(shared, above), True
    return root, parts


def _ancestors(inputs: Sequence[Sequence[int]]) -> list[int]:
    """Return for each node the set of itself and all that it depends on, as bits."""
    above: list[int] = []
    for node, sources in enumerate(inputs):
        bits = 1 << node
        for source in sources:
            bits |= above[source]
        above.append(bits)
    return above


def _latest(shared: int, above: Sequence[int]) -> list[int]:
    """Return the nodes of a set that no other one of it reads."""
    found = []
    while shared:
        found.append(shared.bit_length() - 1)
        shared &= ~above[found[-1]]
    return found


def _settle(part: BranchPart, nodes: Nodes) -> None:
    """Put branches in order, dissolve those that have only one, and sum up."""
    items: list[int | ParallelBranches] = []
    form, name = blake3(), blake3()
    for item in part.items:
        if isinstance(item, int):
            part.size += 1
            part.cost += nodes.costs[item]
            form.update(nodes.forms[item])
            name.update(nodes.names[item])
            items.append(item)
            continue
        if item.are_free:
            item.parts.sort(key=_rank)
        for branch in item.parts:
            part.size += branch.size
            part.cost += branch.cost
            form.update(branch.form)
            name.update(branch.name)
        if item.are_free and len({branch.name for branch in item.parts}) > 1:
            items.append(item)
        else:
            items.extend(node for branch in item.parts for node in branch.items)
    part.items, part.form, part.name = items, form.digest(), name.digest()


def _rank(part: BranchPart) -> tuple[int, bytes, int, bytes, int]:
    return -part.size, part.form, -part.cost, part.name, next(iter(part))


#: Layers of a skeleton; their numbers have 16 bits.
MOST_LAYERS = 50_000

_UNREAD = number_of(UNREAD)
_Label = tuple[int, int, tuple[int, ...], int]  # kind, groups, shape, parameters


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedSkeleton:
    """A skeleton without names. n layers, of which L are different.

    Attributes:
        label: (n,) which of the L each layer is, by ordinal.
        fan_in: (n,) how many layers each reads.
        sources: their ordinals, in the order of arguments, layer after layer.
        order: (n,) ordinals in the canonical order.
        crossing: (n,) after each layer of that order, results still to be read, less one.
        kind, groups, rank, parameters: (L,) of each of the L; kinds by number.
        shape: their sizes, one after the other.
        feature, mass: (H,) the histogram: features that are not 0, and their values.
    """

    label: NDArray[np.uint16]
    fan_in: NDArray[np.uint16]
    sources: NDArray[np.uint16]
    order: NDArray[np.uint16]
    crossing: NDArray[np.uint8]
    kind: NDArray[np.int32]
    groups: NDArray[np.int64]
    rank: NDArray[np.uint8]
    parameters: NDArray[np.int64]
    shape: NDArray[np.int64]
    feature: NDArray[np.uint16]
    mass: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.label)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(L,) how many layers are of each of the L."""
        return np.bincount(self.label, minlength=len(self.kind)).astype(np.int64)

    @cached_property
    def labels(self) -> Labels:
        """The L in the form that is compared."""
        return labels_of(self.kind, self.groups, self.rank, self.shape, self.parameters)

    @property
    def distinct(self) -> list[_Label]:
        """Kind, groups, shape and parameters of each of the L."""
        shapes = np.split(self.shape, np.cumsum(self.rank, dtype=np.int64)[:-1])
        return [
            (kind, groups, tuple(shape.tolist()), parameters)
            for kind, groups, shape, parameters in zip(
                self.kind.tolist(),
                self.groups.tolist(),
                shapes,
                self.parameters.tolist(),
                strict=False,  # without any label there still is one, empty, piece
            )
        ]

    @cached_property
    def inputs(self) -> list[list[int]]:
        """For each layer, the ordinals of those that it reads."""
        ends = np.cumsum(self.fan_in, dtype=np.int64)[:-1]
        return [piece.tolist() for piece in np.split(self.sources, ends)][: len(self)]

    @property
    def branches(self) -> BranchPart:
        """The decomposition of the graph."""
        distinct = self.distinct
        return _decompose([distinct[number] for number in self.label.tolist()], self.inputs)

    def to_bytes(self) -> bytes:
        """Return the bytes of the arrays: each its length and its items, little-endian.

        Before them a magic, the version and the number of arrays; after them their CRC-32.
        """
        parts = [HEADER]
        for name, dtype in DTYPES.items():
            array = getattr(self, name)
            parts += [_COUNT.pack(len(array)), array.astype(dtype).tobytes()]
        body = b"".join(parts)
        return body + _COUNT.pack(crc32(body))


#: The arrays in the order of the bytes, and their items there.
DTYPES = {
    "label": "<u2",
    "fan_in": "<u2",
    "sources": "<u2",
    "order": "<u2",
    "crossing": "<u1",
    "kind": "<i4",
    "groups": "<i8",
    "rank": "<u1",
    "parameters": "<i8",
    "shape": "<i8",
    "feature": "<u2",
    "mass": "<f4",
}
_COUNT = struct.Struct("<I")
#: What the bytes begin with: a magic, the version and the number of arrays.
HEADER = struct.pack("<4sHH", b"MMOL", 1, len(DTYPES))


def pack(outline: LayerSkeleton) -> PackedSkeleton:
    """Return a skeleton's arrays.

    Raises:
        ArchitectureError: it has no topological order, a size below 0, or too many layers.
    """
    inputs = _checked(outline)
    keys = [
        (number_of(layer.kind), layer.groups, layer.shape, layer.parameters)
        for layer in outline.layers
    ]
    numbers: dict[_Label, int] = {}
    label = [numbers.setdefault(key, len(numbers)) for key in keys]
    order = list(_decompose(keys, inputs))
    distinct = list(numbers)
    found = {
        "label": label,
        "fan_in": [len(sources) for sources in inputs],
        "sources": [source for sources in inputs for source in sources],
        "order": order,
        "crossing": _crossing(order, inputs),
        "kind": [kind for kind, *_ in distinct],
        "groups": [groups for _, groups, *_ in distinct],
        "rank": [len(shape) for _, _, shape, _ in distinct],
        "parameters": [parameters for *_, parameters in distinct],
        "shape": [size for _, _, shape, _ in distinct for size in shape],
        "feature": (),
        "mass": (),
    }
    packed = PackedSkeleton(
        **{
            name: np.array(found[name], np.dtype(dtype).newbyteorder("="))
            for name, dtype in DTYPES.items()
        }
    )
    feature, mass = histogram(packed.labels, packed.counts, packed.kind.tolist())
    return replace(packed, feature=feature.astype(np.uint16), mass=mass)


def _checked(outline: LayerSkeleton) -> list[list[int]]:
    """Return for each layer the other layers that it reads, each once."""
    layers = outline.layers
    if len(layers) > MOST_LAYERS:
        raise ArchitectureError(f"an outline of {len(layers)} layers: at most {MOST_LAYERS}")
    if len(outline.inputs) != len(layers):
        raise ArchitectureError(f"{len(outline.inputs)} lists of inputs for {len(layers)} layers")
    for number, (layer, sources) in enumerate(zip(layers, outline.inputs, strict=True)):
        if any(not MODEL_INPUT <= source < number for source in sources):
            raise ArchitectureError(f"layer {number} of an outline cannot read {sources}")
        if not _has_sizes(layer):
            raise ArchitectureError(f"layer {number} of an outline has impossible sizes: {layer}")
    return [
        [source for source in dict.fromkeys(sources) if source != MODEL_INPUT]
        for sources in outline.inputs
    ]


def _has_sizes(layer: SkeletonLayer) -> bool:
    sizes = (*layer.shape, layer.groups, layer.parameters)
    return len(layer.shape) < 256 and all(0 <= size < 1 << 62 for size in sizes)


def _decompose(keys: Sequence[_Label], inputs: Sequence[Sequence[int]]) -> BranchPart:
    forms = {key: _digest(key[0], len(key[2])) for key in set(keys)}
    names = {key: _digest(*key) for key in forms}
    edges = ((reader, *sources) for reader, sources in enumerate(inputs) if sources)
    wired = {number for edge in edges for number in edge}
    return decompose(
        Nodes(
            inputs=inputs,
            commutes=[commutes(key[0]) for key in keys],
            alone={number for number, key in enumerate(keys) if key[0] == _UNREAD} - wired,
            forms=[forms[key] for key in keys],
            names=[names[key] for key in keys],
            costs=[key[3] for key in keys],
        )
    )


def _digest(*key: object) -> bytes:
    return blake2b(repr(key).encode(), digest_size=16).digest()


def _crossing(order: Sequence[int], inputs: Sequence[Sequence[int]]) -> list[int]:
    read = np.array([source for sources in inputs for source in sources], np.int64)
    readers = np.bincount(read, minlength=len(inputs))
    unread = readers.tolist()
    alive = 0
    crossing = []
    for node in order:
        for source in inputs[node]:
            unread[source] -= 1
            alive -= unread[source] == 0
        alive += unread[node] > 0
        crossing.append(min(255, max(0, alive - 1)))
    return crossing
