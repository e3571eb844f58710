"""The work of a training step as a function of the batch size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import nn

from mmdb.graph.ops.known_values import Inputs
from mmdb.graph.ops.op_graph import BUFFER, PARAMETER, CannotTrace, OpGraph, Value
from mmdb.plan.step.counts import KINDS, OperationKind
from mmdb.plan.step.flow_counts import Collected, collect
from mmdb.plan.step.recording import MakeOptimizer, Update, record_training, update_of

#: Batch sizes at which a module is recorded. Both even: some layers pair the rows of a batch.
BATCHES = (2, 4)
#: Measured over 17 models, most of them of other libraries: what a process grows by in its first
#: step beside tensors (kernels, their tables and buffers), and what its heap takes for a byte of
#: the tensors of a step. The C library leaves holes that the next block does not fit into.
FIRST_STEP_BYTES, HEAP = 2.5e7, 1.5
_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinearAmounts:
    """fixed + row x batch size, of many quantities at once."""

    fixed: _Array
    row: _Array

    def at(self, batch: float) -> _Array:
        """Return the quantities at a batch size."""
        return self.fixed + self.row * batch


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one step of training does and holds.

    Every amount is a constant plus a multiple of the batch size, exact where `is_exact`.

    Attributes:
        ops: of each part, the operation that it belongs to: a name of torch's; or "batch", "loss",
            "gradient" where gradients of several readers are added up or handed to a parameter.
        kinds: of each part, its number in KINDS.
        backward: whether each part runs backward.
        ways: of each part, its number in WAYS.
        windows: of each part, the places that its kernel covers, or that a norm is taken over.
        ordinals: of the operation of each part in the flow; -1 and beyond the last outside of it.
        sides: m, n, k of each part's product, (3, parts); 0 for what is none.
        kept, alive, crossing: as `Held`; at the largest moment `alive` is the peak.
        cuts: ordinals at which a layer with weights begins.
        unknown: operations without a rule, how many of each; their bytes count, and nothing else.
        is_exact: whether two recordings at different batch sizes had the same operations. If not,
            all amounts are taken to be multiples of the batch size.
    """

    ops: tuple[str, ...]
    kinds: NDArray[np.int64]
    backward: NDArray[np.bool_]
    ways: NDArray[np.int64]
    windows: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    flops: LinearAmounts
    read: LinearAmounts
    written: LinearAmounts
    calls: LinearAmounts
    sides: LinearAmounts
    inputs: LinearAmounts
    kept: LinearAmounts
    alive: LinearAmounts
    crossing: LinearAmounts
    cuts: tuple[int, ...]
    cut_parameter_bytes: tuple[int, ...]
    parameters: int
    parameter_bytes: int
    buffer_bytes: int
    gradient_bytes: int
    update: Update
    unknown: Mapping[str, int]
    is_exact: bool

    @property
    def state_bytes(self) -> int:
        """Return the bytes of weights, buffers and optimizer state."""
        return self.parameter_bytes + self.buffer_bytes + self.update.state_bytes

    def peak_bytes(self, batch: int) -> float:
        """Return the most that a step holds: state, gradients, activations and workspaces."""
        return self.state_bytes + max(self._computing(batch), self._updating(batch))

    def resident_bytes(self, batch: int) -> float:
        """Return what a process grows by that trains the module, on the CPU."""
        held = max(HEAP * self._computing(batch), self._updating(batch))
        return FIRST_STEP_BYTES + self.state_bytes + held

    def _computing(self, batch: int) -> float:
        return float(self.alive.at(batch).max(initial=0.0))

    def _updating(self, batch: int) -> float:
        return self.gradient_bytes + self.update.workspace + float(self.inputs.at(batch)[0])

    def by_kind(self, batch: int) -> dict[OperationKind, dict[str, float]]:
        """Return FLOPs, bytes and calls of each kind that occurs, forward and backward."""
        sums: dict[OperationKind, dict[str, float]] = {}
        amounts = {
            "flops": self.flops.at(batch),
            "bytes": self.read.at(batch) + self.written.at(batch),
            "calls": self.calls.at(batch),
        }
        for number in np.unique(self.kinds):
            here = self.kinds == number
            sums[KINDS[number]] = {
                f"{name}_{way}": float(amount[here & (self.backward == (way == "backward"))].sum())
                for name, amount in amounts.items()
                for way in ("forward", "backward")
            }
        return sums

    @cached_property
    def operations(self) -> int:
        """Return how many operations of the module compute or move something."""
        return len({n for n, op in zip(self.ordinals.tolist(), self.ops, strict=True) if n >= 0})


