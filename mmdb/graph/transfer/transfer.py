"""Carries a parent's tensors over to a child of another shape.

The child computes what its parent computes wherever the mathematics allows it (Net2Net, arXiv
1511.05641; LEMON, arXiv 2310.07999); where it is smaller, it has an evenly spaced choice of the
parent's units (weight selection, arXiv 2311.18823); the rest keeps its own initialisation.

A batch norm gives channels of mean beta and variance gamma squared; behind a ReLU they are those of
a clipped normal distribution (Nagel et al. 2019, arXiv 1906.04721, appendix C). No data is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import torch
from torch import Tensor

from mmdb.graph.ops.op_graph import BUFFER, Operation, OpGraph, Value
from mmdb.graph.ops.skeleton import LayerSkeleton
from mmdb.graph.ops.tensor_contents import numbers_of
from mmdb.graph.transfer import op_kinds
from mmdb.graph.transfer.index_maps import developed, identity, operator_of
from mmdb.graph.transfer.op_traits import numbers
from mmdb.graph.transfer.transfer_plan import TransferPlan, planned, tensor_pairs

#: float64 (channels,) each: means and variances.
Moments: TypeAlias = tuple[Tensor, Tensor]
Find: TypeAlias = Callable[[Value], Moments | None]


def moments_of(
    flow: OpGraph, tensor_of: Callable[[str], Tensor | None], hands_on: Callable[[int], bool]
) -> Mapping[Value, Moments]:
    """Return the moments along axis 1 of values, where they are known.

    Args:
        tensor_of: a parameter by its path, None if it is not known.
        hands_on: whether an operation, by its ordinal, gives what it reads.
    """
    found: dict[Value, Moments] = {}
    for op in flow.operations:
        made = _moments(op, flow, tensor_of, found.get, is_idle=hands_on(op.ordinal))
        if made is not None:
            found[Value(op.ordinal)] = made
    return found


def _moments(
    op: Operation,
    flow: OpGraph,
    tensor_of: Callable[[str], Tensor | None],
    find: Find,
    *,
    is_idle: bool,
) -> Moments | None:
    if is_idle:
        return find(op.reads[0])
    if op.op == "batch_norm":
        weight, bias = (_tensor(op, name, flow, tensor_of) for name in ("weight", "bias"))
        return None if weight is None or bias is None else (bias, weight.square())
    several = [find(value) for value in op.reads]
    known = [one for one in several if one is not None]
    if not known or len(known) < len(several):
        return None
    if op.op in op_kinds.CLIPPING and op.arguments.get("min_val", 0) == 0:
        return _clipped(*known[0])
    if op.op in op_kinds.PER_CHANNEL and flow.shape_of(op.reads[0]) == op.shape:
        return known[0]
    if op.op == "add" and len(known) == 2 and op.arguments.get("alpha", 1) == 1:
        (mean, variance), (other, another) = known
        return (mean + other, variance + another) if len(mean) == len(other) else None
    if op.op == "cat" and op.arguments.get("dim") == 1:
        means, variances = zip(*known, strict=True)
        return torch.cat(means), torch.cat(variances)
    return None


def _clipped(mean: Tensor, variance: Tensor) -> Moments:
    """Return the moments of max(x, 0) for normal x."""
    deviation = variance.sqrt().clamp_min(1e-12)
    ratio = mean / deviation
    share = torch.special.ndtr(ratio)
    density = torch.exp(-ratio.square() / 2) / math.sqrt(2 * math.pi)
    clipped = mean * share + deviation * density
    square = (mean.square() + variance) * share + mean * deviation * density
    return clipped, (square - clipped.square()).clamp_min(0.0)


def _tensor(
    op: Operation, name: str, flow: OpGraph, tensor_of: Callable[[str], Tensor | None]
) -> Tensor | None:
    value = op.arguments.get(name)
    if not isinstance(value, Value):
        return None
    tensor = tensor_of(flow.operations[value.operation].path)
    return None if tensor is None else tensor.detach().double()


FRESH = "fresh"
_MOST_REASONS = 64
_PRECISE = (torch.float32, torch.float64)
_FAILURES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip


#: Takes the child's tensors in float64; returns why with them it does not compute what the parent
#: does, None if it does.
Check: TypeAlias = Callable[[Mapping[str, Tensor]], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a tensor of the child comes from.

    Attributes:
        path: in the child's state dict.
        parent: path in the parent's, None if nothing of the tensor is the parent's.
        operator: "copy"; "widen": axes are longer, "narrow": some are shorter, "kernel": only taps
            were added; "identity", "deepen": of a new layer that hands on what it gets, or of one
            that gives zero; "fresh": the child's own initialisation.
        fraction: of elements that come from the parent.
    """

    path: str
    parent: str | None
    operator: str
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTransfer:
    """The tensors that a child starts from, and where each comes from.

    Attributes:
        tensors: by path, all of the child's state dict; tied ones are one tensor.
        origins: in the order of `tensors`.
        exact: evaluated, the child computes what the parent does, but for rounding of its tensors.
        reasons: why not, and what else is worth knowing.
    """

    tensors: Mapping[str, Tensor]
    origins: tuple[Origin, ...]
    exact: bool
    reasons: tuple[str, ...]


