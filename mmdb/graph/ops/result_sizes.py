"""Sizes of results of operations on the meta device, by rules or remembered.

torch's own meta kernels of these are written in Python: they take up to a millisecond, and some
import its compiler, which takes a second. A rule returns None where it does not apply; torch's
kernel is then asked, which also knows what is wrong.

Most of torch's meta kernels are written in Python and take some 0.1 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._ops import OpOverload

from mmdb.graph.ops.canonical import Schema

_Rule: TypeAlias = Callable[..., Any]


def size_rule(schema_name: str) -> _Rule | None:
    """Return the rule of an operation; it takes the operation's arguments, on the meta device."""
    return _RULES.get(schema_name)


def _empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty(tuple(shape), dtype=dtype, device="meta")


def _like(x: Tensor, *_: object, **__: object) -> Tensor | None:
    return torch.ops.aten.clone.default(x) if x.is_floating_point() else None


def _itself(x: Tensor, *_: object, **__: object) -> Tensor | None:
    return x if x.is_floating_point() else None


def _binary(x: Tensor, y: object, *_: object, **__: object) -> Tensor | None:
    """One tensor and a number, or two tensors of one size, layout and dtype."""
    if isinstance(y, Tensor):
        same = x.shape == y.shape and x.stride() == y.stride() and x.dtype == y.dtype
        return _like(x) if same else None
    return _like(x) if isinstance(y, int | float) else None


def _normed(x: Tensor, *_: object, **__: object) -> Tensor | None:
    return _empty(x.shape, x.dtype) if x.is_floating_point() else None


def _layer_norm(
    x: Tensor, normalized_shape: Sequence[int], *_: object, **__: object
) -> Tensor | None:
    n = len(normalized_shape)
    return _normed(x) if n and tuple(x.shape[-n:]) == tuple(normalized_shape) else None