def work_of(
    module: nn.Module,
    inputs: Callable[[int], Inputs],
    *,
    optimizer: MakeOptimizer | None = None,
) -> Work:
    """Return the work of training a module; it is only read, and may be on the meta device.

    Args:
        inputs: of a forward over a number of rows, as `batch_of` makes them.
        optimizer: makes the optimizer of its parameters; without it there is no update.

    Raises:
        CannotTrace: the forward cannot be recorded.
    """
    frozen = {path for path, one in module.named_parameters() if not one.requires_grad}
    first = record_training(module, inputs(BATCHES[0]))
    try:
        second = record_training(module, inputs(BATCHES[1]))
    except CannotTrace:
        second = None
    return work_of_flows(first, second, BATCHES, frozen=frozen, optimizer=optimizer)


def work_of_flows(
    first: OpGraph,
    second: OpGraph | None,
    batches: Sequence[int],
    *,
    frozen: Collection[str] = (),
    optimizer: MakeOptimizer | None = None,
) -> Work:
    """Return the work of a module from its flows at two batch sizes."""
    low = collect(first, frozen)
    high = low if second is None else collect(second, frozen)
    is_exact = second is not None and low.is_like(high)

    def line(amounts: Callable[[Collected], _Array]) -> LinearAmounts:
        return _line(amounts(low), amounts(high) if is_exact else None, batches)

    parameters = [op for op in first.operations if op.op == PARAMETER]
    trained = [op for op in parameters if low.tensors.needs_gradient(Value(op.ordinal))]
    read = [op.shape for op in trained if op.path not in first.unread]
    sizes = low.tensors
    gradients = sum(sizes.bytes(Value(op.ordinal)) for op in trained if op.path not in first.unread)
    return Work(
        ops=low.ops,
        kinds=low.kinds,
        backward=low.backward,
        ways=low.ways,
        windows=low.windows,
        ordinals=low.ordinals,
        flops=line(lambda one: one.amounts[0]),
        read=line(lambda one: one.amounts[1]),
        written=line(lambda one: one.amounts[2]),
        calls=line(lambda one: one.amounts[3]),
        sides=line(lambda one: one.sides),
        inputs=line(lambda one: np.array([one.held.inputs], dtype=float)),
        kept=line(lambda one: np.array([one.kept], dtype=float)),
        alive=line(lambda one: one.held.alive),
        crossing=line(lambda one: one.held.crossing),
        cuts=low.cuts,
        cut_parameter_bytes=low.cut_parameter_bytes,
        parameters=len(read),
        parameter_bytes=sum(sizes.bytes(Value(op.ordinal)) for op in parameters),
        buffer_bytes=sum(
            sizes.bytes(Value(op.ordinal)) for op in first.operations if op.op == BUFFER
        ),
        gradient_bytes=gradients,
        update=update_of(read, optimizer),
        unknown=Counter(low.unknown),
        is_exact=is_exact,
    )


def _line(low: _Array, high: _Array | None, batches: Sequence[int]) -> LinearAmounts:
    if high is None:
        return LinearAmounts(np.zeros_like(low), low / batches[0])
    row = (high - low) / (batches[1] - batches[0])
    return LinearAmounts(low - row * batches[0], row)
