"""Cutting a network at a module: its frozen layers, what comes after them, and the way between.

A cut is the path of a module that runs once and on whose output alone everything after it depends.
What is returned holds copies of the modules it needs, at their paths in the network, over the
same tensors; the network itself does not change.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.errors import NotACut
from mmdb.graph.cut.inputs import Inputs
from mmdb.graph.cut.locate import follow_to, reads_more, result_at, survey
from mmdb.graph.cut.pool import Pool
from mmdb.graph.cut.segment import Segment, make_segment, plan_of
from mmdb.graph.cut.select import after, needed, part_after
from mmdb.graph.cut.steps import Followed, Step

_POOL = "_pool"
_TOLERANCE = 1e-4  # of the largest number of an output


def cuts_of(module: nn.Module, inputs: Inputs = None) -> tuple[str, ...]:
    """Return the paths at which a module can be cut, in the order in which their outputs come.

    What a module returns is known where it is a tensor by the way it is used; a module that
    turns out to return something else is refused when it runs.

    Args:
        inputs: which of the forward's arguments are tensors; see `mmdb.graph.cut.follow.Inputs`.
    """
    return tuple(path for path, works in survey(module, inputs) if works)


def prefix_of(
    module: nn.Module,
    cut: str,
    pool: str = "none",
    *,
    inputs: Inputs = None,
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
    return _first(module, [(cut, pool, rank)], inputs, single=True)


def backbone_of(
    module: nn.Module,
    cut: str,
    pool: str = "none",
    *,
    inputs: Inputs = None,
    rank: int | None = None,
) -> Segment:
    """Return the layers of `prefix_of` as they are, to be trained like those of any network."""
    return _first(module, [(cut, pool, rank)], inputs, single=True, modes=(False, True))


def chain_of(
    module: nn.Module, cuts: Sequence[tuple[str, str]], *, inputs: Inputs = None
) -> Segment:
    """Return the frozen layers up to the deepest cut: inputs -> the features of each, in one pass.

    Args:
        cuts: (cut, pool), in any order, which is that of the result's tuple.
    Raises:
        CutNotFound, NotACut: as `prefix_of`.
    """
    return _first(module, [(cut, pool, None) for cut, pool in cuts], inputs)


def stage_of(
    module: nn.Module,
    source: str,
    cut: str,
    pool: str = "none",
    *,
    inputs: Inputs = None,
) -> Segment:
    """Return the frozen layers between two cuts: features at `source` -> features at `cut`.

    Args:
        source: the cut where they begin; its features are not pooled.
        pool: of those at `cut`.
    Raises:
        CutNotFound, NotACut: as `prefix_of`; or `cut` does not come after `source`.
    """
    followed = follow_to(module, (source, cut), inputs)
    start, end = (result_at(module, followed, path, inputs) for path in (source, cut))
    steps = part_after(start, end, followed)
    if steps is None:
        raise NotACut(f"{cut} does not come after {source}, or reads more than its output")
    last = _pool_step(end, 0)
    plan = plan_of(("features",), [start], [*steps, last], last)
    pools = {last.target: Pool(pool, cut)}
    return make_segment(
        module, {False: plan}, extra=pools, stays=("",), guards=True, frozen=lambda _: True
    )


def rest_of(module: nn.Module, cut: str, *, inputs: Inputs = None) -> Segment:
    """Return what comes after the cut: features, not pooled -> the network's outputs.

    A tensor that the frozen layers have too (a tied one) is frozen there as well, and a module
    with tensors that runs on both sides stays in eval mode.

    Raises:
        CutNotFound, NotACut: as `prefix_of`.
    """
    plans = {}
    before: list[Step] = []
    for training in (False, True):
        followed = follow_to(module, (cut,), inputs, training=training)
        start = result_at(module, followed, cut, inputs)
        before += needed([start], followed)
        steps = part_after(start, followed.output, followed)
        if steps is None:
            raise reads_more(module, cut, start, followed, inputs)
        _check_modes(cut, steps, followed, training=training)
        plans[training] = plan_of(("features",), [start], steps, followed.output)
    held = {id(tensor) for tensor in _tensors_of(module, before)}
    return make_segment(
        module,
        plans,
        stays=_on_both_sides(module, before, plans.values()),
        guards=True,
        frozen=lambda tensor: id(tensor) in held,
    )


def frozen_paths(module: nn.Module, cut: str, *, inputs: Inputs = None) -> tuple[str, ...]:
    """Return the paths in the state dict of the tensors that the frozen layers hold, in order.

    A tied tensor is there under each of its paths.
    """
    followed = follow_to(module, (cut,), inputs)
    steps = needed([result_at(module, followed, cut, inputs)], followed)
    held = {id(tensor) for tensor in _tensors_of(module, steps)}
    state = module.state_dict(keep_vars=True)
    return tuple(path for path, tensor in state.items() if id(tensor) in held)


def check_cut(module: nn.Module, cut: str, *args: Any, **kwargs: Any) -> None:
    """Run rows through a network, and in two parts; all of it in eval mode, without gradients.

    Args:
        args, kwargs: what the forward takes.
    Raises:
        NotACut: the parts give something else than the whole.
    """
    names = tuple(kwargs) or None
    memo: dict[int, Any] = {id(t): t for t in (*module.parameters(), *module.buffers())}
    with torch.no_grad():
        expected = copy.deepcopy(module, memo).eval()(*args, **kwargs)
        features = prefix_of(module, cut, inputs=names)(*args, **kwargs)
        found = rest_of(module, cut, inputs=names).eval()(features)
    if not _same(expected, found):
        raise NotACut(
            f"{cut} and what comes after it do not give what the network gives",
            hint="Its forward keeps something aside: freeze up to another module.",
        )


# -- planning ---------------------------------------------------------------------


def _first(
    module: nn.Module,
    cuts: Sequence[tuple[str, str, int | None]],
    inputs: Inputs,
    *,
    single: bool = False,
    modes: Sequence[bool] = (False,),
) -> Segment:
    """Return the segment from the inputs to the pooled outputs at the cuts."""
    if not cuts:
        raise ValueError("no cuts")
    plans = {}
    pools: dict[str, nn.Module] = {}
    for training in modes:
        followed = follow_to(module, [cut for cut, *_ in cuts], inputs, training=training)
        ends = [result_at(module, followed, cut, inputs) for cut, *_ in cuts]
        for (cut, *_), end in zip(cuts, ends, strict=True):
            if after(end, followed.output, followed) is None:
                raise reads_more(module, cut, end, followed, inputs)
        steps = needed(ends, followed)
        lasts = [_pool_step(end, number) for number, end in enumerate(ends)]
        for (cut, pool, rank), last, end in zip(cuts, lasts, ends, strict=True):
            pools[last.target] = Pool(pool, cut, rank=rank, copies=steps[-1:] != [end])
        _check_modes("the cut", steps, followed, training=training)
        given = [step for step in followed.steps if step.kind == "input"]
        output = lasts[0] if single else tuple(lasts)
        plans[training] = plan_of(followed.inputs, given, _merged(steps, ends, lasts), output)
    if modes != (False,):
        return make_segment(module, plans, extra=pools)
    return make_segment(module, plans, extra=pools, stays=("",), guards=True, frozen=lambda _: True)


def _pool_step(end: Step, number: int) -> Step:
    return Step(kind="module", target=f"{_POOL}{number}", args=(end,))


def _merged(steps: Sequence[Step], ends: Sequence[Step], lasts: Sequence[Step]) -> list[Step]:
    """Return the steps with each pool right after what it reads, before that is changed."""
    merged = [last for end, last in zip(ends, lasts, strict=True) if end not in steps]
    for step in steps:
        merged.append(step)
        merged += [last for end, last in zip(ends, lasts, strict=True) if end is step]
    return merged


def _check_modes(cut: str, steps: Iterable[Step], followed: Followed, *, training: bool) -> None:
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
    module: nn.Module, before: Iterable[Step], plans: Iterable[Any]
) -> tuple[str, ...]:
    """Return the paths of modules with tensors that run before the cut and after it."""
    ours = {line.target for plan in plans for line in plan.lines if line.kind == "module"}
    both = sorted(ours & {step.target for step in before if step.kind == "module"})
    return tuple(path for path in both if module.get_submodule(path).state_dict())


def _tensors_of(module: nn.Module, steps: Iterable[Step]) -> list[Tensor]:
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


def _same(a: Any, b: Any) -> bool:
    """Return whether two results are alike; a layout in memory may change the last bits."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        scale = float(a.nan_to_num().abs().max()) if a.numel() else 0.0
        return torch.allclose(a, b, rtol=0.0, atol=_TOLERANCE * scale, equal_nan=True)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
