"""Generated outlines, and the changes under which a score is known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from hypothesis import settings
from hypothesis import strategies as st

from mmdb.graph.match.layer_orders import COPIES
from mmdb.graph.match.pack import BranchPart, ParallelBranches, pack
from mmdb.graph.ops.skeleton import ADD, CONCAT, MODEL_INPUT, MULTIPLY, LayerSkeleton, SkeletonLayer

QUICK = settings(max_examples=50, deadline=None, database=None, derandomize=True)
FORMS = {"conv2d": 4, "batch_norm": 1, "linear": 2, "scale": 1}
SIZES = (1, 3, 16, 24, 32)


def layer(ordinal: int, kind: str, shape: tuple[int, ...] = (), groups: int = 1) -> SkeletonLayer:
    return SkeletonLayer(
        ordinal=ordinal,
        kind=kind,
        path=f"part{ordinal}",
        tensors=(("weight", f"part{ordinal}.weight"),) if shape else (),
        shape=shape,
        groups=groups,
        parameters=prod(shape) + shape[0] if shape else 0,
    )


def outline(*rows: tuple[str, tuple[int, ...], Sequence[int]]) -> LayerSkeleton:
    """Return the outline whose layers are (kind, shape, what it reads)."""
    return LayerSkeleton(
        layers=tuple(layer(number, kind, shape) for number, (kind, shape, _) in enumerate(rows)),
        inputs=tuple(tuple(dict.fromkeys(reads)) or (MODEL_INPUT,) for *_, reads in rows),
    )


@st.composite
def outlines(draw: st.DrawFn, most: int = 12, sizes: Sequence[int] = SIZES) -> LayerSkeleton:
    """Any graphs, of few kinds, so that many parts are alike; few enough orders to keep apart."""
    rows: list[tuple[str, tuple[int, ...], list[int]]] = []
    for number in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from([*FORMS, ADD, ADD, CONCAT, MULTIPLY]))
        shape = tuple(draw(st.sampled_from(sizes)) for _ in range(FORMS.get(kind, 0)))
        count = (
            draw(st.integers(2, 3)) if kind not in FORMS else draw(st.sampled_from([1, 1, 1, 3]))
        )
        low = max(0, number - 4)
        rows.append(
            (kind, shape, [draw(st.integers(low, number - 1)) for _ in range(count * (number > 0))])
        )
    return outline(*rows)


def copies_of(part: BranchPart) -> int:
    """Return how many rows a layer would need for all orders to be kept apart."""
    inner = [
        copies_of(branch) << len(item.parts) - 1
        for item in part.items
        if isinstance(item, ParallelBranches)
        for branch in item.parts
    ]
    return max(inner, default=1)


def keeps_all_orders(found: LayerSkeleton) -> bool:
    return copies_of(pack(found).branches) <= COPIES


def renumbered(found: LayerSkeleton, seed: int) -> LayerSkeleton:
    """Return the same graph with other numbers and names, and what commutes the other way round."""
    source = random.Random(seed)
    waiting = {number: {s for s in reads if s >= 0} for number, reads in enumerate(found.inputs)}
    order: list[int] = []
    while waiting:
        ready = sorted(number for number, reads in waiting.items() if reads <= set(order))
        order.append(source.choice(ready))
        del waiting[order[-1]]
    place = {MODEL_INPUT: MODEL_INPUT} | {number: rank for rank, number in enumerate(order)}
    inputs = []
    for number in order:
        reads = [place[read] for read in found.inputs[number]]
        if found.layers[number].kind in (ADD, MULTIPLY):
            source.shuffle(reads)
        inputs.append(tuple(reads))
    layers = tuple(
        replace(found.layers[number], ordinal=rank, path=f"renamed{source.random()}")
        for rank, number in enumerate(order)
    )
    return LayerSkeleton(layers=layers, inputs=tuple(inputs))


def with_block(
    found: LayerSkeleton, edge: tuple[int, int], kinds: Sequence[str], residual: bool
) -> LayerSkeleton:
    """Return an outline with a chain of layers, or a residual block of them, put into an edge.

    Args:
        edge: a layer, and which of its inputs; the block stands between the two.
    """
    reader, slot = edge
    block = [(kind, (7,) * FORMS[kind]) for kind in kinds]
    extra = len(block) + residual
    moved = {MODEL_INPUT: MODEL_INPUT} | {
        number: number + extra * (number >= reader) for number in range(len(found.layers))
    }
    layers = list(found.layers[:reader])
    inputs = list(found.inputs[:reader])
    entry = last = found.inputs[reader][slot]
    for kind, shape in block:
        layers.append(layer(len(layers), kind, shape))
        inputs.append((last,))
        last = len(layers) - 1
    if residual:
        layers.append(layer(len(layers), ADD))
        inputs.append((last, entry))
        last = len(layers) - 1
    for number in range(reader, len(found.layers)):
        layers.append(replace(found.layers[number], ordinal=len(layers)))
        reads = [moved[read] for read in found.inputs[number]]
        if number == reader:
            reads[slot] = last
        inputs.append(tuple(reads))
    return LayerSkeleton(layers=tuple(layers), inputs=tuple(inputs))


def blocks() -> st.SearchStrategy[tuple[int, int, list[str], bool]]:
    """Where a block goes, as two numbers to be reduced, and what it is."""
    kinds = st.lists(st.sampled_from(list(FORMS)), min_size=1, max_size=4)
    return st.tuples(st.integers(0, 99), st.integers(0, 99), kinds, st.booleans())


def with_blocks(
    found: LayerSkeleton, put: Sequence[tuple[int, int, list[str], bool]]
) -> LayerSkeleton:
    for reader, slot, kinds, residual in put:
        reader %= len(found.layers)
        edge = reader, slot % len(found.inputs[reader])
        found = with_block(found, edge, kinds, residual)
    return found


def resized(found: LayerSkeleton, factors: Sequence[Sequence[int]]) -> LayerSkeleton:
    """Return an outline whose sizes are multiplied, by whole numbers."""
    layers = [
        layer(
            number,
            old.kind,
            tuple(size * factor for size, factor in zip(old.shape, row, strict=False)),
        )
        for number, (old, row) in enumerate(zip(found.layers, factors, strict=True))
    ]
    return replace(found, layers=tuple(layers))


def weight(found: LayerSkeleton) -> float:
    return sum(0.25 if item.kind in (ADD, CONCAT, MULTIPLY) else 1.0 for item in found.layers)


def residual(depth: int, width: int = 16) -> LayerSkeleton:
    """A stem, so many residual blocks of equal form, and a head."""
    rows: list[tuple[str, tuple[int, ...], Sequence[int]]] = [("conv2d", (width, 3, 3, 3), ())]
    for _ in range(depth):
        x = len(rows) - 1
        for step in range(2):
            rows.append(("conv2d", (width, width, 3, 3), [x + 2 * step]))
            rows.append(("batch_norm", (width,), [x + 2 * step + 1]))
        rows.append((ADD, (), [x + 4, x]))
    rows.append(("linear", (10, width), [len(rows) - 1]))
    return outline(*rows)
