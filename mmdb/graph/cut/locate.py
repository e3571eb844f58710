"""Where in a forward a cut is, and errors that say where one could cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from torch import nn

from mmdb.errors import CutNotFound, NotACut
from mmdb.graph.cut.follow import NotFollowed, follow
from mmdb.graph.cut.inputs import Inputs
from mmdb.graph.cut.select import after, intruder, is_tensor
from mmdb.graph.cut.steps import Followed, Step
from mmdb.messages import show

_HINTED = 12  # cuts that a hint lists
_TUPLES = (nn.MultiheadAttention, nn.RNNBase)  # return several values


def follow_to(
    module: nn.Module, cuts: Iterable[str], inputs: Inputs, *, training: bool = False
) -> Followed:
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
        return follow(module, lambda part: id(part) in entered, inputs=inputs, training=training)
    except NotFollowed as exc:
        where = f"the forward of {exc.path}" if exc.path else "the network's forward"
        raise NotACut(
            f"{where} cannot be followed: {exc}",
            hint=_hint(module, inputs) or "Freeze up to a module further out.",
        ) from exc


def _check_path(module: nn.Module, cut: str, inputs: Inputs) -> None:
    try:
        found = module.get_submodule(cut)
    except AttributeError:
        found = module
    if found is module:
        raise CutNotFound(
            f"the network has no module {show(cut)}", hint=_hint(module, inputs, near=cut)
        )


def result_at(module: nn.Module, followed: Followed, cut: str, inputs: Inputs) -> Step:
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
    return cast("Step", results[0])


def survey(module: nn.Module, inputs: Inputs) -> list[tuple[str, bool]]:
    """Return (path, whether one can cut there) of what runs, in the order of the outputs."""
    try:
        followed = follow(module, inputs=inputs)
    except NotFollowed:
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


def _hint(module: nn.Module, inputs: Inputs, *, near: str = "") -> str:
    """Return the sentence that names cuts: the nearest ones to a path that runs, or all."""
    found = survey(module, inputs)
    paths = [path for path, works in found if works]
    place = next((n for n, (path, _) in enumerate(found) if path == near), None)
    if place is not None:
        before = [path for path, works in found[:place] if works][-2:]
        behind = [path for path, works in found[place + 1 :] if works][:2]
        return f"Near it one can cut at {_listed([*before, *behind])}." if before or behind else ""
    more = f" and {len(paths) - _HINTED} more" if len(paths) > _HINTED else ""
    return f"One can cut at {_listed(_spread(paths))}{more}." if paths else ""


def _spread(paths: Sequence[str]) -> list[str]:
    """Return at most as many as a hint lists, the outermost first to stay, in their order."""
    kept = sorted(paths, key=lambda path: path.count("."))[:_HINTED]
    return [path for path in paths if path in kept]


def _listed(paths: Sequence[str]) -> str:
    return ", ".join(paths)


def reads_more(
    module: nn.Module,
    cut: str,
    start: Step,
    followed: Followed,
    inputs: Inputs,
) -> NotACut:
    """Return the error for a cut of which what comes after it reads more than its output."""
    other = intruder(start, followed)
    if other is None:
        what = f"the network's output does not depend on {cut} alone"
    else:
        what = f"after {cut}, {other.name} also reads what does not pass through it"
    return NotACut(what, hint=_hint(module, inputs, near=cut))
