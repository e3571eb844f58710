"""An outline as a few small arrays, and as the bytes of one row; `stack.py` reads those."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from mmdb.errors import ArchitectureError
from mmdb.graph.flow.outline import MODEL_INPUT, UNREAD, Layer, Outline
from mmdb.graph.match.branches import Nodes, Part, decompose
from mmdb.graph.match.histogram import histogram
from mmdb.graph.match.kinds import commutes, number_of
from mmdb.graph.match.score import Labels, labels_of

#: Layers of an outline; their numbers have 16 bits.
MOST_LAYERS = 50_000

_UNREAD = number_of(UNREAD)
_Label = tuple[int, int, tuple[int, ...], int]  # kind, groups, shape, parameters


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """An outline without names. n layers, of which L are different.

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
    def branches(self) -> Part:
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


def pack(outline: Outline) -> Packed:
    """Return an outline's arrays.

    Raises:
        ArchitectureError: the outline has no topological order, a size below 0, or too many layers.
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
    packed = Packed(
        **{
            name: np.array(found[name], np.dtype(dtype).newbyteorder("="))
            for name, dtype in DTYPES.items()
        }
    )
    feature, mass = histogram(packed.labels, packed.counts, packed.kind.tolist())
    return replace(packed, feature=feature.astype(np.uint16), mass=mass)


def _checked(outline: Outline) -> list[list[int]]:
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


def _has_sizes(layer: Layer) -> bool:
    sizes = (*layer.shape, layer.groups, layer.parameters)
    return len(layer.shape) < 256 and all(0 <= size < 1 << 62 for size in sizes)


def _decompose(keys: Sequence[_Label], inputs: Sequence[Sequence[int]]) -> Part:
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