def _batch_norm(x: Tensor, weight: Tensor | None = None, *_: object, **__: object) -> Tensor | None:
    fits = x.ndim > 1 and (weight is None or tuple(weight.shape) == (x.shape[1],))
    return _like(x) if fits else None


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor | None:
    space = x.ndim - 2
    fits = (
        not transposed
        and space > 0
        and len(stride) == len(padding) == len(dilation) == space
        and weight.ndim == x.ndim
        and x.shape[1] == weight.shape[1] * groups
        and weight.shape[0] % groups == 0
        and x.is_contiguous()
        and x.dtype == weight.dtype
    )
    if not fits:
        return None
    sides = []
    for i in range(space):
        reach = dilation[i] * (weight.shape[i + 2] - 1) + 1
        sides.append((x.shape[i + 2] + 2 * padding[i] - reach) // stride[i] + 1)
    return _empty((x.shape[0], weight.shape[0], *sides), x.dtype) if min(sides) > 0 else None


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    fits = (
        x.ndim > 0
        and weight.ndim == 2
        and x.shape[-1] == weight.shape[1]
        and x.dtype == weight.dtype
        and (bias is None or tuple(bias.shape) == (weight.shape[0],))
    )
    return _empty((*x.shape[:-1], weight.shape[0]), x.dtype) if fits else None


def _addmm(bias: Tensor, x: Tensor, weight: Tensor, **_: object) -> Tensor | None:
    fits = (
        x.ndim == weight.ndim == 2
        and x.shape[1] == weight.shape[0]
        and bias.dtype == x.dtype == weight.dtype
        and tuple(bias.shape) in ((weight.shape[1],), (x.shape[0], weight.shape[1]))
    )
    return _empty((x.shape[0], weight.shape[1]), x.dtype) if fits else None


def _attention(
    query: Tensor, key: Tensor, value: Tensor, *args: object, **kwargs: object
) -> Tensor | None:
    """As torch's fused kernels lay it out: heads are inside of the tokens."""
    fits = (
        query.ndim == key.ndim == value.ndim == 4
        and query.dtype == key.dtype == value.dtype
        and query.shape[-1] == key.shape[-1]
        and key.shape[:-1] == value.shape[:-1]
        and query.shape[0] == key.shape[0]
        and (query.shape[1] == key.shape[1] or bool(kwargs.get("enable_gqa")))
    )
    if not fits:
        return None
    b, h, t, _ = query.shape
    return _empty((b, t, h, value.shape[-1]), query.dtype).transpose(1, 2)


def _reduced(
    x: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor | None:
    """As torch does: no dimensions are all of them, and the result is contiguous."""
    given = [dim] if isinstance(dim, int) else dim or range(x.ndim)
    gone = {d % x.ndim for d in given if -x.ndim <= d < x.ndim}
    if len(gone) < len(given) or not _stays_floating(x, dtype):
        return None
    sides = [1 if d in gone else n for d, n in enumerate(x.shape) if keepdim or d not in gone]
    return _empty(sides, dtype or x.dtype)


def _softmax(x: Tensor, dim: int, dtype: torch.dtype | bool | None = None) -> Tensor | None:
    fits = -x.ndim <= dim < x.ndim and _stays_floating(x, None) and not dtype
    return _empty(x.shape, x.dtype) if fits else None


def _stays_floating(x: Tensor, dtype: torch.dtype | None) -> bool:
    return x.is_floating_point() and (dtype is None or dtype.is_floating_point)


def _grouped_mm(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, dtype: Any = None
) -> Tensor:
    """torch's own kernel takes bfloat16 only."""
    shape: tuple[int, ...] = (a.shape[-2], b.shape[-1])
    if a.ndim == b.ndim == 2:
        shape = (0 if offs is None else offs.shape[0], *shape)
    elif a.ndim == b.ndim == 3:
        shape = (a.shape[0], *shape)
    return _empty(shape, dtype or a.dtype)


def _names(text: str) -> list[str]:
    return [f"aten::{name}" for name in text.split()]


_ELEMENTWISE = """
    relu gelu silu mish hardtanh hardswish hardsigmoid elu leaky_relu sigmoid tanh exp log sqrt
    rsqrt neg abs softplus cos sin reciprocal erf square log1p expm1
"""
_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(_names(_ELEMENTWISE), _like),
    **dict.fromkeys((f"{name}_" for name in _names(_ELEMENTWISE)), _itself),
    **dict.fromkeys(_names("add sub mul div"), _binary),
    **dict.fromkeys(_names("mean sum"), _reduced),
    **dict.fromkeys(_names("softmax log_softmax _softmax _log_softmax"), _softmax),
    "aten::batch_norm": _batch_norm,
    "aten::layer_norm": _layer_norm,
    "aten::group_norm": _normed,
    "aten::convolution": _convolution,
    "aten::linear": _linear,
    "aten::addmm": _addmm,
    "aten::scaled_dot_product_attention": _attention,
    "aten::_grouped_mm": _grouped_mm,
}


_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.memory_format)


class _NoKey(Exception):
    """An argument that is no part of a key."""


class ResultSizes:
    """Sizes, strides and dtypes of results, by those of the arguments."""

    def __init__(self) -> None:
        self._makers: dict[tuple[object, ...], Callable[[], Any] | None] = {}  # None: the first

    def run(
        self, func: OpOverload, schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return what the operation gives for tensors on the meta device."""
        if not schema.has_new_results:
            return func(*args, **kwargs)
        try:
            key = (func, _key(args), tuple((name, _key(kwargs[name])) for name in kwargs))
        except _NoKey:
            return func(*args, **kwargs)
        if key in self._makers:
            make = self._makers[key]
            return args[0] if make is None else make()
        rule = size_rule(schema.name)
        result = None if rule is None else rule(*args, **kwargs)
        if result is None:
            result = func(*args, **kwargs)
        self._makers[key] = None if args and result is args[0] else _maker(result)
        return result


def _key(value: object) -> object:
    if isinstance(value, Tensor):
        return tuple(value.shape), value.stride(), value.dtype
    if isinstance(value, tuple | list):
        return tuple(map(_key, value))
    if isinstance(value, _PLAIN):
        return type(value), value  # 1, 1.0 and True are not the same argument
    raise _NoKey


def _maker(result: Any) -> Callable[[], Any]:
    """Return what makes a result like this one."""
    if isinstance(result, Tensor):
        size, strides, dtype = tuple(result.shape), result.stride(), result.dtype
        return lambda: torch.empty_strided(size, strides, dtype=dtype, device="meta")
    if isinstance(result, tuple | list):
        makers, kind = [_maker(one) for one in result], type(result)
        return lambda: kind(make() for make in makers)
    return lambda: result
