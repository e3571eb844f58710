"""Writes the calls of a forward as the layers of a layer graph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from torch import nn
from torch.nn import functional

from mmdb.graph.factories import Position
from mmdb.graph.spec.layer_graph import RESERVED
from mmdb.graph.trace.call_forms import ForwardCall, encode
from mmdb.graph.vocabulary import OPS
from mmdb.messages import show

Json = dict[str, object]

# Ops of an architecture -> ops of a layer graph. Those that own tensors must be modules.
_OWNERS = {
    "linear": "Linear",
    "conv1d": "Conv1d",
    "conv2d": "Conv2d",
    "batch_norm1d": "BatchNorm1d",
    "batch_norm2d": "BatchNorm2d",
    "layer_norm": "LayerNorm",
    "group_norm": "GroupNorm",
    "embedding": "Embedding",
    "position": "Position",
    "self_attention": "MultiheadAttention",
    "multihead_attention": "MultiheadAttention",
    "transformer_encoder_layer": "TransformerEncoderLayer",
}
_OTHERS = {
    "max_pool1d": "MaxPool1d",
    "max_pool2d": "MaxPool2d",
    "avg_pool1d": "AvgPool1d",
    "avg_pool2d": "AvgPool2d",
    "adaptive_avg_pool1d": "AdaptiveAvgPool1d",
    "adaptive_avg_pool2d": "AdaptiveAvgPool2d",
    "relu": "ReLU",
    "relu6": "ReLU6",
    "gelu": "GELU",
    "silu": "SiLU",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "hardswish": "Hardswish",
    "hardsigmoid": "Hardsigmoid",
    "elu": "ELU",
    "leaky_relu": "LeakyReLU",
    "softmax": "Softmax",
    "dropout": "Dropout",
    "dropout2d": "Dropout2d",
    "identity": "Identity",
    "flatten": "Flatten",
    "unflatten": "Unflatten",
    "transpose": "transpose",
    "mean": "mean",
    "add": "add",
    "mul": "mul",
    "cat": "concat",
}
# The result of these may be their input itself, or a view of it.
_ALIASES = frozenset({"identity", "flatten", "unflatten", "transpose", "dropout", "dropout2d"})
# The result of these is a new tensor.
FRESH = ({*_OWNERS, *_OTHERS} - _ALIASES) | {"input"}
_NOT_A_LETTER = re.compile(r"[^A-Za-z0-9_]", re.ASCII)


class NotALayerGraph(Exception):
    """The module does what no layer graph can say."""


class LayerWriter:
    """Writes calls as layers."""

    def __init__(self, module: nn.Module, calls: Sequence[ForwardCall]) -> None:
        self._module = module
        self._calls = calls
        self._names: dict[int, str] = {}
        self._taken = set(RESERVED)
        self._parts = {path.split(".")[0] for path, _ in module.named_modules()}
        self._layers: list[Json] = []

    def graph(self) -> Json:
        """Return the layer graph.

        Raises:
            NotALayerGraph: something is done that no layer of a graph does.
        """
        inputs = [call for call in self._calls if call.op == "input"]
        output = self._calls[-1]
        if len(inputs) != 1:
            raise NotALayerGraph(f"its forward takes {len(inputs)} tensors")
        if len(output.inputs) != 1 or output.attributes:
            raise NotALayerGraph("its forward does not return one tensor")
        self._names[id(inputs[0])] = "input"
        for call in self._calls:
            if call.op not in ("input", "output") and not is_size(call):
                self._write(call)
        if not self._layers:
            raise NotALayerGraph("it has no layers")
        paths = list(self._paths())
        return {"layers": self._layers, "output": self._name(output.inputs[0]), "paths": paths}

    def _write(self, call: ForwardCall) -> None:
        if call.op == "getitem" and self._is_attention(call):
            self._names[id(call)] = self._name(call.inputs[0])
            return
        if call.op in ("view", "reshape"):
            op, sources = "reshape", call.inputs[:1]
            args: Json = {"shape": self._row_shape(call)}
        else:
            op, args, sources = _op(call), _arguments(call), _sources(call)
        layer: Json = {"name": self._new_name(call), "op": op}
        layer |= {"args": args} if args else {}
        self._layers.append(layer | {"inputs": [self._name(source) for source in sources]})

    def _name(self, call: ForwardCall) -> str:
        if id(call) not in self._names:
            raise NotALayerGraph(f"the result of {call.op} is used in a way no layer has")
        return self._names[id(call)]

    def _new_name(self, call: ForwardCall) -> str:
        stem = _NOT_A_LETTER.sub("_", call.path.replace(".", "_") or call.op).strip("_")[:80]
        stem = stem if stem and not stem[0].isdigit() else f"layer_{stem}"
        name, number = stem, 1
        # The layer of a function stands under its name, where no module may be.
        while name in self._taken or (call.module is None and name in self._parts):
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        self._names[id(call)] = name
        return name

    def _paths(self) -> Iterator[list[str]]:
        """Yield [path, layer] of every module that was called, in the order of the tree."""
        called: dict[int, list[str]] = {}
        for call in self._calls:
            if call.module is not None and id(call) in self._names:
                called.setdefault(id(call.module), []).append(self._names[id(call)])
        for path, part in self._module.named_modules(remove_duplicate=False):
            for name in called.get(id(part), ()):
                if not path:
                    raise NotALayerGraph("it is a single layer: put it into nn.Sequential")
                yield [path, name]

    def _is_attention(self, call: ForwardCall) -> bool:
        first = call.attributes == {"args": [{"input": 0}, 0]}
        return first and call.inputs[0].op == "multihead_attention"

    def _row_shape(self, call: ForwardCall) -> list[object]:
        """Return the row's shape that a view or reshape gives, the batch being left alone."""
        args = call.attributes.get("args")
        if isinstance(args, list) and set(call.attributes) == {"args"} and len(call.inputs) == 2:
            sides = args[1] if len(args) == 2 and isinstance(args[1], list) else args[1:]
            if sides[0] == {"input": 1} and self._is_batch(call.inputs[1], call.inputs[0]):
                return list(sides[1:])
        raise NotALayerGraph(f"{call.op} does not keep the batch by its size")

    def _is_batch(self, size: ForwardCall, of: ForwardCall) -> bool:
        source = _sized(size)
        if source is None or id(source) not in self._names or id(of) not in self._names:
            return False
        # Only a negative dimension could be the batch's unseen, and then sizes differ.
        return source is of or not any(
            isinstance(value, int) and value < 0
            for call in self._calls
            if call.op in ("mean", "transpose")
            for value in _flat(call.attributes.values())
        )


