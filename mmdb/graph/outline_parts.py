"""Which layers a node of a structure holds: one, or several that torch runs as one module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from mmdb.graph.flow.outline import ADD
from mmdb.graph.structure import Node, TensorSpec

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
_PROJECTIONS = ("q_proj_weight", "k_proj_weight", "v_proj_weight")

#: What `Part.reads` has for the inputs of the node.
INPUTS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
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


def parts_of(node: Node) -> list[Part]:
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
    found: list[Part] = []
    _chain(found, parts.values(), (INPUTS,))
    return found


def kind_of(op: str, shape: Sequence[int], groups: int = 1) -> str | None:
    """Return the kind of a layer by the op and its weight's shape; None for an op without one."""
    if op.startswith("conv") and (rank := len(shape) - 2) > 0:
        if "transpose" in op:
            return f"conv_transpose{rank}d"
        return f"depthwise{rank}d" if groups > 1 and shape[1] == 1 else f"conv{rank}d"
    sized = _SIZED.fullmatch(op)
    return sized[1] if sized else _KINDS.get(op)


def _below(node: Node, owner: str) -> tuple[str, Mapping[str, object]]:
    """Return op and attributes of the module at a path below a node's."""
    op, attributes = node.op, node.attributes
    for name in owner.split(".") if owner else ():
        children = cast("Mapping[str, Mapping[str, object]]", attributes.get("children") or {})
        attributes = children.get(name, {})
        op = str(attributes.get("op", ""))
    return op, attributes


def _of_one(
    op: str, attributes: Mapping[str, object], specs: Sequence[TensorSpec], places: Sequence[int]
) -> list[Part]:
    """Return the layers side by side that the tensors of one module are."""
    names = {specs[place].name.rpartition(".")[2]: place for place in places}
    if op in _ATTENTIONS and _PROJECTIONS[0] in names:
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
        kind = kind_of(op, shape, groups) or _guess(names, shape)
    return [Part(kind=kind, tensors=tuple(places), shape=shape, groups=groups)]


def _projections(
    names: Mapping[str, int], specs: Sequence[TensorSpec], places: Sequence[int]
) -> list[Part]:
    """Return those of an attention whose query, key and value differ in width."""
    own = [names[name] for name in _PROJECTIONS]
    rest = tuple(place for place in places if place not in own)  # biases of all three in one
    return [
        Part(kind="linear", tensors=(place, *(() if number else rest)), shape=specs[place].shape)
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
    found: list[Part], groups: Iterable[Sequence[Part]], reads: tuple[int, ...]
) -> tuple[int, ...]:
    """Add groups of layers, each after the one before; return the places of the last."""
    for group in groups:
        start = len(found)
        found += [replace(part, reads=reads) for part in group]
        reads = tuple(range(start, len(found))) or reads
    return reads


def _encoder_layer(parts: Mapping[str, list[Part]], *, norm_first: bool) -> list[Part]:
    """Return the layers of nn.TransformerEncoderLayer with the two places where results meet."""
    branches = (("self_attn", "self_attn.out_proj", "norm1"), ("linear1", "linear2", "norm2"))
    found: list[Part] = []
    skip: tuple[int, ...] = (INPUTS,)
    for *names, norm in branches:
        branch, around = [parts.get(name, []) for name in names], parts.get(norm, [])
        ends = _chain(found, [around, *branch] if norm_first else branch, skip)
        found.append(Part(kind=ADD, reads=(*skip, *ends)))
        skip = (len(found) - 1,)
        if not norm_first:
            skip = _chain(found, [around], skip)
    return found
