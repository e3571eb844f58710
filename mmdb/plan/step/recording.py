"""The flow of a module while it is trained, and what its optimizer's step does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.graph.ops.capture import Forward, capture
from mmdb.graph.ops.capture_mode import DispatchMode, tensors_in
from mmdb.graph.ops.known_values import Inputs
from mmdb.graph.ops.op_graph import CannotTrace, OpGraph, TooManyOperations
from mmdb.graph.ops.tensor_contents import empty_twin, single
from mmdb.graph.spec.factory_call import Dtypes, Shape

#: A dropout that is on is recorded as the drawing of its result.
_DRAWN: Mapping[object, Callable[..., Any]] = {
    torch.ops.aten.dropout.default: torch.ops.aten.bernoulli.p,
    torch.ops.aten.dropout_.default: torch.ops.aten.bernoulli_.float,
    torch.ops.aten.feature_dropout.default: torch.ops.aten.bernoulli.p,
    torch.ops.aten.feature_dropout_.default: torch.ops.aten.bernoulli_.float,
    torch.ops.aten.alpha_dropout.default: torch.ops.aten.bernoulli.p,
}
_CONTIGUOUS = torch.ops.aten.contiguous.default
_COPIES = (_CONTIGUOUS, torch.ops.aten.clone.default)


def record_training(module: nn.Module, inputs: Inputs) -> OpGraph:
    """Return the flow of a forward in training mode; nothing of the module changes.

    In it a dropout is a "bernoulli", and a copy a "constant_pad_nd" by nothing. A module that fails
    so without values is recorded as it is evaluated.

    Raises:
        CannotTrace: as `record`.
    """
    try:
        forward = _Training(module, lambda one: empty_twin(one, single(one.dtype)))
        return forward.follow(inputs)
    except TooManyOperations:
        raise
    except CannotTrace:
        return capture(module, inputs)


def batch_of(shape: Shape, dtypes: Dtypes = "float32") -> Callable[[int], Inputs]:
    """Return what makes the inputs of a forward over a number of rows; they hold nothing.

    Args:
        shape: of one row, or of each input by name.
        dtypes: of the input, or of each by name; of integers the values are ones.
    """

    def one(size: tuple[int, ...], dtype: str, rows: int) -> torch.Tensor:
        kind = getattr(torch, dtype)
        if kind.is_floating_point:
            return torch.empty((rows, *size), dtype=kind, device="meta")
        return torch.ones((rows, *size), dtype=kind)

    def inputs(rows: int) -> Inputs:
        if not isinstance(shape, dict):
            return Inputs((one(shape, str(dtypes), rows),))
        kinds = dict.fromkeys(shape, dtypes) if isinstance(dtypes, str) else dtypes
        return Inputs((), {name: one(size, kinds[name], rows) for name, size in shape.items()})

    return inputs


class _Training(Forward):
    """A forward of a copy that is in training mode."""

    def __init__(self, module: nn.Module, twin: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__(module, twin)
        self._root = module

    def enter(
        self, module: nn.Module, copy: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        """As `Reports`."""
        if module is not self._root:
            copy.training = True
            return super().enter(module, copy, args, kwargs)
        for part in copy.modules():
            part.training = True
        with _Drawing():
            return super().enter(module, copy, args, kwargs)


class _Drawing(DispatchMode):
    """Lets a dropout that is on be seen as an operation."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _COPIES and isinstance(args[0], torch.Tensor):
            laid_out = func(*args, **kwargs)
            if func is not _CONTIGUOUS or not args[0].is_contiguous():
                # Recorded, where a copy alone is left out of a flow.
                return torch.ops.aten.constant_pad_nd.default(laid_out, (0, 0))
            return laid_out
        drawn = _DRAWN.get(func)
        if drawn is not None:
            rate = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            is_on = args[2] if len(args) > 2 else kwargs.get("train", True)
            return drawn(args[0], rate) if is_on and rate > 0 else args[0]
        return func(*args, **kwargs)


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
    state = list(tensors_in(optimizer.state.values()))
    return Update(
        flops=counting.flops,
        read=counting.read,
        written=counting.written,
        calls=counting.calls,
        state_bytes=sum(_bytes(one) for one in state),
        workspace=2 * max(_bytes(one) for one in parameters),
    )


class _Counting(DispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.forget()

    def forget(self) -> None:
        """Begin again."""
        self.flops = self.read = self.written = self.calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = _run(func, args, kwargs or {})
        results = list(tensors_in([result]))
        self.calls += 1
        if not any(one.is_meta for one in results) or func.is_view:
            return result
        self.flops += sum(one.numel() for one in results)
        self.written += sum(map(_bytes, results))
        self.read += sum(map(_bytes, tensors_in([*args, *(kwargs or {}).values()])))
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
        others = [one for one in tensors_in(args) if one.shape != first.shape and one.ndim]
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


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
