"""The vocabulary of layer graphs: the ops they may name, and placeholders in arguments.

The table is the only way from a string to a torch layer. Placeholders are "$outputs",
"$width", "$width * 2", "$width // 2".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from mmdb.arguments import is_whole
from mmdb.errors import InvalidLayerGraph
from mmdb.graph import factories
from mmdb.graph.factories import Kind, Position, count, dim, flag, pair, positive, probability, size
from mmdb.messages import show

Shape = tuple[int, ...]  # with the batch: (n, ...)


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation: how it is made, and what its arguments and inputs must be.

    Args:
        make: called with the checked arguments by keyword.
        args: every argument that may be given, with its kind.
        required: the arguments that must be given.
        inferred: arguments read off the input's shape when they are left out, and
            compared with it when they are not.
        axes: the arguments that name dimensions; none may name the batch.
        ndims: allowed numbers of dimensions of the input, the batch included; () is any.
        max_inputs: 1, or how many tensors it joins (then at least 2).
    """

    make: Callable[..., nn.Module]
    args: Mapping[str, Kind] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    inferred: Mapping[str, Callable[[Shape], int]] = field(default_factory=dict)
    axes: tuple[str, ...] = ()
    ndims: tuple[int, ...] = ()
    max_inputs: int = 1


# -- operations that torch.nn has no class for --------------------------------


class Add(nn.Module):
    """Sums its inputs, broadcasting sizes of 1."""

    def forward(self, *inputs: Tensor) -> Tensor:
        total = inputs[0]
        for x in inputs[1:]:
            total = total + x
        return total


class Multiply(nn.Module):
    """Multiplies its inputs, broadcasting sizes of 1."""

    def forward(self, *inputs: Tensor) -> Tensor:
        product = inputs[0]
        for x in inputs[1:]:
            product = product * x
        return product


