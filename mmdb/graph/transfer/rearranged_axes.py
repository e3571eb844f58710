"""Which axes of results are which of the arguments': other arrangements, parts, concatenations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from mmdb.graph.ops.op_graph import Operation, Value
from mmdb.graph.transfer import op_kinds
from mmdb.graph.transfer.axis_terms import (
    FIXED,
    ONE,
    PLACE,
    TABLE,
    AxisSpace,
    Misfit,
    atom,
    concatenation,
    factor,
    join,
    leaves,
    mark,
    product,
    split,
)
from mmdb.graph.transfer.tensor_axes import Axes, Rule, Spaces, pin


def view_groups(
    before: Sequence[int], after: Sequence[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the axes that become one another when a tensor is reshaped, those of size 1 left out.

    Raises:
        ValueError: the shapes have different numbers of elements, or none.
    """
    left = [dim for dim, size in enumerate(before) if size != 1]
    right = [dim for dim, size in enumerate(after) if size != 1]
    while left or right:
        if not (left and right):
            raise ValueError("shapes of different sizes")
        one, other = [left.pop(0)], [right.pop(0)]
        a, b = before[one[0]], after[other[0]]
        while a != b:
            if a < b and left:
                one.append(left.pop(0))
                a *= before[one[-1]]
            elif b < a and right:
                other.append(right.pop(0))
                b *= after[other[-1]]
            else:
                raise ValueError("shapes of different sizes")
        yield one, other


def _view(axes: Axes, op: Operation) -> list[Spaces]:
    x = axes.of(op, "self")
    found = [ONE] * len(op.shape)
    for one, other in view_groups([space.size for space in x], op.shape):
        rest = product([x[dim] for dim in one])
        try:
            for dim in reversed(other[1:]):
                rest, found[dim] = factor(rest, op.shape[dim])
            found[other[0]] = rest
        except Misfit:
            mark(rest, FIXED)
            for dim in one:
                mark(x[dim], FIXED)
            for dim in other:
                found[dim] = atom(op.shape[dim], FIXED)
    return [tuple(found)]


def _permute(axes: Axes, op: Operation) -> list[Spaces]:
    x = axes.of(op, "self")
    return [tuple(x[dim] for dim in cast("tuple[int, ...]", op.arguments["dims"]))]


def _expand(axes: Axes, op: Operation) -> list[Spaces]:
    x = axes.of(op, "self")
    added = len(op.shape) - len(x)
    padded = [*([ONE] * added), *x]
    sizes = zip(padded, op.shape, strict=True)
    return [tuple(space if space.size == size else atom(size) for space, size in sizes)]


def _unsqueeze(axes: Axes, op: Operation) -> list[Spaces]:
    x, dim = axes.of(op, "self"), cast("int", op.arguments["dim"])
    return [(*x[:dim], ONE, *x[dim:])]


def _squeeze(axes: Axes, op: Operation) -> list[Spaces]:
    gone = cast("tuple[int, ...]", op.arguments["dims"])
    return [tuple(space for dim, space in enumerate(axes.of(op, "self")) if dim not in gone)]


def _repeat(axes: Axes, op: Operation) -> list[Spaces]:
    x, repeats = axes.of(op, "self"), cast("tuple[int, ...]", op.arguments["repeats"])
    padded = [*([ONE] * (len(repeats) - len(x))), *x]
    both = zip(padded, repeats, strict=True)
    return [tuple(product((atom(times), space)) for space, times in both)]


def _repeat_interleave(axes: Axes, op: Operation) -> list[Spaces]:
    x, dim = axes.of(op, "self"), cast("int", op.arguments["dim"]) % len(op.shape)
    times = cast("int", op.arguments["repeats"])
    return [(*x[:dim], product((x[dim], atom(times))), *x[dim + 1 :])]


