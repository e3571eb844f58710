"""What operations on the meta device give, remembered: layers of one size ask again and again.

Most of torch's meta kernels are written in Python and take some 0.1 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from mmdb.graph.flow.schemas import Schema
from mmdb.graph.flow.size_rules import size_rule

_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.memory_format)


class _NotPlain(Exception):
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
        except _NotPlain:
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
    raise _NotPlain


def _maker(result: Any) -> Callable[[], Any]:
    """Return what makes a result like this one."""
    if isinstance(result, Tensor):
        size, strides, dtype = tuple(result.shape), result.stride(), result.dtype
        return lambda: torch.empty_strided(size, strides, dtype=dtype, device="meta")
    if isinstance(result, tuple | list):
        makers, kind = [_maker(one) for one in result], type(result)
        return lambda: kind(make() for make in makers)
    return lambda: result
