"""Cuts a network at a module: its frozen layers, what comes after them, and the way between.

A cut is the path of a module that runs once and on whose output alone everything after it depends.
What is returned holds copies of the modules it needs, at their paths in the network, over the
same tensors; the network itself does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from torch import Tensor, nn

from mmdb.errors import CutNotFound, NotACut
from mmdb.graph.cut.forward_steps import (
    ForwardStep,
    StepTrace,
    TracedInputs,
    after,
    intruder,
    is_tensor,
    needed,
    part_after,
)
from mmdb.graph.cut.pool import Pool
from mmdb.graph.cut.segment import Segment, make_segment, segment_plan
from mmdb.graph.cut.step_tracer import CannotTraceSteps, trace_steps
from mmdb.messages import show

_POOL = "_pool"
_HINTED = 12  # cuts that a hint lists
_TUPLES = (nn.MultiheadAttention, nn.RNNBase)  # return several values


def trace_to(
    module: nn.Module, cuts: Iterable[str], inputs: TracedInputs, *, training: bool = False
) -> StepTrace:
    """Follow the network, and inside the modules that hold the cuts.

    Raises:
        CutNotFound: there is no such module.
        NotACut: one that holds it cannot be followed.
    """
    entered: set[int] = set()
    for cut in cuts:
        _check_path(module, cut, inputs)
        parts = cut.split(".")
        for length in range(1, len(parts)):
            entered.add(id(module.get_submodule(".".join(parts[:length]))))
    try:
        return trace_steps(module, lambda m: id(m) in entered, inputs=inputs, training=training)
    except CannotTraceSteps as exc:
        where = f"the forward of {exc.path}" if exc.path else "the network's forward"
        raise NotACut(
            f"{where} cannot be followed: {exc}",
            hint=_hint(module, inputs) or "Freeze up to a module further out.",
        ) from exc


def _check_path(module: nn.Module, cut: str, inputs: TracedInputs) -> None:
    try:
        found = module.get_submodule(cut)
    except AttributeError:
        found = module
    if found is module:
        raise CutNotFound(
            f"the network has no module {show(cut)}", hint=_hint(module, inputs, near=cut)
        )


def result_at(
    module: nn.Module, followed: StepTrace, cut: str, inputs: TracedInputs
) -> ForwardStep:
    """Return the step whose result is the output of the module at the cut.

    Raises:
        CutNotFound: the module does not run.
        NotACut: it runs several times, or returns more than one tensor.
    """
    part = module.get_submodule(cut)
    first = next(path for path, other in module.named_modules() if other is part)
    results = followed.results_of(first)
    if not results:
        raise CutNotFound(f"{cut} does not run", hint=_hint(module, inputs, near=cut))
    if len(results) > 1:
        raise NotACut(
            f"{cut} runs {len(results)} times in one forward", hint=_hint(module, inputs, near=cut)
        )
    if not is_tensor(results[0], followed) or isinstance(part, _TUPLES):
        raise NotACut(f"{cut} returns more than one tensor", hint=_hint(module, inputs, near=cut))
    return cast("ForwardStep", results[0])


def survey(module: nn.Module, inputs: TracedInputs) -> list[tuple[str, bool]]:
    """Return (path, whether one can cut there) of what runs, in the order of the outputs."""
    try:
        followed = trace_steps(module, inputs=inputs)
    except CannotTraceSteps:
        return []
    order = {step: number for number, step in enumerate(followed.steps)}
    parts = dict(module.named_modules())
    works: dict[str, bool] = {}
    places: dict[str, int] = {}
    for path, result in followed.results:
        if not path:
            continue
        is_one = is_tensor(result, followed) and not isinstance(parts[path], _TUPLES)
        known = path in works
        places[path] = order[result] if is_one else len(order)
        works[path] = not known and is_one and after(result, followed.output, followed) is not None
    return [(path, works[path]) for path in sorted(works, key=lambda path: places[path])]


def _hint(module: nn.Module, inputs: TracedInputs, *, near: str = "") -> str:
    """Return the sentence that names cuts: the nearest ones to a path that runs, or all."""
    found = survey(module, inputs)
    paths = [path for path, works in found if works]
    place = next((n for n, (path, _) in enumerate(found) if path == near), None)
    if place is not None:
        before = [path for path, works in found[:place] if works][-2:]
        behind = [path for path, works in found[place + 1 :] if works][:2]
        return (
            f"Near it one can cut at {', '.join([*before, *behind])}." if before or behind else ""
        )
    more = f" and {len(paths) - _HINTED} more" if len(paths) > _HINTED else ""
    return f"One can cut at {', '.join(outermost(paths))}{more}." if paths else ""


def outermost(paths: Sequence[str]) -> list[str]:
    """Return at most as many as a hint lists, the outermost first to stay, in their order."""
    kept = sorted(paths, key=lambda path: path.count("."))[:_HINTED]
    return [path for path in paths if path in kept]


def reads_more(
    module: nn.Module, cut: str, start: ForwardStep, followed: StepTrace, inputs: TracedInputs
) -> NotACut:
    """Return the error for a cut whose later layers read more than its output."""
    other = intruder(start, followed)
    if other is None:
        what = f"the network's output does not depend on {cut} alone"
    else:
        what = f"after {cut}, {other.name} also reads what does not pass through it"
    return NotACut(what, hint=_hint(module, inputs, near=cut))


def cuts_of(module: nn.Module, inputs: TracedInputs = None) -> tuple[str, ...]:
    """Return the paths at which a module can be cut, in the order in which their outputs come.

    What a module returns is known where it is a tensor by the way it is used; a module that
    turns out to return something else is refused when it runs.

    Args:
        inputs: which of the forward's arguments are tensors; see `TracedInputs`.
    """
    return tuple(path for path, works in survey(module, inputs) if works)


def prefix_of(
    module: nn.Module,
    cut: str,
    pool: str = "none",
    *,
    inputs: TracedInputs = None,
    rank: int | None = None,
) -> Segment:
    """Return the frozen layers: inputs -> (n, *features), float32.

    They are in eval mode for ever, and none of their parameters is trained.

    Args:
        pool: as `resolve_pool` returns it.
        rank: dimensions of one row at the cut, so that a trace knows what "mean" does.
    Raises:
        CutNotFound: there is no such module, or it does not run.
        NotACut: what comes after it reads more than its output.
    """
    return layers_to(module, [(cut, pool, rank)], inputs, single=True)


def backbone_of(
    module: nn.Module,
    cut: str,
    pool: str = "none",
    *,
    inputs: TracedInputs = None,
    rank: int | None = None,
) -> Segment:
    """Return the layers of `prefix_of` as they are, to be trained like those of any network."""
    return layers_to(module, [(cut, pool, rank)], inputs, single=True, modes=(False, True))


def chain_of(
    module: nn.Module, cuts: Sequence[tuple[str, str]], *, inputs: TracedInputs = None
) -> Segment:
    """Return the frozen layers up to the deepest cut: inputs -> the features of each, in one pass.

    Args:
        cuts: (cut, pool), in any order, which is that of the result's tuple.
    Raises:
        CutNotFound, NotACut: as `prefix_of`.
    """
    return layers_to(module, [(cut, pool, None) for cut, pool in cuts], inputs)


def stage_of(
    module: nn.Module,
    source: str,
    cut: str,
    pool: str = "none",
    *,
    inputs: TracedInputs = None,
) -> Segment:
    """Return the frozen layers between two cuts: features at `source` -> features at `cut`.

    Args:
        source: the cut where they begin; its features are not pooled.
        pool: of those at `cut`.
    Raises:
        CutNotFound, NotACut: as `prefix_of`; or `cut` does not come after `source`.
    """
    followed = trace_to(module, (source, cut), inputs)
    start, end = (result_at(module, followed, path, inputs) for path in (source, cut))
    steps = part_after(start, end, followed)
    if steps is None:
        raise NotACut(f"{cut} does not come after {source}, or reads more than its output")
    last = _pool_step(end, 0)
    plan = segment_plan(("features",), [start], [*steps, last], last)
    pools = {last.target: Pool(pool, cut)}
    return make_segment(
        module, {False: plan}, extra=pools, stays=("",), guards=True, frozen=lambda _: True
    )


def rest_of(module: nn.Module, cut: str, *, inputs: TracedInputs = None) -> Segment:
    """Return what comes after the cut: features, not pooled -> the network's outputs.

    A tensor that the frozen layers have too (a tied one) is frozen there as well, and a module
    with tensors that runs on both sides stays in eval mode.

    Raises:
        CutNotFound, NotACut: as `prefix_of`.
    """
    plans = {}
    before: list[ForwardStep] = []
    for training in (False, True):
        followed = trace_to(module, (cut,), inputs, training=training)
        start = result_at(module, followed, cut, inputs)
        before += needed([start], followed)
        steps = part_after(start, followed.output, followed)
        if steps is None:
            raise reads_more(module, cut, start, followed, inputs)
        _check_modes(cut, steps, followed, training=training)
        plans[training] = segment_plan(("features",), [start], steps, followed.output)
    held = {id(tensor) for tensor in _tensors_of(module, before)}
    return make_segment(
        module,
        plans,
        stays=_on_both_sides(module, before, plans.values()),
        guards=True,
        frozen=lambda tensor: id(tensor) in held,
    )


def frozen_paths(module: nn.Module, cut: str, *, inputs: TracedInputs = None) -> tuple[str, ...]:
    """Return the paths in the state dict of the tensors that the frozen layers hold, in order.

    A tied tensor is there under each of its paths.
    """
    followed = trace_to(module, (cut,), inputs)
    steps = needed([result_at(module, followed, cut, inputs)], followed)
    held = {id(tensor) for tensor in _tensors_of(module, steps)}
    state = module.state_dict(keep_vars=True)
    return tuple(path for path, tensor in state.items() if id(tensor) in held)


# -- planning ---------------------------------------------------------------------


def layers_to(
    module: nn.Module,
    cuts: Sequence[tuple[str, str, int | None]],
    inputs: TracedInputs,
    *,
    single: bool = False,
    modes: Sequence[bool] = (False,),
    end_at: Callable[..., ForwardStep] | None = None,
) -> Segment:
    """Return the segment from the inputs to the pooled outputs at the cuts.

    Args:
        cuts: (cut, pool, rank) of each.
        end_at: finds, as `result_at`, the step of a cut, after which anything may come; None: it
            is the output of the module there, and all that comes after reads nothing else.
    """
    if not cuts:
        raise ValueError("no cuts")
    plans = {}
    pools: dict[str, nn.Module] = {}
    for training in modes:
        followed = trace_to(module, [cut for cut, *_ in cuts], inputs, training=training)
        ends = [(end_at or result_at)(module, followed, cut, inputs) for cut, *_ in cuts]
        for (cut, *_), end in zip(cuts, ends, strict=True):
            if end_at is None and after(end, followed.output, followed) is None:
                raise reads_more(module, cut, end, followed, inputs)
        steps = needed(ends, followed)
        lasts = [_pool_step(end, number) for number, end in enumerate(ends)]
        for (cut, pool, rank), last, end in zip(cuts, lasts, ends, strict=True):
            pools[last.target] = Pool(pool, cut, rank=rank, copies=steps[-1:] != [end])
        _check_modes("the cut", steps, followed, training=training)
        given = [step for step in followed.steps if step.kind == "input"]
        output = lasts[0] if single else tuple(lasts)
        plans[training] = segment_plan(followed.inputs, given, _merged(steps, ends, lasts), output)
    if modes != (False,):
        return make_segment(module, plans, extra=pools)
    return make_segment(module, plans, extra=pools, stays=("",), guards=True, frozen=lambda _: True)


def _pool_step(end: ForwardStep, number: int) -> ForwardStep:
    return ForwardStep(kind="module", target=f"{_POOL}{number}", args=(end,))


def _merged(
    steps: Sequence[ForwardStep], ends: Sequence[ForwardStep], lasts: Sequence[ForwardStep]
) -> list[ForwardStep]:
    """Return the steps with each pool right after what it reads, before that is changed."""
    merged = [last for end, last in zip(ends, lasts, strict=True) if end not in steps]
    for step in steps:
        merged.append(step)
        merged += [last for end, last in zip(ends, lasts, strict=True) if end is step]
    return merged


def _check_modes(
    cut: str, steps: Iterable[ForwardStep], followed: StepTrace, *, training: bool
) -> None:
    """Raise if a step computes under autocast, or in training without gradients."""
    for step in steps:
        ours, theirs = (modes if training else modes[2:] for modes in (step.modes, followed.modes))
        if step.modes and ours != theirs:
            raise NotACut(
                f"{step.name} computes without gradients or under autocast, by a block in the "
                f"forward of a module that holds {cut}",
                hint="Freeze up to a module further out.",
            )


def _on_both_sides(
    module: nn.Module, before: Iterable[ForwardStep], plans: Iterable[Any]
) -> tuple[str, ...]:
    """Return the paths of modules with tensors that run before the cut and after it."""
    ours = {line.target for plan in plans for line in plan.lines if line.kind == "module"}
    both = sorted(ours & {step.target for step in before if step.kind == "module"})
    return tuple(path for path in both if module.get_submodule(path).state_dict())


def _tensors_of(module: nn.Module, steps: Iterable[ForwardStep]) -> list[Tensor]:
    """Return the parameters and buffers that steps use."""
    found: list[Tensor] = []
    for step in steps:
        if step.kind == "module":
            part = module.get_submodule(step.target)
            found += [*part.parameters(), *part.buffers()]
        elif step.kind == "tensor":
            owner, _, name = step.target.rpartition(".")
            found.append(getattr(module.get_submodule(owner), name))
    return found
