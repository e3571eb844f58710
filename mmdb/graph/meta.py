"""Modules without memory: what is built here has shapes and dtypes, and no numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

#: Methods that fill a tensor with draws, for which torch would load its compiler's symbols there.
_FILLING = {torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.bernoulli_}


@contextmanager
def on_meta() -> Iterator[None]:
    """Let tensors be made on the meta device, and initial values not be drawn."""
    with torch.device("meta"), _Undrawn():
        yield


class _Undrawn(TorchFunctionMode):
    """Leaves tensors as they are where a module would fill them: half a second less, at first."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func in _FILLING or getattr(func, "__module__", None) == "torch.nn.init":
            tensor = args[0] if args else given.get("tensor")
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                return tensor
        return func(*args, **given)
