"""What a forward sees while it is followed: stand-ins for tensors, and no weights."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.fx.proxy import Proxy, TracerBase
from torch.overrides import TorchFunctionMode


class Untraceable(Exception):
    """The forward does what cannot be written down."""


class Value(Proxy):
    """Stands for a tensor that a call returns."""


class WeightValue(Value):
    """Stands for a tensor of the module; its shape and dtype are known."""

    def __init__(self, node: Any, tracer: TracerBase, twin: Tensor) -> None:
        super().__init__(node, tracer)
        self._twin = twin

    @property
    def shape(self) -> torch.Size:
        """As of a tensor."""
        return self._twin.shape

    @property
    def ndim(self) -> int:
        """As of a tensor."""
        return self._twin.ndim

    @property
    def dtype(self) -> torch.dtype:
        """As of a tensor."""
        return self._twin.dtype

    @property
    def requires_grad(self) -> bool:
        """As of a tensor."""
        return self._twin.requires_grad

    def size(self, dim: int | None = None) -> torch.Size | int:
        """As of a tensor."""
        return self._twin.size() if dim is None else self._twin.size(dim)

    def dim(self) -> int:
        """As of a tensor."""
        return self._twin.dim()

    def numel(self) -> int:
        """As of a tensor."""
        return self._twin.numel()


def _in_place(function: Callable[..., object]) -> Callable[[Proxy, object], Proxy]:
    def change(self: Proxy, other: object) -> Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return change


# torch.fx takes `x += y` for `x = x + y`, which hides that other names of x change too.
for _name in ("iadd", "isub", "imul", "itruediv", "ipow"):
    setattr(Value, f"__{_name}__", _in_place(getattr(operator, _name)))


class _NothingReal(TorchFunctionMode):
    """Lets torch work on stand-ins and on the meta device only."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if any(issubclass(kind, Proxy) for kind in types):
            return func(*args, **kwargs)
        if kwargs.get("device") is not None:
            kwargs["device"] = "meta"
        if getattr(func, "__name__", "") != "__get__" and any(
            isinstance(item, Tensor) and not item.is_meta for item in (*args, *kwargs.values())
        ):
            raise Untraceable("the forward works on a tensor that the module does not own")
        return func(*args, **kwargs)


@contextmanager
def nothing_real() -> Iterator[None]:
    """Let no real tensor be made, read or changed by this thread."""
    with torch.enable_grad(), torch.device("meta"), _NothingReal():
        yield


@contextmanager
def python_generator_kept() -> Iterator[Callable[[], bool]]:
    """Put Python's generator back at the end; yields whether it has been drawn from."""
    state = random.getstate()

    def was_drawn_from() -> bool:
        return random.getstate() != state

    try:
        yield was_drawn_from
    finally:
        if was_drawn_from():
            random.setstate(state)


def torch_modes() -> tuple[bool, ...]:
    """Return the modes that change what a call computes, or whether it has a gradient."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch._C._is_any_autocast_enabled(),
    )


def gradient_codes() -> set[object]:
    """Return the code of the forward of every autograd.Function there is."""
    found: set[object] = set()
    waiting: list[type[object]] = [torch.autograd.Function]
    while waiting:
        subclasses: list[type[object]] = type.__subclasses__(waiting.pop())
        for cls in subclasses:
            waiting.append(cls)
            function = vars(cls).get("forward")
            code = getattr(getattr(function, "__func__", function), "__code__", None)
            if code is not None:
                found.add(code)
    return found