class Concat(nn.Module):
    """Joins its inputs along `dim`."""

    def __init__(self, dim: int = 1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.cat(inputs, dim=self.dim)


class Reshape(nn.Module):
    """Gives each row the shape `shape`: (n, ...) -> (n, *shape)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], *self.shape)


class Mean(nn.Module):
    """Averages over the dimensions `dim`."""

    def __init__(self, dim: tuple[int, ...], keepdim: bool = False) -> None:
        super().__init__()
        self.dim, self.keepdim = dim, keepdim

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=self.dim, keepdim=self.keepdim)


class Transpose(nn.Module):
    """Exchanges two dimensions."""

    def __init__(self, dim0: int = 1, dim1: int = 2) -> None:
        super().__init__()
        self.dim0, self.dim1 = dim0, dim1

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(self.dim0, self.dim1)


class Embedding(nn.Embedding):
    """nn.Embedding that reads its indices from a float32 input."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.long())


class SelfAttention(nn.MultiheadAttention):
    """nn.MultiheadAttention with its input as query, key and value: (n, T, D) -> (n, T, D)."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        attended, _ = super().forward(x, x, x, need_weights=False)
        return attended


def _encoder_layer(**args: object) -> nn.Module:
    return nn.TransformerEncoderLayer(batch_first=True, **args)  # type: ignore[arg-type]


def _attention(**args: object) -> nn.Module:
    return SelfAttention(batch_first=True, **args)


def _softmax(dim: int = -1) -> nn.Module:
    return nn.Softmax(dim)


# -- the table ----------------------------------------------------------------


def _second(shape: Shape) -> int:
    return shape[1]


def _last(shape: Shape) -> int:
    return shape[-1]


def _convolution(make: Callable[..., nn.Module], per_side: Callable[[Kind], Kind], n: int) -> Op:
    padding = factories.either(per_side(count), factories.one_of("same", "valid"))
    args: dict[str, Kind] = {"in_channels": size, "out_channels": size, "padding": padding}
    args |= dict.fromkeys(("kernel_size", "stride", "dilation"), per_side(size))
    args |= {"groups": size, "bias": flag}
    required = ("out_channels", "kernel_size")
    return Op(
        make=make, args=args, required=required, inferred={"in_channels": _second}, ndims=(n,)
    )


def _pooling(make: Callable[..., nn.Module], per_side: Callable[[Kind], Kind], n: int) -> Op:
    args = {"kernel_size": per_side(size), "stride": per_side(size), "padding": per_side(count)}
    return Op(make=make, args=args | {"ceil_mode": flag}, required=("kernel_size",), ndims=(n,))


def _adaptive(make: Callable[..., nn.Module], per_side: Callable[[Kind], Kind], n: int) -> Op:
    args = {"output_size": per_side(size)}
    return Op(make=make, args=args, required=("output_size",), ndims=(n,))


def _batch_norm(make: Callable[..., nn.Module], *ndims: int) -> Op:
    args = {"num_features": size, "eps": positive, "momentum": probability, "affine": flag}
    return Op(make=make, args=args, inferred={"num_features": _second}, ndims=ndims)


def _one(kind: Kind) -> Kind:
    return kind


_ATTENTION: dict[str, Kind] = {"dropout": probability, "bias": flag}
_FEED_FORWARD: dict[str, Kind] = {
    "d_model": size,
    "nhead": size,
    "dim_feedforward": size,
    "activation": factories.one_of("relu", "gelu"),
    "norm_first": flag,
    "layer_norm_eps": positive,
}

OPS: dict[str, Op] = {
    "Linear": Op(
        make=nn.Linear,
        args={"in_features": size, "out_features": size, "bias": flag},
        required=("out_features",),
        inferred={"in_features": _last},
    ),
    "Conv1d": _convolution(nn.Conv1d, _one, 3),
    "Conv2d": _convolution(nn.Conv2d, pair, 4),
    "BatchNorm1d": _batch_norm(nn.BatchNorm1d, 2, 3),
    "BatchNorm2d": _batch_norm(nn.BatchNorm2d, 4),
    "LayerNorm": Op(
        make=nn.LayerNorm,
        args={"normalized_shape": size, "eps": positive, "elementwise_affine": flag, "bias": flag},
        inferred={"normalized_shape": _last},
    ),
    "GroupNorm": Op(
        make=nn.GroupNorm,
        args={"num_groups": size, "num_channels": size, "eps": positive, "affine": flag},
        required=("num_groups",),
        inferred={"num_channels": _second},
        ndims=(2, 3, 4),
    ),
    "MaxPool1d": _pooling(nn.MaxPool1d, _one, 3),
    "MaxPool2d": _pooling(nn.MaxPool2d, pair, 4),
    "AvgPool1d": _pooling(nn.AvgPool1d, _one, 3),
    "AvgPool2d": _pooling(nn.AvgPool2d, pair, 4),
    "AdaptiveAvgPool1d": _adaptive(nn.AdaptiveAvgPool1d, _one, 3),
    "AdaptiveAvgPool2d": _adaptive(nn.AdaptiveAvgPool2d, pair, 4),
    "Embedding": Op(
        make=Embedding,
        args={"num_embeddings": size, "embedding_dim": size},
        required=("num_embeddings", "embedding_dim"),
    ),
    "Position": Op(
        make=Position,
        args={"tokens": size, "width": size},
        inferred={"tokens": _second, "width": _last},
        ndims=(3,),
    ),
    "MultiheadAttention": Op(
        make=_attention,
        args={"embed_dim": size, "num_heads": size, **_ATTENTION},
        required=("num_heads",),
        inferred={"embed_dim": _last},
        ndims=(3,),
    ),
    "TransformerEncoderLayer": Op(
        make=_encoder_layer,
        args={**_FEED_FORWARD, **_ATTENTION},
        required=("nhead",),
        inferred={"d_model": _last},
        ndims=(3,),
    ),
    "ReLU": Op(make=nn.ReLU),
    "ReLU6": Op(make=nn.ReLU6),
    "Hardswish": Op(make=nn.Hardswish),
    "Hardsigmoid": Op(make=nn.Hardsigmoid),
    "ELU": Op(make=nn.ELU, args={"alpha": positive}),
    "GELU": Op(make=nn.GELU, args={"approximate": factories.one_of("none", "tanh")}),
    "SiLU": Op(make=nn.SiLU),
    "Tanh": Op(make=nn.Tanh),
    "Sigmoid": Op(make=nn.Sigmoid),
    "LeakyReLU": Op(make=nn.LeakyReLU, args={"negative_slope": factories.real(0.0, 1e30)}),
    "Softmax": Op(make=_softmax, args={"dim": dim}, axes=("dim",)),
    "Dropout": Op(make=nn.Dropout, args={"p": probability}),
    "Dropout2d": Op(make=nn.Dropout2d, args={"p": probability}, ndims=(4,)),
    "Identity": Op(make=nn.Identity),
    "Flatten": Op(
        make=nn.Flatten, args={"start_dim": dim, "end_dim": dim}, axes=("start_dim", "end_dim")
    ),
    "flatten": Op(make=nn.Flatten),
    "Unflatten": Op(
        make=nn.Unflatten,
        args={"dim": dim, "unflattened_size": factories.shape},
        required=("dim", "unflattened_size"),
        axes=("dim",),
    ),
    "reshape": Op(make=Reshape, args={"shape": factories.shape}, required=("shape",)),
    "transpose": Op(make=Transpose, args={"dim0": dim, "dim1": dim}, axes=("dim0", "dim1")),
    "mean": Op(
        make=Mean,
        args={"dim": factories.several(dim), "keepdim": flag},
        required=("dim",),
        axes=("dim",),
    ),
    "add": Op(make=Add, max_inputs=1000),
    "mul": Op(make=Multiply, max_inputs=1000),
    "concat": Op(make=Concat, args={"dim": dim}, axes=("dim",), max_inputs=1000),
}


_PLACEHOLDER = re.compile(
    r"\$([A-Za-z_][A-Za-z0-9_]{0,99})(?: ?(\*|//) ?([1-9][0-9]{0,5}))?", re.ASCII
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)


class _Layer(Protocol):
    @property
    def op(self) -> str: ...
    @property
    def args(self) -> Mapping[str, object]: ...
    def error(self, reason: str, hint: str = "") -> InvalidLayerGraph: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholders:
    """The values that stand for "$name", and which of them have been used."""

    built_in: Mapping[str, object]
    given: Mapping[str, object]
    used: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        defaults: object,
        arguments: Mapping[str, object],
        input_shape: tuple[int, ...],
        outputs: int,
    ) -> Placeholders:
        """Return the placeholders of a graph; `arguments` override `defaults`."""
        if not isinstance(defaults, Mapping):
            raise InvalidLayerGraph(f"'defaults' must be an object, not {show(defaults)}")
        built_in = {
            "outputs": outputs,
            "features": math.prod(input_shape),
            "channels": input_shape[0],
        }
        for name in (*defaults, *arguments):
            if not isinstance(name, str) or not _NAME.fullmatch(name) or name in built_in:
                raise InvalidLayerGraph(f"an argument cannot be named {show(name)}")
        return cls(built_in=built_in, given={**defaults, **arguments})

    def fill(self, layer: _Layer) -> dict[str, object]:
        """Return the layer's arguments with values in place of placeholders, each of its kind."""
        kinds = OPS[layer.op].args
        filled = {}
        for name, raw in layer.args.items():
            if name not in kinds:
                allowed = ", ".join(kinds) or "none"
                raise layer.error(f"unknown argument {show(name)}", f"Its arguments: {allowed}.")
            value = self._value(layer, raw)
            if isinstance(value, list | tuple):
                value = [self._value(layer, item) for item in value]
            try:
                filled[name] = kinds[name](value)
            except ValueError as exc:
                raise layer.error(f"{name} {exc}, not {show(value)}") from exc
        for name in OPS[layer.op].required:
            if name not in filled:
                raise layer.error(f"argument {name!r} is missing")
        return filled

    def check_all_used(self) -> None:
        """Raise InvalidLayerGraph if a given argument stands in no layer."""
        for name in self.given:
            if name not in self.used:
                raise InvalidLayerGraph(
                    f"argument {name!r} is used by no layer",
                    hint=f'Write "${name}" where its value belongs, or leave the argument out.',
                )

    def _value(self, layer: _Layer, raw: object) -> object:
        if not isinstance(raw, str) or not raw.startswith("$"):
            return raw
        match = _PLACEHOLDER.fullmatch(raw)
        if match is None:
            raise layer.error(
                f"cannot read the placeholder {show(raw)}",
                'Write "$name", "$name * 2" or "$name // 2".',
            )
        name, operator, number = match.groups()
        if name not in self.built_in and name not in self.given:
            raise layer.error(
                f"nothing gives a value to ${name}",
                'Give it in the graph\'s "defaults", or as a dimension of the search space.',
            )
        self.used.add(name)
        value = self.built_in.get(name, self.given.get(name))
        return value if operator is None else _scaled(layer, raw, value, operator, int(number))


def _scaled(layer: _Layer, raw: str, value: object, operator: str, by: int) -> object:
    if not is_whole(value):
        raise layer.error(f"{show(raw)} needs a whole number, not {show(value)}")
    return value * by if operator == "*" else value // by
