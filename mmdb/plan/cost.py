"""What a plan is made from, and what it says: costs, machines, work, estimates. Plain numbers.

Seconds are of one worker alone on its node, unless a name says otherwise. Bytes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from mmdb.train.schedule.core import Placement

#: The first four are those that mmdb executes; the others are what-ifs.
Kind = Literal[
    "mop",
    "task",
    "model_average",
    "data_parallel",
    "data_parallel_tree",
    "data_parallel_overlap",
    "parameter_server",
    "parameter_server_async",
    "partitioned",
    "pipeline",
]
EXECUTED: tuple[Kind, ...] = ("mop", "task", "model_average", "data_parallel")
#: Phases of a run, in the order in which they are shown.
PHASES = ("compute", "read", "hop", "communication", "validation", "idle")
#: A note of a plan that begins so says what is shared, and warns of nothing.
FEATURES = "Features of "


class Layer(NamedTuple):
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
    layers: tuple[Layer, ...] = ()  # for what-ifs that cut the model; may be empty
    deviation: float = 0.05  # relative standard deviation of a hop's seconds
    uncertainty: float = 0.0  # the same of the costs themselves: one factor for all its hops


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A way between two processes: n bytes take `latency_s + n / bytes_per_s`."""

    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine."""

    name: str = ""
    slots: int = 1  # workers that it may have
    memory_bytes: float = float("inf")  # of all its workers together
    slowdown: tuple[float, ...] = (1.0,)  # of a step at 1, 2, ... busy workers; the last holds on


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Machines, and what it costs to send something between them or to leave it somewhere."""

    nodes: tuple[Node, ...]
    local: Link = field(default_factory=lambda: Link(latency_s=1e-4, bytes_per_s=1e9))
    link: Link = field(default_factory=lambda: Link(latency_s=5e-4, bytes_per_s=1e9))
    start_s: float = 3e-4  # of a collective operation, whatever its bytes
    meet_s: float = 0.02  # until the workers of a new group are connected
    open_s: float = 0.0  # until workers have sessions, before the first hop
    late_s: float = 0.0  # by which each worker of a node begins after the one before it
    gap_s: float = 0.0  # between two hops of a worker, in which it is told of the next
    encode_byte_s: float = 0.0  # of encoding and naming a state, after each hop
    publish_byte_s: float = 0.0  # of leaving a state where other workers find it
    load_byte_s: float = 0.0  # of taking up a state that another worker left
    checkpoint_byte_s: float = 0.0  # of making a state durable, at an epoch's end
    merge_byte_s: float = 0.0  # of averaging a byte of one of several states
    update_byte_s: float = 0.0  # of a parameter server adding a byte of gradients
    deviation: float = 0.0  # relative standard deviation from run to run, common to all hops
    shards: bool = False  # whether each partition lies on one node, on the nodes in turn
    simulated: bool = False  # whether it was described, not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is to be trained."""

    candidates: tuple[CandidateCost, ...]
    rows: tuple[int, ...]  # of each train partition
    validation_rows: int = 0
    epochs: int = 1
    placement: Placement = field(default_factory=dict)  # partition -> names of its nodes
    free: bool = False  # partition order: chosen for speed, or fixed by the seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """One way of training a load: what the optimizer may choose."""

    strategy: Kind
    workers: int
    per_node: int  # workers of the fullest node
    partitions: int
    group: int = 1  # workers of one candidate
    batch_size: int | None = None  # None: each candidate's own
    policy: str | None = None  # of hops; None where nothing is to be decided
    servers: int = 0  # shards of a parameter server
    micro_batches: int = 1  # of a pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a plan says of one way of training.

    The six phases are worker-seconds: together `knobs.workers` times `p50_s`.
    """

    knobs: Knobs
    compute_s: float = 0.0
    read_s: float = 0.0
    hop_s: float = 0.0
    communication_s: float = 0.0
    validation_s: float = 0.0
    idle_s: float = 0.0
    p10_s: float = 0.0
    p50_s: float = 0.0
    p90_s: float = 0.0
    lower_bound_s: float = 0.0
    bytes_moved: float = 0.0  # between workers, or to and from where states lie
    memory_bytes: float = 0.0  # at most, on the fullest node
    hops: int = 0
    why_not: str = ""  # empty where it can be done
    executed: bool = True  # False: a what-if
    simulated: bool = False  # whether its cluster was described, not measured
    exact: bool = True  # whether every hop was simulated, not a sample, and not the formula alone

    @property
    def feasible(self) -> bool:
        """Whether it can be done."""
        return not self.why_not

    @property
    def strategy(self) -> Kind:
        """Its strategy."""
        return self.knobs.strategy
