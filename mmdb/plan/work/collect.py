"""All operations of a flow counted, as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.ops.op_graph import PARAMETER, OpGraph, Value
from mmdb.plan.work import surroundings
from mmdb.plan.work.counts import KINDS, WAYS, Counted, Part, Way
from mmdb.plan.work.memory import Held, held
from mmdb.plan.work.rules.registry import count, is_known
from mmdb.plan.work.tensors import Tensors

_NUMBER = {kind: number for number, kind in enumerate(KINDS)}
_WAY = {way: number for number, way in enumerate(WAYS)}
_DIRECTION: dict[bool, Way] = {False: "forward", True: "backward"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The parts of a step at one batch size; attributes as those of `Work`.

    `amounts` are FLOPs, bytes read, bytes written and calls, (4, parts).
    """

    tensors: Tensors
    ops: tuple[str, ...]
    kinds: NDArray[np.int64]
    backward: NDArray[np.bool_]
    ways: NDArray[np.int64]
    windows: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    amounts: NDArray[np.float64]
    sides: NDArray[np.float64]
    held: Held
    kept: int
    cuts: tuple[int, ...]
    cut_parameter_bytes: tuple[int, ...]
    unknown: tuple[str, ...]

    def is_like(self, other: Collected) -> bool:
        """Whether another batch size has the same parts."""
        return (
            self.ops == other.ops
            and np.array_equal(self.kinds, other.kinds)
            and np.array_equal(self.ordinals, other.ordinals)
            and self.held.alive.shape == other.held.alive.shape
        )


def collect(flow: OpGraph, frozen: Collection[str] = ()) -> Collected:
    """Count every operation of a flow, and what a step does around the model.

    Args:
        frozen: paths of parameters that are not trained.
    """
    t = Tensors(flow, frozen)
    counted = [count(op, t) for op in flow.operations]
    loss = surroundings.loss(t)
    rows: list[tuple[str, int, bool, Part]] = []
    rows += _rows("batch", -1, surroundings.batch(t))
    for op, one in zip(flow.operations, counted, strict=True):
        rows += _rows(op.op, op.ordinal, one)
    rows += [("gradient", at, True, part) for at, part in _added_up(t, counted)]
    rows += _rows("loss", len(flow.operations), loss)
    parts = [part for _, _, _, part in rows]
    memory = held(t, counted)
    cuts, sizes = _cuts(t)
    amounts = [[p.flops, p.read, p.written, p.calls] for p in parts]
    return Collected(
        tensors=t,
        ops=tuple(name for name, _, _, _ in rows),
        kinds=np.array([_NUMBER[part.kind] for part in parts], dtype=np.int64),
        backward=np.array([is_back for _, _, is_back, _ in rows], dtype=np.bool_),
        ways=np.array(
            [_WAY[part.gradient or _DIRECTION[is_back]] for _, _, is_back, part in rows],
            dtype=np.int64,
        ),
        windows=np.array([part.window for part in parts], dtype=np.int64),
        ordinals=np.array([at for _, at, _, _ in rows], dtype=np.int64),
        amounts=np.array(amounts, dtype=float).T,
        sides=np.array([part.sides or (0, 0, 0) for part in parts], dtype=float).T,
        held=memory,
        kept=memory.kept + loss.saved_bytes,
        cuts=cuts,
        cut_parameter_bytes=sizes,
        unknown=tuple(op.op for op in flow.operations if not is_known(op)),
    )


def _rows(name: str, at: int, one: Counted) -> Iterator[tuple[str, int, bool, Part]]:
    yield from ((name, at, False, part) for part in one.forward)
    yield from ((name, at, True, part) for part in one.backward)


def _added_up(t: Tensors, counted: list[Counted]) -> Iterator[tuple[int, Part]]:
    """Yield the sums of gradients that several readers of a tensor give it.

    A parameter is handed its gradient: one call, and nothing moves.
    """
    readers: Counter[Value] = Counter()
    for op, one in zip(t.flow.operations, counted, strict=True):
        if one.backward:
            readers.update(value for value in op.reads if t.needs_gradient(value))
    for value, times in readers.items():
        at = value.operation
        if t.flow.operations[at].op == PARAMETER:
            yield at, Part(kind="view")
        if times > 1:
            n, size = (times - 1) * t.elements(value), (times - 1) * t.bytes(value)
            yield (
                at,
                Part(kind="elementwise", flops=n, read=2 * size, written=size, calls=times - 1),
            )


def _cuts(t: Tensors) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return where layers with weights begin, and the bytes of parameters that each one adds."""
    cuts: list[int] = []
    sizes: list[int] = []
    seen: set[int] = set()
    for op in t.flow.operations:
        found = {t.storage(value) for value in op.reads if t.is_weight(value)}
        new = {
            one
            for one in found - seen
            if t.flow.operations[t.storages[one].made_by].op == PARAMETER
        }
        if new:
            cuts.append(op.ordinal)
            sizes.append(sum(t.storages[one].bytes for one in new))
            seen |= new
    return tuple(cuts), tuple(sizes)
