"""The layer skeleton of an architecture: layers that hold tensors, and where their results meet.

Kinds of layers with tensors: convolutions are "conv2d", "depthwise2d" (a group per input channel)
and "conv_transpose2d" by their number of dimensions; "linear" (weight (out, in)),
"linear_transposed" (weight (in, out)), "batched_linear" (one weight per expert or head),
"matmul_left" (the weight is the left factor), "attention" (a linear whose result is both query and
key); "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", by hand or by torch's
operation; "embedding" (a table that is looked up, a learned position or token); "scale" and "bias"
(a bare parameter that multiplies or is added); "lstm", "gru", "rnn_tanh", "rnn_relu", "prelu",
"einsum"; "unread" (the forward does not read it).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar, cast

from mmdb.graph.trace.structure import GraphNode, TensorSpec

#: Kinds of layers without tensors: where results meet.
ADD, CONCAT, MULTIPLY = "add", "concat", "multiply"
#: Kind of layers that the forward does not read.
UNREAD = "unread"
#: What `LayerSkeleton.inputs` has for the model's own input.
MODEL_INPUT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SkeletonLayer:
    """A layer that holds tensors, or a place where results meet.

    A layer that is called again is a layer again, with the same tensors and 0 parameters.

    Attributes:
        kind: "conv2d", "depthwise2d", "linear", "batch_norm", "layer_norm", "rms_norm",
            "embedding", "attention" (a packed projection), ..., "scale" for a bare parameter; ADD,
            CONCAT, MULTIPLY.
        path: of the module that owns the tensors; of the one in which results meet.
        tensors: (role, path in the state dict): ("weight", "a.weight"), ("running_mean", ...). The
            role is the operation's argument; where that is computed from several tensors (weight_g,
            weight_v), the last part of the path.
        shape: of the weight, () where there is none.
        groups: of a convolution, else 1.
        parameters: elements of the parameters (without buffers) that no earlier layer owns.
    """

    ordinal: int
    kind: str
    path: str = ""
    tensors: tuple[tuple[str, str], ...] = ()
    shape: tuple[int, ...] = ()
    groups: int = 1
    parameters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSkeleton:
    """Layers in topological order.

    Attributes:
        inputs: for each layer, the layers whose results reach it without passing another one, in
            the order of its arguments, each once; MODEL_INPUT for the model's own input. Learned
            tokens and unread layers have none.
    """

    layers: tuple[SkeletonLayer, ...]
    inputs: tuple[tuple[int, ...], ...]

    @property
    def parameters(self) -> int:
        """Elements of all parameters, each once."""
        return sum(layer.parameters for layer in self.layers)


_KINDS = {
    "linear": "linear",
    "non_dynamically_quantizable_linear": "linear",
    "bilinear": "bilinear",
    "embedding": "embedding",
    "embedding_bag": "embedding",
    "position": "embedding",
    "layer_norm": "layer_norm",
    "group_norm": "group_norm",
    "rms_norm": "rms_norm",
    "sync_batch_norm": "batch_norm",
    "lstm": "lstm",
    "lstm_cell": "lstm",
    "gru": "gru",
    "gru_cell": "gru",
    "prelu": "prelu",
}
_SIZED = re.compile(r"(batch_norm|instance_norm)([123]d)?")
_ATTENTIONS = ("multihead_attention", "self_attention")
_RECURRENT = ("rnn", "rnn_cell")
_PACKED_PROJECTIONS = ("q_proj_weight", "k_proj_weight", "v_proj_weight")

#: What `Part.reads` has for the inputs of the node.
INPUTS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePart:
    """A layer of a node.

    Attributes:
        kind: as `Layer.kind`.
        tensors: places among the node's parameters.
        shape: of the weight.
        reads: the node's parts before it by their place, or INPUTS.
    """

    kind: str
    tensors: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    groups: int = 1
    reads: tuple[int, ...] = (INPUTS,)


def parts_of(node: GraphNode) -> list[NodePart]:
    """Return the layers of a module with tensors, in the order in which they run."""
    by_owner: dict[str, list[int]] = {}
    for place, spec in enumerate(node.parameters):
        by_owner.setdefault(spec.name.rpartition(".")[0], []).append(place)
    parts = {
        owner: _of_one(*_below(node, owner), node.parameters, places)
        for owner, places in by_owner.items()
    }
    if node.op == "transformer_encoder_layer":
        return _encoder_layer(parts, norm_first=bool(node.attributes.get("norm_first")))
    found: list[NodePart] = []
    _chain(found, parts.values(), (INPUTS,))
    return found


def kind_of_node(op: str, shape: Sequence[int], groups: int = 1) -> str | None:
    """Return the kind of a layer by the op and its weight's shape; None for an op without one."""
    if op.startswith("conv") and (rank := len(shape) - 2) > 0:
        if "transpose" in op:
            return f"conv_transpose{rank}d"
        return f"depthwise{rank}d" if groups > 1 and shape[1] == 1 else f"conv{rank}d"
    sized = _SIZED.fullmatch(op)
    return sized[1] if sized else _KINDS.get(op)


