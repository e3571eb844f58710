"""What a model's training step does, operation by operation, and what that costs. Pure.

Nothing is allocated: sizes come from a flow, which is recorded on the meta device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class LayerCost(NamedTuple):
    """A layer, or several in a row, between which a model may be cut."""

    forward_row_s: float
    activation_row_bytes: float  # of its output, which the next layer needs
    parameter_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCost:
    """What training one candidate costs.

    A step over b rows takes `step_s + row_s * b`, forward, backward and update (Pollux, OSDI 2021,
    section 3.2: T_grad; Galvatron, VLDB 2023).
    """

    step_s: float  # a0: of a step, whatever its rows
    row_s: float  # a1: of a row of a step
    batch_size: int = 64
    read_row_s: float = 0.0  # out of the database into the node's cache; once a node and partition
    validation_row_s: float = 0.0
    hop_s: float = 0.0  # of a hop, whatever its rows and the state's bytes
    durable_s: float = 0.0  # of a hop at an epoch's end beside that, whatever the state's bytes
    build_s: float = 0.0  # of making the module where the state comes from elsewhere
    state_bytes: float = 0.0  # weights, buffers and the optimizer's state
    gradient_bytes: float = 0.0
    memory_bytes: float = 0.0  # of a process that trains it, whatever its batch
    memory_row_bytes: float = 0.0  # of a row of a batch: activations
    exchanges: tuple[tuple[int, float], ...] = ()  # measured, of a step: (workers, seconds)
    layers: tuple[LayerCost, ...] = ()  # for what-ifs that cut the model; may be empty
    deviation: float = 0.05  # relative standard deviation of a hop's seconds
    uncertainty: float = 0.0  # the same of the costs themselves: one factor for all its hops