def transfer(
    child: OpGraph,
    parent: OpGraph,
    pairs: Sequence[tuple[int, int]],
    child_outline: LayerSkeleton,
    parent_outline: LayerSkeleton,
    parent_tensors: Mapping[str, Tensor],
    fresh: Mapping[str, Tensor],
    *,
    seed: int = 0,
    shrink: float | None = None,
    perturb: float | None = None,
    check: Check | None = None,
) -> TensorTransfer:
    """Return tensors for the child; whatever the op graphs are, each has one.

    Constants of both models (masks, angles) whose numbers are not known are taken as equal where
    their shapes are; the result is not called exact then.

    Args:
        pairs: ordinals of layers of the child and of the parent that stand for one another. Where
            the order of operations pairs them otherwise, and only so the child computes what the
            parent does, that is taken.
        parent_tensors: by path; those that are missing, or not finite, are not used.
        fresh: the child's own initial tensors, by path: all of its state dict.
        seed: of the shares of copies.
        shrink: multiplies what comes from the parent in parameters, in (0, 1]; the child's own
            tensors are added, multiplied by `perturb`, by default 1 - shrink (shrink and perturb,
            arXiv 1910.08475).
        check: is asked before the result is called exact. Without it `exact` is what follows from
            the op graphs, which whoever tells it to others verifies.
    """
    sources = _Sources(parent, parent_tensors)
    try:
        plan = planned(child, parent, tensor_pairs(pairs, child_outline, parent_outline), seed)
    except _FAILURES as exc:
        reason = f"the flows cannot be followed: {type(exc).__name__}: {exc}"
        return _all_fresh(fresh, reason)
    made = _Result(plan, sources, fresh).transfer()
    if shrink is not None:
        made = _shrunk(made, fresh, child, shrink, 1 - shrink if perturb is None else perturb)
    if not made.exact or check is None:
        return made
    why = check(_Result(plan, sources, _in_double(fresh)).transfer().tensors)
    return made if why is None else replace(made, exact=False, reasons=(why, *made.reasons))