def _below(node: GraphNode, owner: str) -> tuple[str, Mapping[str, object]]:
    """Return op and attributes of the module at a path below a node's."""
    op, attributes = node.op, node.attributes
    for name in owner.split(".") if owner else ():
        children = cast("Mapping[str, Mapping[str, object]]", attributes.get("children") or {})
        attributes = children.get(name, {})
        op = str(attributes.get("op", ""))
    return op, attributes


def _of_one(
    op: str, attributes: Mapping[str, object], specs: Sequence[TensorSpec], places: Sequence[int]
) -> list[NodePart]:
    """Return the layers side by side that the tensors of one module are."""
    names = {specs[place].name.rpartition(".")[2]: place for place in places}
    if op in _ATTENTIONS and _PACKED_PROJECTIONS[0] in names:
        return _projections(names, specs, places)
    weights = [place for place in places if not specs[place].is_buffer]
    weight = names["weight"] if names.get("weight") in weights else next(iter(weights), None)
    shape = () if weight is None else specs[weight].shape
    groups = attributes.get("groups")
    groups = groups if isinstance(groups, int) and op.startswith("conv") else 1
    if op in _ATTENTIONS:
        kind = "attention"
    elif op in _RECURRENT:
        mode = attributes.get("nonlinearity") or attributes.get("mode")
        kind = "rnn_relu" if "relu" in str(mode).lower() else "rnn_tanh"
    else:
        kind = kind_of_node(op, shape, groups) or _guess(names, shape)
    return [NodePart(kind=kind, tensors=tuple(places), shape=shape, groups=groups)]


def _projections(
    names: Mapping[str, int], specs: Sequence[TensorSpec], places: Sequence[int]
) -> list[NodePart]:
    """Return those of an attention whose query, key and value differ in width."""
    own = [names[name] for name in _PACKED_PROJECTIONS]
    rest = tuple(place for place in places if place not in own)  # biases of all three in one
    return [
        NodePart(
            kind="linear", tensors=(place, *(() if number else rest)), shape=specs[place].shape
        )
        for number, place in enumerate(own)
    ]


def _guess(names: Mapping[str, int], shape: Sequence[int]) -> str:
    """Return the kind of a module that is not torch's own."""
    if "running_mean" in names:
        return "batch_norm"
    if len(shape) > 2:
        return f"conv{min(3, len(shape) - 2)}d"
    return "linear" if len(shape) == 2 else "scale"


def _chain(
    found: list[NodePart], groups: Iterable[Sequence[NodePart]], reads: tuple[int, ...]
) -> tuple[int, ...]:
    """Add groups of layers, each after the one before; return the places of the last."""
    for group in groups:
        start = len(found)
        found += [replace(part, reads=reads) for part in group]
        reads = tuple(range(start, len(found))) or reads
    return reads


def _encoder_layer(parts: Mapping[str, list[NodePart]], *, norm_first: bool) -> list[NodePart]:
    """Return the layers of nn.TransformerEncoderLayer with the two places where results meet."""
    branches = (("self_attn", "self_attn.out_proj", "norm1"), ("linear1", "linear2", "norm2"))
    found: list[NodePart] = []
    skip: tuple[int, ...] = (INPUTS,)
    for *names, norm in branches:
        branch, around = [parts.get(name, []) for name in names], parts.get(norm, [])
        ends = _chain(found, [around, *branch] if norm_first else branch, skip)
        found.append(NodePart(kind=ADD, reads=(*skip, *ends)))
        skip = (len(found) - 1,)
        if not norm_first:
            skip = _chain(found, [around], skip)
    return found


