"""What an optimizer's step does: found by a step over parameters that hold nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

#: Makes an optimizer of parameters.
MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One step of an optimizer.

    Attributes:
        read, written: bytes.
        flops: one for each element that an operation writes.
        calls: kernels.
        state_bytes: what the optimizer holds from its first step on.
        workspace: bytes of the largest results that are no parameter, gradient or state.
    """

    flops: int = 0
    read: int = 0
    written: int = 0
    calls: int = 0
    state_bytes: int = 0
    workspace: int = 0


def update_of(shapes: Sequence[tuple[int, ...]], make: MakeOptimizer | None) -> Update:
    """Return what a step over float32 parameters of these shapes does; nothing without `make`.

    The first step makes the state, the second is counted.
    """
    if make is None or not shapes:
        return Update()
    parameters = [nn.Parameter(torch.empty(shape, device="meta")) for shape in shapes]
    optimizer = make(parameters)
    for parameter in parameters:
        parameter.grad = torch.empty(parameter.shape, device="meta")
    step = getattr(type(optimizer).step, "__wrapped__", type(optimizer).step)
    counting = _Counting()
    with torch.no_grad(), counting:
        step(optimizer)
        counting.forget()
        step(optimizer)
    state = list(_tensors(optimizer.state.values()))
    return Update(
        flops=counting.flops,
        read=counting.read,
        written=counting.written,
        calls=counting.calls,
        state_bytes=sum(_bytes(one) for one in state),
        workspace=2 * max(_bytes(one) for one in parameters),
    )


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.forget()

    def forget(self) -> None:
        """Begin again."""
        self.flops = self.read = self.written = self.calls = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Let torch not import its compiler for the mode: that takes a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = _run(func, args, kwargs or {})
        results = list(_tensors([result]))
        self.calls += 1
        if not any(one.is_meta for one in results) or func.is_view:
            return result
        self.flops += sum(one.numel() for one in results)
        self.written += sum(map(_bytes, results))
        self.read += sum(map(_bytes, _tensors([*args, *(kwargs or {}).values()])))
        return result


def _run(func: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """Return what an operation gives.

    Many meta kernels import torch's compiler, which takes seconds: where the result is as large as
    the first argument, none is asked.
    """
    first = args[0] if args else None
    if isinstance(first, Tensor) and first.is_meta:
        if func is torch.ops.aten._local_scalar_dense.default:
            return 1.0
        if func._schema.name.endswith("_"):
            return first
        others = [one for one in _tensors(args) if one.shape != first.shape and one.ndim]
        if func._schema.name in _ELEMENTWISE and not others:
            return torch.empty(first.shape, dtype=first.dtype, device="meta")
    return func(*args, **kwargs)


_ELEMENTWISE = frozenset(
    f"aten::{name}"
    for name in (
        "add", "sub", "mul", "div", "sqrt", "neg", "sign", "abs", "maximum", "pow", "rsub",
        "reciprocal", "rsqrt", "square", "clamp", "exp", "addcmul", "addcdiv", "lerp", "eq", "ne",
        "zeros_like", "full_like", "where",
    )
)  # fmt: skip


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
