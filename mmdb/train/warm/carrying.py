"""Makes a child's tensors from a parent's. No I/O.

Both forwards are traced, layers are paired, tensors are carried over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from torch import Tensor, nn

from mmdb.errors import ArchitectureError, StoreError
from mmdb.graph.match.alignment import align
from mmdb.graph.match.pack import pack
from mmdb.graph.ops.capture import capture_with_inputs
from mmdb.graph.ops.known_values import Inputs, batch_apart
from mmdb.graph.ops.op_contraction import skeleton_of
from mmdb.graph.ops.op_graph import CannotTrace, OpGraph, TooManyOperations
from mmdb.graph.transfer import TensorTransfer, difference, transfer
from mmdb.store.models.model_rows import ModelDefinition
from mmdb.store.models.module import assemble, build_empty, build_filled
from mmdb.train.compute.sorted_rows import read_as
from mmdb.train.compute.translate import ByName, Translated, resized, translate
from mmdb.train.values.warm_spec import Carried, ParentForm, TensorOrigin, Unfit

_LONGEST_REASON = 200
#: What an odd module could bring to light: it begins fresh then, and training goes on.
_FAILURES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip


def carry(
    child: nn.Module,
    inputs: Iterable[Inputs | None],
    parent: ParentForm,
    tensors: Mapping[str, Tensor],
    *,
    seed: int,
    shrink: float | None,
) -> Carried:
    """Return what a child would begin with; neither it nor torch's generators change.

    Args:
        inputs: of the child's forward, to be tried in turn; None for what the module tells.
        tensors: the parent's, by path.
        seed: of the shares that copies of a unit have.
        shrink: see `WarmOptions`.
    Raises:
        Unfit
    """
    several = list(inputs)
    rows = [row for one in several if one is not None for row in one.tensors()]
    known = [*child.parameters(), *child.buffers(), *tensors.values()]
    sizes = [one.shape for one in known] + [one.shape[1:] for one in rows]
    batch = batch_apart(chain.from_iterable(sizes))
    flow, given = _record(child, several, "the model", batch, is_final=True)
    fresh = {path: t for path, t in child.state_dict().items() if isinstance(t, Tensor)}
    module, its_flow = _parent(parent, tensors, flow, given, child, fresh)

    def check(made: Mapping[str, Tensor]) -> str | None:
        try:
            how = (parent.definition, parent.factories)
            whole = assemble(*how, tensors, trainable={}, reference=parent.reference)
        except (ArchitectureError, StoreError) as error:
            return f"not verified: {parent.reference} cannot be built: {error.message}"
        found = difference(child, ByName(whole, parent.rows), made, given, (flow, its_flow))
        return None if found is None else f"not verified: {found}"

    try:
        its_flow, translated = _translated(parent, module, its_flow, tensors, given, child)
        outline = skeleton_of(flow)
        its_outline = outline if its_flow is flow else skeleton_of(its_flow)
        alignment = align(pack(outline), pack(its_outline))
        made = transfer(
            flow,
            its_flow,
            alignment.pairs,
            outline,
            its_outline,
            translated.tensors,
            fresh,
            seed=seed,
            shrink=shrink,
            check=None if translated.doubts else check,
        )
    except ArchitectureError as error:
        raise Unfit(error.message) from error
    except _FAILURES as error:
        raise Unfit(f"{parent.reference}: {type(error).__name__}: {_short(error)}") from error
    reasons = (*translated.doubts, *made.reasons)
    coverage = _coverage(child, made, translated.shares)
    if not coverage:
        because = reasons[0] if reasons else "no layer of it fits"
        raise Unfit(f"nothing of {parent.reference} could be carried over: {because}")
    return Carried(
        tensors=made.tensors,
        origins=_origins(made),
        similarity=1.0 if its_flow is flow else alignment.score,
        coverage=coverage,
        exact=made.exact and not translated.doubts,
        reasons=reasons,
        notes=parent.rows.notes,
    )


def _record(
    module: nn.Module, inputs: Iterable[Inputs | None], what: str, batch: int, *, is_final: bool
) -> tuple[OpGraph, Inputs]:
    """Return a flow of so many rows where the forward takes them, and its inputs."""
    first: CannotTrace | None = None
    for given in inputs:
        try:
            if given is None:
                given = capture_with_inputs(module)[1]
            try:
                return capture_with_inputs(module, given.with_batch(batch))
            except CannotTrace:
                return capture_with_inputs(module, given)
        except TooManyOperations as error:
            raise Unfit(f"{what}: {error}", is_final=is_final) from error
        except CannotTrace as error:
            first = first or error
    raise Unfit(f"{what}: {_short(first)}", is_final=is_final) from first


def _parent(
    parent: ParentForm,
    tensors: Mapping[str, Tensor],
    flow: OpGraph,
    given: Inputs,
    child: nn.Module,
    fresh: Mapping[str, Tensor],
) -> tuple[nn.Module, OpGraph]:
    """Return the parent's module and flow: the child's, where those cannot be had and the tensors
    are alike.
    """
    try:
        module = _built(parent.definition, parent.factories)
        several = [given, *(one.inputs() for one in parent.examples), None]
        return module, _record(module, several, parent.reference, given.rows, is_final=False)[0]
    except (ArchitectureError, Unfit) as error:
        if _are_alike(tensors, child, fresh):
            return child, flow
        because = error.message if isinstance(error, ArchitectureError) else str(error)
        raise Unfit(f"{parent.reference} cannot be followed: {because}") from error


def _translated(
    parent: ParentForm,
    module: nn.Module,
    flow: OpGraph,
    tensors: Mapping[str, Tensor],
    given: Inputs,
    child: nn.Module,
) -> tuple[OpGraph, Translated]:
    """Return the parent as it would be had it been trained on the child's rows.

    Args:
        module: the parent's, or the child where that cannot be had.
        given: what the child's forward takes.
    """
    rows, shares = parent.rows, dict[str, float]()
    read = None if module is child else read_as(module, child, rows, tensors)
    if read is not None:
        (module, tensors, shares), rows = read, replace(rows, inputs={})
        flow = _record(module, [given], parent.reference, given.rows, is_final=False)[0]
    found = translate(rows, flow, tensors)
    both = {path: shares.get(path, 1.0) * found.shares.get(path, 1.0) for path in tensors}
    found = replace(found, shares=both)
    if not found.is_resized:
        return flow, found
    inputs = [given, *(one.inputs() for one in parent.examples)]
    try:
        sized = resized(module, found.tensors)
        return _record(sized, inputs, parent.reference, given.rows, is_final=False)[0], found
    except (Unfit, *_FAILURES) as error:
        doubt = f"{parent.reference} takes rows of one width: {_short(error)}"
        return flow, replace(found, tensors=found.kept, doubts=(*found.doubts, doubt))


def _built(definition: ModelDefinition | None, factories: Mapping[str, str]) -> nn.Module:
    if definition is None:
        raise ArchitectureError("how to build its module is not known")
    try:
        return build_empty(definition, factories)
    except ArchitectureError:  # a factory that cannot work without memory, or that is gone
        return build_filled(definition, factories, seed=0)


def _are_alike(
    tensors: Mapping[str, Tensor], child: nn.Module, fresh: Mapping[str, Tensor]
) -> bool:
    """Return whether a parent's tensors are the child's by path and shape."""
    transient = {path for path, _ in child.named_buffers() if path not in fresh}
    shapes = {path: t.shape for path, t in tensors.items() if path not in transient}
    return shapes == {path: t.shape for path, t in fresh.items()}


def _coverage(child: nn.Module, made: TensorTransfer, shares: Mapping[str, float]) -> float:
    """Return the share of the child's parameters that come from the parent.

    Args:
        shares: of the parent's tensors that are its own, by path; 1 where it does not say.
    """
    fractions = {o.path: o.fraction * shares.get(o.parent or "", 1.0) for o in made.origins}
    sizes = {path: p.numel() for path, p in child.named_parameters()}
    total = sum(sizes.values())
    return sum(fractions.get(path, 0.0) * n for path, n in sizes.items()) / total if total else 0.0


def _origins(made: TensorTransfer) -> tuple[TensorOrigin, ...]:
    return tuple(
        TensorOrigin(
            path=one.path,
            parent=one.parent,
            operator=one.operator,
            fraction=one.fraction,
            reason=_reason_of(one.path, made.reasons),
        )
        for one in made.origins
    )


def _reason_of(path: str, reasons: Sequence[str]) -> str | None:
    start = f"{path}: "
    return next((r.removeprefix(start) for r in reasons if r.startswith(start)), None)


def _short(error: Exception | None) -> str:
    text = str(error) if error is not None else "no inputs are known for it"
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."