_T = TypeVar("_T")
#: Layers that each one reads.
Sources = tuple[int, ...]
#: A node, and the place among its parameters.
TensorPlace = tuple[int, int]

NORMS = frozenset({"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"})
#: Kinds through which a projection is still seen.
_THIN = NORMS | {"scale", "bias"}
_PROJECTIONS = ("linear", "linear_transposed", "attention")


class Layers:
    """Layers in topological order, each with what it reads; a tensor counts where it is first."""

    def __init__(self, nodes: Sequence[GraphNode]) -> None:
        self._nodes = nodes
        self._layers: list[SkeletonLayer] = []
        self._inputs: list[Sources] = []
        self._owned: set[TensorPlace] = set()

    def __len__(self) -> int:
        return len(self._layers)

    def __getitem__(self, number: int) -> SkeletonLayer:
        return self._layers[number]

    @property
    def outline(self) -> LayerSkeleton:
        """The layers as they are now."""
        return LayerSkeleton(layers=tuple(self._layers), inputs=tuple(self._inputs))

    def append(
        self,
        kind: str,
        tensors: Sequence[TensorPlace],
        sources: Sources,
        *,
        path: str,
        shape: tuple[int, ...] = (),
        groups: int = 1,
    ) -> int:
        """Add a layer and return its number."""
        number = len(self._layers)
        self._layers.append(
            SkeletonLayer(
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

    def extend(self, number: int, tensors: Sequence[TensorPlace]) -> None:
        """Give a layer more tensors."""
        layer = self._layers[number]
        self._layers[number] = replace(
            layer,
            tensors=(*layer.tensors, *(self._named(tensor) for tensor in tensors)),
            parameters=layer.parameters + self._take(tensors),
        )

    def shape_of(self, tensor: TensorPlace) -> tuple[int, ...]:
        """Return a tensor's shape."""
        return self._nodes[tensor[0]].parameters[tensor[1]].shape

    def are_owned(self, tensors: Iterable[TensorPlace]) -> bool:
        """Return whether all of some tensors are in layers."""
        return self._owned.issuperset(tensors)

    def note_attention(self, found: Sequence[Sources]) -> None:
        """Mark a projection whose result is both query and key, the first of what meets."""
        note_attention(self._layers, self._inputs, found)

    def _take(self, tensors: Iterable[TensorPlace]) -> int:
        """Return the elements of parameters that no layer owned before."""
        count = 0
        for tensor in tensors:
            if tensor not in self._owned:
                self._owned.add(tensor)
                node, place = self._nodes[tensor[0]], tensor[1]
                spec = node.parameters[place]
                if not spec.is_buffer and place not in node.tied:
                    count += prod(spec.shape)
        return count

    def _named(self, tensor: TensorPlace) -> tuple[str, str]:
        """Return role and path of a tensor."""
        node = self._nodes[tensor[0]]
        name = node.parameters[tensor[1]].name
        return name.rpartition(".")[2], f"{node.path}.{name}" if node.path else name


def note_attention(
    layers: list[SkeletonLayer], inputs: Sequence[Sources], found: Sequence[Sources]
) -> None:
    """Mark a projection whose result is both query and key, the first of what meets."""
    projections = {_projection(layers, inputs, sources) for sources in found[:2]}
    if len(found) > 1 and len(projections) == 1 and (number := projections.pop()) is not None:
        layers[number] = replace(layers[number], kind="attention")


def _projection(
    layers: Sequence[SkeletonLayer], inputs: Sequence[Sources], sources: Sources
) -> int | None:
    while len(sources) == 1 and sources[0] >= 0:
        kind = layers[sources[0]].kind
        if kind in _PROJECTIONS:
            return sources[0]
        if kind not in _THIN:
            return None
        sources = inputs[sources[0]]
    return None


def union(found: Iterable[Iterable[_T]]) -> tuple[_T, ...]:
    """Return what is in any, in the order of its first place."""
    return tuple(dict.fromkeys(one for several in found for one in several))
