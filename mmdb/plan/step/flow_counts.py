"""The counts of all operations of a flow, as arrays, with the memory of a step at each moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from mmdb.graph.ops.op_graph import BUFFER, CONSTANT, INPUT, PARAMETER, Operation, OpGraph, Value
from mmdb.plan.step import elementwise_rules, product_rules, reduction_rules
from mmdb.plan.step.counts import (
    KINDS,
    WAYS,
    Counted,
    KernelWork,
    Rule,
    Way,
    output,
    read_bytes,
    with_gradient,
    written_bytes,
)
from mmdb.plan.step.tensor_sizes import TensorSizes

_SOURCES = frozenset({INPUT, PARAMETER, BUFFER, CONSTANT})
RULES: Mapping[str, Rule] = {
    **product_rules.PRODUCT_RULES,
    **product_rules.CONVOLUTION_RULES,
    **product_rules.ATTENTION_RULES,
    **product_rules.RECURRENT_RULES,
    **elementwise_rules.POINTWISE_RULES,
    **elementwise_rules.NORM_RULES,
    **reduction_rules.REDUCTION_RULES,
    **reduction_rules.POOLING_RULES,
    **reduction_rules.MOVE_RULES,
}


def count(op: Operation, t: TensorSizes) -> Counted:
    """Return what an operation does; of one that nothing is known of, the bytes."""
    if op.op in _SOURCES:
        return Counted()
    rule = RULES.get(op.op)
    if rule is not None and op.reads:
        return rule(op, t)
    if rule is not None:
        return reduction_rules.fill(op, t)
    return _by_bytes(op, t)


def is_known(op: Operation) -> bool:
    """Whether an operation has a rule."""
    return op.op in _SOURCES or op.op in RULES


def _by_bytes(op: Operation, t: TensorSizes) -> Counted:
    read, written = read_bytes(op, t), written_bytes(op, t)
    forward = KernelWork(kind="unknown", read=read, written=written)
    gradients = with_gradient(op.reads, t)
    if not gradients:
        return Counted(forward=(forward,))
    results = tuple(output(op, i) for i, shape in enumerate(op.shapes) if shape is not None)
    back = KernelWork(
        kind="unknown", read=read + 2 * written, written=sum(t.bytes(one) for one in gradients)
    )
    return Counted(forward=(forward,), backward=(back,), saves=(*op.reads, *results))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """Bytes at one batch size.

    Attributes:
        inputs: of the batch itself.
        kept: of what lies between forward and backward because the backward reads it, without the
            batch.
        alive: at each operation forward, then at each one backward, from the last to the first:
            the batch, what is kept, intermediate results, gradients, workspaces.
        crossing: at each operation, of results of earlier ones that it or a later one reads.
    """

    inputs: int
    kept: int
    alive: NDArray[np.float64]
    crossing: NDArray[np.float64]


def step_memory(t: TensorSizes, counted: Sequence[Counted]) -> StepMemory:
    """Follow the memory of a step, forward and backward."""
    operations = t.flow.operations
    n = len(operations)
    last = [storage.made_by for storage in t.storages]
    saver = [n] * len(t.storages)  # the first operation whose backward reads it: it goes then
    for op, one in zip(operations, counted, strict=True):
        for value in op.reads:
            last[t.storage(value)] = op.ordinal
        if one.backward:
            for value in one.saves:
                saver[t.storage(value)] = min(saver[t.storage(value)], op.ordinal)
    for value in t.flow.outputs:
        last[t.storage(value)] = n - 1
    forward, backward, crossing = _Sweep(n), _Sweep(n), _Sweep(n)
    inputs = kept = 0
    for number, storage in enumerate(t.storages):
        if storage.is_weight:
            continue
        made, size = storage.made_by, storage.bytes
        crossing.add(made + 1, last[number], size)
        if operations[made].op == INPUT:
            inputs += size
            forward.add(0, n - 1, size)
            backward.add(0, n - 1, size)
            continue
        is_kept = saver[number] < n
        kept += size if is_kept else 0
        forward.add(made, n - 1 if is_kept else last[number], size)
        if is_kept:
            backward.add(saver[number], n - 1, size)
        if t.needs_gradient(Value(made)):
            backward.add(made, last[number], size)
    for op, one in zip(operations, counted, strict=True):
        at = op.ordinal
        if op.op == PARAMETER and t.needs_gradient(Value(at)) and op.path not in t.flow.unread:
            backward.add(0, last[t.storage(Value(at))], t.bytes(Value(at)))
        if one.backward:
            kept += one.saved_bytes
            forward.add(at, n - 1, one.saved_bytes)
            backward.add(at, n - 1, one.saved_bytes)
            backward.add(at, at, one.workspace)
        forward.add(at, at, one.workspace)
    alive = np.concatenate([forward.sums(), backward.sums()[::-1]])
    return StepMemory(inputs=inputs, kept=kept, alive=alive, crossing=crossing.sums())


class _Sweep:
    """Sums at each position, of amounts that hold over a range of positions."""

    def __init__(self, positions: int) -> None:
        self._steps = np.zeros(positions + 1)

    def add(self, first: int, last: int, amount: float) -> None:
        """Add an amount from the first to the last position; nothing if the last comes before."""
        if last >= first:
            self._steps[first] += amount
            self._steps[last + 1] -= amount

    def sums(self) -> NDArray[np.float64]:
        return np.cumsum(self._steps)[:-1]


_FLOAT, _INDEX = 4, 8


def batch_overhead(t: TensorSizes) -> Counted:
    """The rows of the batch are copied out of a partition, those of the label, too."""
    inputs = [op for op in t.flow.operations if op.op == INPUT]
    size = sum(prod(op.shape) * _FLOAT for op in inputs)
    rows = _batch_rows(t.flow)
    taken = KernelWork(kind="copy", read=size + rows * _INDEX, written=size, calls=len(inputs))
    labels = KernelWork(kind="copy", read=2 * rows * _INDEX, written=rows * _INDEX)
    return Counted(forward=(taken, labels))


def loss_overhead(t: TensorSizes) -> Counted:
    """Cross-entropy over the outputs; the squared error where there is one output a row.

    A loss of an owner's own is taken to cost about as much.
    """
    forward: list[KernelWork] = []
    backward: list[KernelWork] = []
    kept = 0
    rows = _batch_rows(t.flow)
    for value in t.flow.outputs:
        if not t.needs_gradient(value):
            continue
        n, size = t.elements(value), t.bytes(value)
        if n > rows:
            kept += size + rows * _INDEX + _FLOAT  # log-probabilities, labels, their count
            forward += [
                KernelWork(kind="transcendental", flops=5 * n, read=2 * size, written=size),
                KernelWork(
                    kind="reduction", flops=rows, read=rows * (_FLOAT + _INDEX), written=_FLOAT
                ),
            ]
            backward += [
                KernelWork(kind="elementwise", flops=rows, read=rows * _INDEX, written=size),
                KernelWork(kind="transcendental", flops=4 * n, read=2 * size, written=size),
            ]
        else:
            kept += 2 * size
            forward.append(KernelWork(kind="reduction", flops=3 * n, read=2 * size, written=_FLOAT))
            backward.append(
                KernelWork(kind="elementwise", flops=2 * n, read=2 * size, written=size)
            )
        backward.append(KernelWork(kind="copy", written=_FLOAT))
    return Counted(forward=tuple(forward), backward=tuple(backward), saved_bytes=kept)


def _batch_rows(flow: OpGraph) -> int:
    return next((op.shape[0] for op in flow.operations if op.op == INPUT and op.shape), 1)


_NUMBER = {kind: number for number, kind in enumerate(KINDS)}
_WAY = {way: number for number, way in enumerate(WAYS)}
_DIRECTION: dict[bool, Way] = {False: "forward", True: "backward"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The parts of a step at one batch size; attributes as those of `Work`.

    `amounts` are FLOPs, bytes read, bytes written and calls, (4, parts).
    """

    tensors: TensorSizes
    ops: tuple[str, ...]
    kinds: NDArray[np.int64]
    backward: NDArray[np.bool_]
    ways: NDArray[np.int64]
    windows: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    amounts: NDArray[np.float64]
    sides: NDArray[np.float64]
    held: StepMemory
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
    t = TensorSizes(flow, frozen)
    counted = [count(op, t) for op in flow.operations]
    loss = loss_overhead(t)
    rows: list[tuple[str, int, bool, KernelWork]] = []
    rows += _work_rows("batch", -1, batch_overhead(t))
    for op, one in zip(flow.operations, counted, strict=True):
        rows += _work_rows(op.op, op.ordinal, one)
    rows += [("gradient", at, True, part) for at, part in _added_up(t, counted)]
    rows += _work_rows("loss", len(flow.operations), loss)
    parts = [part for _, _, _, part in rows]
    memory = step_memory(t, counted)
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


def _work_rows(name: str, at: int, one: Counted) -> Iterator[tuple[str, int, bool, KernelWork]]:
    yield from ((name, at, False, part) for part in one.forward)
    yield from ((name, at, True, part) for part in one.backward)


def _added_up(t: TensorSizes, counted: list[Counted]) -> Iterator[tuple[int, KernelWork]]:
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
            yield at, KernelWork(kind="view")
        if times > 1:
            n, size = (times - 1) * t.elements(value), (times - 1) * t.bytes(value)
            yield (
                at,
                KernelWork(
                    kind="elementwise", flops=n, read=2 * size, written=size, calls=times - 1
                ),
            )


def _cuts(t: TensorSizes) -> tuple[tuple[int, ...], tuple[int, ...]]:
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
