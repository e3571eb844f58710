"""Lets a forward read values that are known, where torch would not ask for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mmdb.graph.flow.known import Runs

_READS = frozenset((Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__index__))
_MAKES = frozenset((torch.tensor, torch.as_tensor, torch.asarray))
_TAKES = frozenset((Tensor.__getitem__, Tensor.__setitem__))


class Readable(TorchFunctionMode):
    """Lets a forward read known values as lists and arrays, and make tensors that keep theirs.

    On the meta device torch drops the numbers of a list before anything else sees them. While the
    mode is on, torch takes no fused path past the operations of nn.MultiheadAttention.
    """

    def __init__(self, runs: Runs) -> None:
        super().__init__()
        self._runs = runs

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _READS and isinstance(args[0], Tensor):
            values = self._runs.known(args[0])
            args = (args[0] if values is None else values, *args[1:])
        elif func in _TAKES:
            args = (args[0], _index(args[1]), *args[2:])
        elif func in _MAKES and kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": "cpu"}
        return func(*args, **kwargs)


def _index(index: Any) -> Any:
    """Return an index with a tensor in place of each list."""
    if isinstance(index, tuple):
        return tuple(_index(one) if isinstance(one, list) else one for one in index)
    return torch.tensor(index) if isinstance(index, list) and _is_numbers(index) else index


def _is_numbers(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_numbers, value))
    return isinstance(value, int)
