"""Makes a candidate's first state from a parent's tensors. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mmdb.graph.spec.parse import is_adapter, parse, with_arguments
from mmdb.graph.transfer.transfer import FRESH
from mmdb.train.compute.backbone import arguments_of
from mmdb.train.compute.exact import exact
from mmdb.train.compute.live import adopt_optimizer, build, encode
from mmdb.train.compute.shared_base import left_out
from mmdb.train.compute.sorted_rows import by_name
from mmdb.train.values.warm_spec import Carried, TensorOrigin, Unfit, WarmResult, WarmSpec


def first_state(
    spec: WarmSpec, tensors: Mapping[str, Tensor], resumed: bytes | None = None
) -> tuple[WarmResult, bytes]:
    """Return what was carried over, and the candidate's encoded state; b"" where nothing was.

    The state depends on the arguments alone: the weights of the candidate's seed, with the parent's
    in their place, and a fresh optimizer, or the parent's.

    Args:
        tensors: the parent's, by path.
        resumed: the parent's state, whose optimizer goes on where all that trains is as it was.
    """
    with exact(0):
        live = build(spec.candidate)
        given = spec, live.module, tensors
        try:
            carried = _same_network(*given) or _followed(*given)
        except Unfit as refusal:
            return WarmResult(refused=str(refusal), is_final=refusal.is_final), b""
        fill(live.module, carried.tensors)
        if spec.base is not None:
            parents = by_name(spec.parent, tensors, spec.example.inputs(), lambda: live.module)
            live = left_out(live, spec.candidate, spec.base, parents)
        resumes = resumed is not None and adopt_optimizer(live, resumed)
        state = encode(live)
    result = WarmResult(
        similarity=carried.similarity,
        coverage=carried.coverage,
        exact=carried.exact,
        reasons=carried.reasons,
        notes=carried.notes,
        origins=carried.origins,
        resumes=resumes,
    )
    return result, state


def _followed(spec: WarmSpec, child: nn.Module, tensors: Mapping[str, Tensor]) -> Carried:
    from mmdb.train.warm.carrying import carry  # loads numba

    return carry(
        child,
        [spec.example.inputs()],
        spec.parent,
        tensors,
        seed=spec.candidate.seed,
        shrink=spec.shrink,
    )


def _same_network(
    spec: WarmSpec, child: nn.Module, tensors: Mapping[str, Tensor]
) -> Carried | None:
    """Return what a candidate begins with whose parent is the very network that it adapts, or has
    the same adapter; None: that has to be found out, by following both.

    The tensors are the parent's by path, as `carry` returns them; an adapter's own change nothing
    at first.
    """
    candidate, form = spec.candidate, spec.parent
    definition = form.definition
    if spec.shrink is not None or not form.rows.is_same or definition is None:
        return None
    own = with_arguments(parse(candidate.architecture), arguments_of(candidate))
    its = with_arguments(parse(definition.architecture), definition.arguments)
    sizes = (definition.input_shape, definition.outputs)
    if its not in (own.get("adapted"), own) or sizes != (candidate.input_shape, candidate.outputs):
        return None
    made: dict[str, Tensor] = {}
    origins = []
    for path, fresh in child.state_dict().items():
        found = tensors.get(path)
        if found is None and not (is_adapter(path) and its != own):
            return None
        if found is not None and (found.shape, found.dtype) != (fresh.shape, fresh.dtype):
            return None
        made[path] = fresh if found is None else found
        origins.append(
            TensorOrigin(
                path=path,
                parent=path if path in tensors else None,
                operator="copy" if path in tensors else FRESH,
                fraction=float(path in tensors),
            )
        )
    numbers = (t for t in made.values() if t.is_floating_point() or t.is_complex())
    if not all(bool(torch.isfinite(t).all()) for t in numbers):
        return None
    sizes_of = {path: p.numel() for path, p in child.named_parameters()}
    taken = sum(n for path, n in sizes_of.items() if path in tensors)
    doubts = (*form.rows.doubts, *form.rows.class_doubts)
    return Carried(
        tensors=made,
        origins=tuple(origins),
        similarity=1.0,
        coverage=taken / sum(sizes_of.values()),
        exact=not doubts,
        reasons=doubts,
        notes=form.rows.notes,
    )


def fill(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into a module's own, in place."""
    own = module.state_dict()
    with torch.no_grad():
        for path, tensor in tensors.items():
            own[path].copy_(tensor)