class _Sources:
    """The parent's tensors, by any of their paths."""

    def __init__(self, parent: OpGraph, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = dict(tensors)
        for path, first in parent.ties.items():
            if first not in self._tensors and path in self._tensors:
                self._tensors[first] = self._tensors[path]

    def any(self, path: str) -> Tensor | None:
        """Return a tensor as it is, None if there is none."""
        return self._tensors.get(path)

    def of(self, path: str, shape: tuple[int, ...]) -> tuple[Tensor | None, str]:
        """Return a tensor, or None and why there is none."""
        tensor = self._tensors.get(path)
        if tensor is None:
            return None, "the parent's tensor is missing"
        if tuple(tensor.shape) != shape:
            return None, "the parent's tensor has another shape than its flow says"
        is_number = tensor.is_floating_point() or tensor.is_complex()
        if is_number and not bool(torch.isfinite(tensor).all()):
            return None, "the parent's tensor is not finite"
        return tensor, ""


class _Result:
    """Tensors and origins from a plan."""

    def __init__(self, plan: TransferPlan, sources: _Sources, fresh: Mapping[str, Tensor]) -> None:
        self._plan, self._sources, self._fresh = plan, sources, fresh
        self._reasons = dict.fromkeys(plan.reasons())
        self._exact = not self._reasons
        self._made: dict[str, tuple[Tensor, Origin]] = {}

    def transfer(self) -> TensorTransfer:
        """Return all tensors."""
        self._check_buffers()
        tensors: dict[str, Tensor] = {}
        origins: list[Origin] = []
        firsts = {path: self._plan.child.ties.get(path, path) for path in self._fresh}
        for path, own in self._fresh.items():
            if firsts[path] not in self._made:
                self._made[firsts[path]] = self._one(firsts[path], own)
        self._check_set()
        self._keep_scale()
        for path, first in firsts.items():
            tensors[path], origin = self._made[first]
            origins.append(replace(origin, path=path))
        return TensorTransfer(
            tensors=tensors,
            origins=tuple(origins),
            exact=self._exact,
            reasons=tuple(self._reasons)[:_MOST_REASONS],
        )

    def _check_buffers(self) -> None:
        """Note buffers that are not carried over and are not known to be the parent's."""
        plan = self._plan
        for one, other in plan.counterparts.buffers.items():
            own, its = plan.child.operations[one.operation], plan.parent.operations[other.operation]
            mine = _numbers_of(own, self._fresh.get(own.path))
            others = _numbers_of(its, self._sources.any(its.path))
            if not mine or not others:
                self._note(f"{own.path}: its numbers are not known", is_exact=False)
            elif mine != others:
                self._note(f"{own.path}: other numbers than the parent's", is_exact=False)

    def _check_set(self) -> None:
        """Note what is to be one number throughout, and is not in the state dict."""
        plan = self._plan
        given = {*plan.carry.identities, *plan.carry.constants}
        paths = {plan.child.operations[value.operation].path for value in given}
        for path in sorted((paths | plan.counterparts.branches.zeros) - self._made.keys()):
            self._note(f"{path}: it cannot be set", is_exact=False)

    def _keep_scale(self) -> None:
        """Let new norms that hand on what they get do so in training too.

        There they divide by the deviation of a batch: scale and shift undo that, with statistics
        that are estimated. Evaluated, they hand on whatever the estimate is.
        """
        flow, idle = self._plan.child, self._plan.counterparts.identities
        norms = [flow.operations[n] for n in sorted(idle) if flow.operations[n].op == "batch_norm"]
        if not norms:
            return
        moments = moments_of(flow, self._tensor_made, idle.__contains__)
        for op in norms:
            found = moments.get(op.reads[0])
            paths = {
                name: flow.operations[value.operation].path
                for name in ("weight", "bias", "running_mean", "running_var")
                if isinstance(value := op.arguments.get(name), Value)
            }
            given = [self._made[path] for path in paths.values() if path in self._made]
            if found is None or len(given) < 4:
                continue
            mean, variance = found
            if any(o.operator != "identity" or t.shape != mean.shape for t, o in given):
                continue
            if any(tensor.dtype not in _PRECISE for tensor, _ in given):
                continue  # what rounds the four apart would no longer hand on
            scale = (variance + cast("float", op.arguments["eps"])).sqrt()
            made = {"weight": scale, "bias": mean, "running_mean": mean, "running_var": variance}
            for name, path in paths.items():
                before, origin = self._made[path]
                self._made[path] = made[name].to(before.dtype), origin

    def _tensor_made(self, path: str) -> Tensor | None:
        return self._made[path][0] if path in self._made else None

    def _one(self, path: str, own: Tensor) -> tuple[Tensor, Origin]:
        kept = own.detach().clone(), Origin(path=path, parent=None, operator=FRESH, fraction=0.0)
        value = self._plan.values.get(path)
        if value is None or self._plan.child.shape_of(value) != tuple(own.shape):
            return kept
        carry, branches = self._plan.carry, self._plan.counterparts.branches
        if path in branches.zeros:
            return torch.zeros_like(own), replace(kept[1], operator="deepen")
        if value in carry.identities:
            return identity(carry.identities[value], own), replace(kept[1], operator="identity")
        image = self._plan.images.of.get(value)
        if image is None:
            if value in carry.constants:
                number = carry.constants[value]
                return torch.full_like(own, number), replace(kept[1], operator="identity")
            return kept
        its = self._plan.parent.operations[image.parent.operation]
        tensor, reason = self._sources.of(its.path, its.shape)
        if tensor is None:
            self._note(f"{path}: {reason}", is_exact=False)
            return kept
        result, fraction = developed(image, tensor, own)
        if result.is_floating_point() and not bool(torch.isfinite(result).all()):
            self._note(f"{path}: not finite as {own.dtype}", is_exact=False)
            return kept
        if tensor.dtype != own.dtype:
            loses = torch.promote_types(tensor.dtype, own.dtype) != own.dtype
            self._note(f"{path}: cast from {tensor.dtype} to {own.dtype}", is_exact=not loses)
        operator = operator_of(image, tensor, own)
        return result, Origin(path=path, parent=its.path, operator=operator, fraction=fraction)

    def _note(self, reason: str, *, is_exact: bool) -> None:
        self._reasons[reason] = None
        self._exact = self._exact and is_exact


def _numbers_of(buffer: Operation, tensor: Tensor | None) -> dict[str, object]:
    return numbers(buffer) if tensor is None else numbers_of(tensor)


def _in_double(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors in float64, those that are one as one."""
    made: dict[int, Tensor] = {}
    for tensor in tensors.values():
        if id(tensor) not in made:
            made[id(tensor)] = tensor.double() if tensor.is_floating_point() else tensor
    return {path: made[id(tensor)] for path, tensor in tensors.items()}


def _all_fresh(fresh: Mapping[str, Tensor], reason: str) -> TensorTransfer:
    origins = [Origin(path=p, parent=None, operator=FRESH, fraction=0.0) for p in fresh]
    tensors = {path: tensor.detach().clone() for path, tensor in fresh.items()}
    return TensorTransfer(tensors=tensors, origins=tuple(origins), exact=False, reasons=(reason,))


def _shrunk(
    made: TensorTransfer, fresh: Mapping[str, Tensor], child: OpGraph, shrink: float, perturb: float
) -> TensorTransfer:
    if shrink == 1 and perturb == 0:
        return made
    buffers = {op.path for op in child.operations if op.op == BUFFER}
    tensors, origins = dict(made.tensors), list(made.origins)
    done: dict[int, Tensor] = {}
    for place, origin in enumerate(origins):
        tensor, own = made.tensors[origin.path], fresh[origin.path]
        is_weight = tensor.is_floating_point() and child.ties.get(origin.path, origin.path) not in (
            buffers
        )
        if not is_weight or origin.fraction == 0:
            continue
        if id(tensor) not in done:
            mixed = shrink * tensor.double() + perturb * own.double()
            done[id(tensor)] = mixed.to(tensor.dtype)
        tensors[origin.path] = done[id(tensor)]
        origins[place] = replace(origin, operator=f"{origin.operator}+shrink")
    reasons = (*made.reasons, f"shrunk to {shrink:g}, {perturb:g} of the child's own added")
    return TensorTransfer(tensors=tensors, origins=tuple(origins), exact=False, reasons=reasons)
