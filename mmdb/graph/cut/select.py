"""Which steps of a forward a part of it needs."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from mmdb.graph.cut.steps import Followed, Step, steps_in


def needed(ends: Iterable[Step], followed: Followed) -> list[Step]:
    """Return the steps that lead to `ends` and these, in their order; inputs are left out."""
    wanted = set(ends)
    found = []
    for step in reversed(followed.steps):
        if step in wanted:
            wanted.update(step.sources)
            found.append(step)
    return [step for step in reversed(found) if step.kind != "input"]


def after(start: Step, output: Any, followed: Followed) -> list[Step] | None:
    """Return the steps from `start` (left out) to an output, or None if they read more than it.

    How many rows the inputs have and where they lie is no more: the features say it, too.
    """
    wanted = set(steps_in(output))
    found = []
    meets = start in wanted
    for step in reversed(followed.steps):
        if step is start or step not in wanted:
            continue
        if step.kind == "input":
            return None
        found.append(step)
        if not _is_of_batch(step):
            wanted.update(step.sources)
            meets = meets or start in wanted
    return list(reversed(found)) if meets else None


def part_after(start: Step, output: Any, followed: Followed) -> list[Step] | None:
    """Return `after`, ready to be planned: what it asks of the inputs is asked of `start`."""
    steps = after(start, output, followed)
    for step in steps or ():
        if _is_of_batch(step):
            step.target = _device_of if _is_read(step, "device") else _rows_of
            step.kind, step.args, step.kwargs = "function", (start,), {}
    return steps


def intruder(start: Step, followed: Followed) -> Step | None:
    """Return the first step that reads `start`, or what comes of it, and the inputs besides."""
    ours, others = {start}, set[Step]()
    for step in followed.steps:
        if step is start:
            continue
        reads = list(step.sources)
        is_other = step.kind == "input" or any(source in others for source in reads)
        if is_other and any(source in ours for source in reads):
            return step
        if any(source in ours for source in reads):
            ours.add(step)
        elif is_other:
            others.add(step)
    return None


def is_tensor(result: object, followed: Followed) -> bool:
    """Return whether what a module returned is one tensor, by the way it is used."""
    if not isinstance(result, Step):
        return False
    return not any(_takes_apart(step) for step in followed.steps if step.args[:1] == (result,))


def _takes_apart(step: Step) -> bool:
    """Return whether a step does to its first argument what one does to no tensor of rows."""
    if step.kind != "function" or len(step.args) < 2:
        return False
    key = step.args[1]
    if step.target is operator.getitem:
        return isinstance(key, int | str)
    return step.target is getattr and isinstance(key, str) and not hasattr(Tensor, key)


def _is_of_batch(step: Step) -> bool:
    """Return whether a step asks an input how many rows it has, or where it lies."""
    if _is_read(step, "device"):
        return _is_input(step.args[0])
    if step.kind == "method" and step.target == "size":
        dim = step.args[1:] or tuple(step.kwargs.values())
        return dim == (0,) and _is_input(step.args[0])
    if step.kind != "function" or step.target is not operator.getitem:
        return False
    shape, index = step.args
    if not isinstance(shape, Step) or index != 0 or not isinstance(index, int):
        return False
    is_size = shape.kind == "method" and shape.target == "size" and len(shape.args) == 1
    return (is_size or _is_read(shape, "shape")) and _is_input(shape.args[0])


def _is_read(step: Step, attribute: str) -> bool:
    return step.kind == "function" and step.target is getattr and step.args[1] == attribute


def _is_input(value: object) -> bool:
    return isinstance(value, Step) and value.kind == "input"


def _rows_of(features: Any) -> Any:
    return features.shape[0]


def _device_of(features: Any) -> Any:
    return features.device
