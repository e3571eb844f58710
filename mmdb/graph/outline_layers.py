"""The layers of an outline while it is made from the nodes of a structure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar, cast

from mmdb.graph.flow.outline import Layer, Outline
from mmdb.graph.structure import Node

_T = TypeVar("_T")
#: Layers that each one reads.
Sources = tuple[int, ...]
#: A node, and the place among its parameters.
Tensor = tuple[int, int]

#: Kinds through which a projection is still seen.
_THIN = frozenset(
    {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "scale", "bias"}
)
_PROJECTIONS = ("linear", "linear_transposed", "attention")


class Layers:
    """Layers in topological order, each with what it reads; a tensor counts where it is first."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._layers: list[Layer] = []
        self._inputs: list[Sources] = []
        self._owned: set[Tensor] = set()

    def __len__(self) -> int:
        return len(self._layers)

    def __getitem__(self, number: int) -> Layer:
        return self._layers[number]

    @property
    def outline(self) -> Outline:
        """The layers as they are now."""
        return Outline(layers=tuple(self._layers), inputs=tuple(self._inputs))

    def append(
        self,
        kind: str,
        tensors: Sequence[Tensor],
        sources: Sources,
        *,
        path: str,
        shape: tuple[int, ...] = (),
        groups: int = 1,
    ) -> int:
        """Add a layer and return its number."""
        number = len(self._layers)
        self._layers.append(
            Layer(
                ordinal=number,
                kind=kind,
                path=path,
                tensors=tuple(self._named(tensor) for tensor in tensors),
                shape=shape,
                groups=groups,
                parameters=self._take(tensors),
            )
        )
        self._inputs.append(sources)
        return number

    def extend(self, number: int, tensors: Sequence[Tensor]) -> None:
        """Give a layer more tensors."""
        layer = self._layers[number]
        self._layers[number] = replace(
            layer,
            tensors=(*layer.tensors, *(self._named(tensor) for tensor in tensors)),
            parameters=layer.parameters + self._take(tensors),
        )

    def shape_of(self, tensor: Tensor) -> tuple[int, ...]:
        """Return a tensor's shape."""
        return self._nodes[tensor[0]].parameters[tensor[1]].shape

    def are_owned(self, tensors: Iterable[Tensor]) -> bool:
        """Return whether all of some tensors are in layers."""
        return self._owned.issuperset(tensors)

    def note_attention(self, found: Sequence[Sources]) -> None:
        """Mark a projection whose result is both query and key, the first of what meets."""
        projections = {self._projection(sources) for sources in found[:2]}
        if len(found) > 1 and len(projections) == 1 and (number := projections.pop()) is not None:
            self._layers[number] = replace(self._layers[number], kind="attention")

    def _projection(self, sources: Sources) -> int | None:
        while len(sources) == 1 and sources[0] >= 0:
            kind = self._layers[sources[0]].kind
            if kind in _PROJECTIONS:
                return sources[0]
            if kind not in _THIN:
                return None
            sources = self._inputs[sources[0]]
        return None

    def _take(self, tensors: Iterable[Tensor]) -> int:
        """Return the elements of parameters that no layer owned before."""
        count = 0
        for tensor in tensors:
            if tensor not in self._owned:
                self._owned.add(tensor)
                node, place = self._nodes[tensor[0]], tensor[1]
                spec = node.parameters[place]
                if not spec.is_buffer and place not in _tied(node):
                    count += prod(spec.shape)
        return count

    def _named(self, tensor: Tensor) -> tuple[str, str]:
        """Return role and path of a tensor."""
        node = self._nodes[tensor[0]]
        name = node.parameters[tensor[1]].name
        return name.rpartition(".")[2], f"{node.path}.{name}" if node.path else name


def _tied(node: Node) -> frozenset[int]:
    """Return the places of parameters that an earlier node owns, or another place of this one."""
    tied = cast("Sequence[Sequence[int]]", node.attributes.get("tied", ()))
    return frozenset(entry[0] for entry in tied)


def union(found: Iterable[Iterable[_T]]) -> tuple[_T, ...]:
    """Return what is in any, in the order of its first place."""
    return tuple(dict.fromkeys(one for several in found for one in several))
