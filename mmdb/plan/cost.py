"""Plain numbers that a plan is made from and returns, and the checks of them.

Seconds are of one worker alone on its node, unless a name says otherwise. Bytes are bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Literal

from mmdb.arguments import is_number, is_whole, unfit
from mmdb.errors import EmptySearch, InvalidOption, TooFewRows
from mmdb.messages import show
from mmdb.plan.step import CandidateCost
from mmdb.train.schedule.core import Placement

#: The first four are those that mmdb executes; the others are what-ifs.
StrategyName = Literal[
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
EXECUTED: tuple[StrategyName, ...] = ("mop", "task", "model_average", "data_parallel")
#: Phases of a run, in the order in which they are shown.
PHASES = ("compute", "read", "hop", "communication", "validation", "idle")
#: A note of a plan that begins so says what is shared, and warns of nothing.
FEATURES = "Features of "


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A way between two processes: n bytes take `latency_s + n / bytes_per_s`."""

    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A machine."""

    name: str = ""
    slots: int = 1  # workers that it may have
    memory_bytes: float = float("inf")  # of all its workers together
    slowdown: tuple[float, ...] = (1.0,)  # of a step at 1, 2, ... busy workers; the last holds on


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Machines, and what it costs to send something between them or to leave it somewhere."""

    nodes: tuple[ClusterNode, ...]
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
class CostedWorkload:
    """The candidates, rows and epochs to be trained, with what they cost."""

    candidates: tuple[CandidateCost, ...]
    rows: tuple[int, ...]  # of each train partition
    validation_rows: int = 0
    epochs: int = 1
    placement: Placement = field(default_factory=dict)  # partition -> names of its nodes
    free: bool = False  # partition order: chosen for speed, or fixed by the seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """One way of training a workload: what the optimizer may choose."""

    strategy: StrategyName
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
    """Seconds, bytes and phases predicted for one way of training.

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
    def strategy(self) -> StrategyName:
        """Its strategy."""
        return self.knobs.strategy


#: Nodes of a cluster, and candidates or partitions of a workload, at most.
MOST_NODES, MOST = 1_000, 100_000
#: Workers of a node, at most; formulas take them one by one.
MOST_SLOTS = 4_096
#: Seconds, bytes and factors that are amounts of something; beyond it sums are no numbers any more.
_MOST_AMOUNT = 1e18
#: A standard deviation, at most.
_MOST_DEVIATION = 2.0
_WHOLE = "It is a whole number from 1."
_NUMBER = f"It is a number from 0 to {_MOST_AMOUNT:.0e}."


def check_workload(load: CostedWorkload) -> None:
    """Raise what is wrong with a workload.

    Raises:
        EmptySearch, TooFewRows, InvalidOption
    """
    if not load.candidates:
        raise EmptySearch("There is no candidate to plan for.")
    if not load.rows or min(load.rows) < 1:
        raise TooFewRows("A partition without rows cannot be trained on, nor planned for.")
    if load.epochs < 1:
        raise unfit("epochs", load.epochs, _WHOLE)
    if load.validation_rows < 0:
        raise unfit("validation_rows", load.validation_rows, _NUMBER)
    for what, count in (("candidates", len(load.candidates)), ("partitions", len(load.rows))):
        if count > MOST:
            raise InvalidOption(f"There are {count} {what}.", hint=f"At most {MOST} are planned.")
    for ordinal, cost in enumerate(dict.fromkeys(load.candidates)):
        _check_cost(ordinal, cost)


def _check_cost(ordinal: int, cost: CandidateCost) -> None:
    for one in fields(cost):
        value = getattr(cost, one.name)
        if one.name in ("layers", "exchanges"):
            bad = any(not _is_amount(x) for several in value for x in several)
        else:
            bad = not _is_amount(value)
        if bad:
            raise unfit(f"The cost {one.name} of candidate {ordinal}", value, _NUMBER)
    if cost.batch_size < 1:
        raise unfit(f"The batch_size of candidate {ordinal}", cost.batch_size, _WHOLE)
    if not cost.step_s + cost.row_s:
        raise InvalidOption(
            f"Candidate {ordinal} takes no time.", hint="step_s, row_s or both are above 0."
        )


def check_cluster(cluster: Cluster, load: CostedWorkload) -> None:
    """Raise what is wrong with a cluster, or with where the workload lies on it.

    Raises:
        InvalidOption
    """
    if not 1 <= len(cluster.nodes) <= MOST_NODES:
        raise InvalidOption(
            f"The cluster has {len(cluster.nodes)} nodes.", hint=f"1 to {MOST_NODES} are planned."
        )
    names = {node.name for node in cluster.nodes}
    if len(names) < len(cluster.nodes):
        raise InvalidOption("Two nodes of the cluster have one name.", hint="Give each its own.")
    for node in cluster.nodes:
        here = f"of node {node.name!r}"
        if not is_whole(node.slots, 1):
            raise unfit(f"slots {here}", node.slots, _WHOLE)
        if node.slots > MOST_SLOTS:
            raise unfit(f"slots {here}", node.slots, f"At most {MOST_SLOTS} are planned.")
        if not _is_amount(node.memory_bytes, infinite=True) or not node.memory_bytes:
            raise unfit(f"memory_bytes {here}", node.memory_bytes, "It is above 0.")
        if not node.slowdown or not all(_is_amount(x) and x > 0 for x in node.slowdown):
            raise InvalidOption(
                f"slowdown {here} is {show(node.slowdown)}.",
                hint="It is the factor of a step's time at 1, 2, ... busy workers, each above 0.",
            )
    for name in ("local", "link"):
        _check_link(name, getattr(cluster, name))
    for one in fields(cluster):
        value = getattr(cluster, one.name)
        if isinstance(value, float) and not _is_amount(value):
            raise unfit(f"{one.name} of the cluster", value, _NUMBER)
    if cluster.deviation > _MOST_DEVIATION:
        raise InvalidOption(
            f"deviation of the cluster is {show(cluster.deviation)}.",
            hint=f"It is relative, and at most {_MOST_DEVIATION:.0f}.",
        )
    for part, nodes in load.placement.items():
        if not nodes & names:
            raise InvalidOption(
                f"Partition {part} lies on no node of the cluster.",
                hint=f"It lies on {', '.join(sorted(nodes)) or 'none'}.",
            )


def _check_link(name: str, link: Link) -> None:
    if not _is_amount(link.latency_s):
        raise unfit(f"latency_s of {name}", link.latency_s, _NUMBER)
    if not _is_amount(link.bytes_per_s, infinite=True) or link.bytes_per_s < 1:
        raise unfit(f"bytes_per_s of {name}", link.bytes_per_s, "It is 1 or more.")


def _is_amount(value: object, *, infinite: bool = False) -> bool:
    """Return whether a value is a number from 0."""
    return is_number(value, 0, _MOST_AMOUNT) or (infinite and value == math.inf)
