"""Whether two modules compute the same, found by running both in float64."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from mmdb.graph.ops.capture import results_of
from mmdb.graph.ops.capture_mode import DispatchMode
from mmdb.graph.ops.known_values import Inputs, map_tensors
from mmdb.graph.ops.op_graph import INPUT, OpGraph, Value
from mmdb.graph.trace.stand_ins import python_generator_kept
from mmdb.graph.transfer import op_kinds

#: Of the root mean square of an output: float64 rounds some thousand times finer.
_TOLERANCE: Final = 1e-9
#: Rows of the two batches; more in the second where that is cheap, so that a unit is seen that few
#: rows wake.
_ROWS, _MORE_ROWS, _MOST_ROWS = 3, 5, 129
_CHEAP: Final = 1 << 26  # of rows' elements times parameters
#: How far the inputs of the two batches reach.
_SCALES: Final = (8.0, 1.0)
_SEED: Final = 20230417
_LOOKUPS: Final = ("embedding", "embedding_bag", "index", "index_select")
_KEEPING: Final = op_kinds.REARRANGING | op_kinds.CUTTING | {"_to_copy"}
#: What a forward may raise that is the user's code.
_FAILURES: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip


def difference(
    child: nn.Module,
    parent: nn.Module,
    tensors: Mapping[str, Tensor],
    inputs: Inputs,
    flows: tuple[OpGraph, OpGraph],
) -> str | None:
    """Return why the two modules do not compute the same; None if they do.

    Copies of both are evaluated in float64 on the same random inputs of two batch sizes, or of the
    given size where the child takes no other. Neither module nor any generator changes.

    Args:
        tensors: the child's, in place of its own.
        inputs: what both forwards take; only shapes and dtypes of floats matter.
        flows: of child and parent, which tell what integers they take.
    """
    limits = [_least(pair) for pair in zip(*map(_limits, flows), strict=False)]
    generator = torch.Generator().manual_seed(_SEED)
    try:
        one, other = _in_double(child, tensors), _in_double(parent, {})
        for rows, scale in zip((_ROWS, _rows(one, inputs)), _SCALES, strict=True):
            drawn = _drawn(inputs.with_batch(rows), scale, limits, generator)
            try:
                own = _run(one, drawn)
            except _FAILURES:
                drawn = _drawn(inputs, scale, limits, generator)
                own = _run(one, drawn)
            reason = _compared(own, _run(other, drawn))
            if reason is not None:
                return reason
    except _FAILURES as error:
        return f"cannot be run in float64: {type(error).__name__}: {error}"
    return None


class _Random(RuntimeError):
    """A forward draws random numbers."""


class _Double(DispatchMode):
    """Computes in float64 whatever the forward makes, or casts to another kind of float."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = dict(kwargs or {})
        if isinstance(given.get("dtype"), torch.dtype):
            given["dtype"] = _wide(given["dtype"])
        result = func(*args, **given)
        return result if func._schema.is_mutable else map_tensors(result, _widened)


def _in_double(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy that evaluates in float64, some of its tensors replaced."""
    memo: dict[int, Any] = {}
    named = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    for path, own in named:
        twin = _widened(tensors[path]) if path in tensors else _copied(own)
        is_parameter = isinstance(own, nn.Parameter)
        memo[id(own)] = nn.Parameter(twin, requires_grad=False) if is_parameter else twin
    for part in module.modules():
        for held in vars(part).values():
            if isinstance(held, Tensor):
                memo.setdefault(id(held), _copied(held))
    return copy.deepcopy(module, memo).eval()


def _run(module: nn.Module, inputs: Inputs) -> list[Tensor]:
    with torch.random.fork_rng(devices=[]), python_generator_kept() as was_drawn_from:
        before = torch.get_rng_state()
        with torch.no_grad(), _Double():
            result = module(*inputs.args, **inputs.kwargs)
        if was_drawn_from() or not torch.equal(before, torch.get_rng_state()):
            raise _Random("the forward draws random numbers")
    return list(results_of(result))


def _compared(own: list[Tensor], its: list[Tensor]) -> str | None:
    if [one.shape for one in own] != [one.shape for one in its]:
        return "its outputs have other shapes than the parent's"
    for one, other in zip(own, its, strict=True):
        a, b = _widened(one).cpu(), _widened(other).cpu()
        if not (a.is_floating_point() or a.is_complex()):
            if not torch.equal(a, b):
                return "an output is another one than the parent's"
            continue
        known = torch.isfinite(b)
        if b.numel() and not known.any():
            return "an output of the parent is not finite"
        if not torch.equal(known, torch.isfinite(a)):
            return "an output is not finite where the parent's is"
        scale = b[known].abs().square().mean().sqrt()
        error = (a[known] - b[known]).abs().max() if b.numel() else scale
        if b.numel() and float(error) > _TOLERANCE * float(scale):
            share = float(error / scale) if scale > 0 else float(error)
            return f"an output differs from the parent's by {share:.1e}"
    return None


# -- inputs ---------------------------------------------------------------------------


def _rows(module: nn.Module, inputs: Inputs) -> int:
    """Return how many rows the second batch has."""
    elements = sum(one.numel() for one in inputs.tensors()) // max(inputs.rows, 1)
    work = elements * sum(one.numel() for one in module.parameters())
    return max(_MORE_ROWS, min(_MOST_ROWS, _CHEAP // max(work, 1)))


def _drawn(
    inputs: Inputs, scale: float, limits: list[int | None], generator: torch.Generator
) -> Inputs:
    """Return random inputs of the same shapes."""
    waiting: Iterator[int | None] = iter(limits)
    return inputs.changed(lambda one: _draw(one, scale, next(waiting, None), generator))


def _draw(like: Tensor, scale: float, limit: int | None, generator: torch.Generator) -> Tensor:
    shape = like.shape
    if limit is None and (like.is_floating_point() or like.is_complex()):
        return scale * torch.randn(shape, dtype=_wide(like.dtype), generator=generator)
    drawn = torch.randint(max(limit or 2, 1), shape, generator=generator)
    if limit is None and shape:  # a mask lets something pass
        drawn.select(-1, 0).fill_(1)
    return drawn.to(_wide(like.dtype))  # of floats with a limit, some are codes


def _limits(flow: OpGraph) -> list[int | None]:
    """Return, for each input, how many rows the smallest table has that it looks up."""
    found: list[int | None] = []
    number: dict[int, int] = {}
    for op in flow.operations:
        reads = [value.operation for value in op.reads]
        if op.op == INPUT:
            number[op.ordinal] = len(found)
            found.append(None)
        elif op.op in _KEEPING and reads and reads[0] in number:
            number[op.ordinal] = number[reads[0]]
        elif op.op in _LOOKUPS and reads and reads[0] not in number:
            rows = flow.shape_of(Value(reads[0], op.reads[0].output))[0]
            for one in {number[read] for read in reads if read in number}:
                found[one] = _least((found[one], rows))
    return found


def _least(several: tuple[int | None, ...]) -> int | None:
    return min((one for one in several if one is not None), default=None)


# -- tensors --------------------------------------------------------------------------


def _wide(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def _widened(tensor: Tensor) -> Tensor:
    return tensor.to(_wide(tensor.dtype))


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to(_wide(tensor.dtype), copy=True)