def _shuffle(axes: Axes, op: Operation) -> list[Spaces]:
    x, groups = axes.of(op, "self"), cast("int", op.arguments["groups"])
    major, minor = factor(x[1], x[1].size // groups)
    return [(x[0], product((minor, major)), *x[2:])]


def _pixel_shuffle(axes: Axes, op: Operation) -> list[Spaces]:
    x, times = axes.of(op, "self"), cast("int", op.arguments["upscale_factor"])
    channels, inner = factor(x[-3], times * times)
    mark(inner, FIXED)
    return [(*x[:-3], channels, *(atom(size, PLACE) for size in op.shape[-2:]))]


# -- parts ------------------------------------------------------------------------


def _cut(space: AxisSpace, sizes: Sequence[int]) -> list[AxisSpace]:
    """Return consecutive parts of an axis."""
    found: list[AxisSpace] = []
    rest = space
    try:
        for size in sizes:
            if size == rest.size:
                found.append(rest)
                break
            if size == 0:
                found.append(AxisSpace(0))
                continue
            part, rest = split(rest, size)
            found.append(part)
        return found
    except Misfit:
        kept = {trait for leaf in leaves(space) for trait in leaf.traits} & {PLACE}
        pin(space)
        return [atom(size, *(kept or {FIXED})) for size in sizes]


def _slice(axes: Axes, op: Operation) -> list[Spaces]:
    x, dim = axes.of(op, "self"), cast("int", op.arguments["dim"])
    start, end, step = (cast("int", op.arguments[name]) for name in ("start", "end", "step"))
    if step != 1:
        pin(x[dim])
        part = atom(op.shape[dim], FIXED)
    else:
        sizes = [size for size in (start, end - start, x[dim].size - end)]
        part = _cut(x[dim], sizes)[1] if start else _cut(x[dim], sizes[1:])[0]
    return [(*x[:dim], part, *x[dim + 1 :])]


def _select(axes: Axes, op: Operation) -> list[Spaces]:
    x, dim = axes.of(op, "self"), cast("int", op.arguments["dim"])
    pin(x[dim])
    found = (*x[:dim], *x[dim + 1 :])
    return [found for _ in op.shapes]


def _split(axes: Axes, op: Operation) -> list[Spaces]:
    x, dim = axes.of(op, "self"), cast("int", op.arguments["dim"])
    sizes = cast("tuple[int, ...]", op.arguments["split_sizes"])
    return [(*x[:dim], part, *x[dim + 1 :]) for part in _cut(x[dim], sizes)]


def _joined(axes: Axes, op: Operation) -> list[Spaces]:
    dim = cast("int", op.arguments["dim"])
    several = [axes[value] for value in op.reads]
    if op.op == "stack":
        shape = (*op.shape[:dim], *op.shape[dim + 1 :])
        others = axes.broadcast(several, shape)
        return [(*others[:dim], atom(len(several), FIXED), *others[dim:])]
    several = [spaces for spaces in several if len(spaces) == len(op.shape)]
    found = list(several[0])
    for axis in range(len(found)):
        if axis == dim:
            found[axis] = concatenation([spaces[dim] for spaces in several])
        else:
            for spaces in several[1:]:
                join(found[axis], spaces[axis])
    return [tuple(found)]


def _pad(axes: Axes, op: Operation) -> list[Spaces]:
    found = list(axes.of(op, "self"))
    pad = cast("tuple[int, ...]", op.arguments["pad"])
    for index in range(len(pad) // 2):
        before, after = pad[2 * index : 2 * index + 2]
        dim = len(found) - 1 - index
        if before < 0 or after < 0:
            pin(found[dim])
            found[dim] = atom(op.shape[dim], PLACE)
        elif before or after:
            ends = (
                AxisSpace(before) if before != 1 else ONE,
                AxisSpace(after) if after != 1 else ONE,
            )
            found[dim] = concatenation((ends[0], found[dim], ends[1]))
    return [tuple(found)]


def _index(axes: Axes, op: Operation) -> list[Spaces]:
    x, given = axes.of(op, "self"), op.arguments.get("indices", op.arguments.get("index"))
    if isinstance(given, Value):
        dim, places = cast("int", op.arguments["dim"]), given
    else:
        several = enumerate(cast("tuple[object, ...]", given))
        ((dim, places),) = [(dim, one) for dim, one in several if isinstance(one, Value)]
    is_table = places.operation not in axes.from_inputs and dim == 0 and len(x) > 1
    mark(x[dim], TABLE if is_table else FIXED)
    return [(*x[:dim], *axes[places], *x[dim + 1 :])]


def _slice_scatter(axes: Axes, op: Operation) -> list[Spaces]:
    x, source = axes.of(op, "self"), axes.of(op, "src")
    dim, start, end = (cast("int", op.arguments[name]) for name in ("dim", "start", "end"))
    sizes = (start, end - start, x[dim].size - end)
    parts = _cut(x[dim], sizes if start else sizes[1:])
    for axis, space in enumerate(source):
        join(x[axis] if axis != dim else parts[1 if start else 0], space)
    return [x]


ARRANGEMENTS: Mapping[str, Rule] = {
    **dict.fromkeys(op_kinds.JOINING, _joined),
    **dict.fromkeys(("index", "index_select"), _index),
    **dict.fromkeys(("select", "unbind"), _select),
    "view": _view,
    "permute": _permute,
    "expand": _expand,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "repeat": _repeat,
    "repeat_interleave": _repeat_interleave,
    "channel_shuffle": _shuffle,
    "pixel_shuffle": _pixel_shuffle,
    "slice": _slice,
    "split_with_sizes": _split,
    "constant_pad_nd": _pad,
    "slice_scatter": _slice_scatter,
}