def _op(call: ForwardCall) -> str:
    name = _OTHERS.get(call.op) or (_OWNERS.get(call.op) if call.module is not None else None)
    if name is None:
        raise NotALayerGraph(f"no layer of a graph does what {call.op} does")
    return name


def _sources(call: ForwardCall) -> list[ForwardCall]:
    if call.op != "multihead_attention":
        return call.inputs
    how = {"args": [{"input": 0}, {"input": 1}, {"input": 2}], "kwargs": {"need_weights": False}}
    if call.attributes.get("call") != how or len(set(call.inputs)) != 1:
        raise NotALayerGraph("multihead_attention is not called as (x, x, x, need_weights=False)")
    return call.inputs[:1]


def _arguments(call: ForwardCall) -> Json:
    """Return the arguments of the layer; nothing of the call may be left over."""
    op = OPS[_op(call)]
    if call.op == "transformer_encoder_layer":
        return _encoder_arguments(cast("nn.TransformerEncoderLayer", call.module))
    found = {name: value for name, value in call.attributes.items() if name in op.args}
    if isinstance(call.module, nn.MultiheadAttention):
        found["bias"] = call.module.in_proj_bias is not None
    if isinstance(call.module, Position):
        found = dict(zip(("tokens", "width"), call.module.weight.shape, strict=True))
    found = {name: _single(name, value) for name, value in found.items()}
    dims = [found[name] for name in op.axes if name in found]
    if 0 in _flat(dims):
        raise NotALayerGraph(f"{call.op} works on the batch's dimension")
    if call.module is None:
        _check_nothing_left(call, found)
    return found


def _check_nothing_left(call: ForwardCall, found: Json) -> None:
    name = _op(call)
    left = {key: value for key, value in call.attributes.items() if key not in found}
    made = OPS[name].make(**_checked(name, found)) if left else nn.Identity()
    for key, value in left.items():
        if key not in vars(made) or encode(vars(made)[key]) != value:
            raise NotALayerGraph(f"{call.op} has {key} {show(value)}, which no layer has")


def _checked(name: str, found: Json) -> Json:
    try:
        return {key: OPS[name].args[key](value) for key, value in found.items()}
    except ValueError as exc:
        raise NotALayerGraph(f"{name}: {exc}") from exc


def _encoder_arguments(layer: nn.TransformerEncoderLayer) -> Json:
    names = {functional.relu: "relu", functional.gelu: "gelu"}
    activation = names.get(layer.activation)
    if activation is None:
        raise NotALayerGraph("the activation of a transformer layer is neither relu nor gelu")
    return {
        "d_model": layer.self_attn.embed_dim,
        "nhead": layer.self_attn.num_heads,
        "dim_feedforward": layer.linear1.out_features,
        "dropout": layer.dropout.p,
        "activation": activation,
        "norm_first": layer.norm_first,
        "layer_norm_eps": layer.norm1.eps,
        "bias": layer.linear1.bias is not None,
    }


def _single(name: str, value: object) -> object:
    """Return the one number of a list of one, as layers of one dimension keep their sizes."""
    if isinstance(value, list) and len(value) == 1 and name not in ("shape", "unflattened_size"):
        return value[0]
    return value


def is_size(call: ForwardCall) -> bool:
    """Return whether the call reads the size of the batch, or the shape that has it."""
    return _sized(call) is not None or _is_shape(call)


def _is_shape(call: ForwardCall) -> bool:
    return call.op == "getattr" and call.attributes == {"args": [{"input": 0}, "shape"]}


def _sized(call: ForwardCall) -> ForwardCall | None:
    """Return the call whose result's first size this is."""
    if call.attributes != {"args": [{"input": 0}, 0]}:
        return None
    if call.op == "size":
        return call.inputs[0]
    if call.op == "getitem" and _is_shape(call.inputs[0]):
        return call.inputs[0].inputs[0]
    return None


def _flat(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value
