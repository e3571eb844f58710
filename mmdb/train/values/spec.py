"""Candidates and hops as plain values that travel to a worker, and what a hop measured."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any, ClassVar, Literal

from mmdb.data.decoding import Label, Target
from mmdb.db.connection import Row
from mmdb.errors import InvalidOption
from mmdb.graph.spec.factory_call import Outputs, Shape, outputs_asked
from mmdb.messages import show
from mmdb.train.values.feature_options import frozen_of, parse_frozen_options, unshared
from mmdb.train.values.feature_spec import Frozen, backbone_name, base_in
from mmdb.train.values.seeds import frozen_seed

#: Asked between steps of a job: whether somebody wants it to end.
Stopped = Callable[[], bool]
#: Options of its run that a candidate needs.
_OPTIONS = ("group_patience", "metric", "metrics", "stack")
#: The bytes that travel with a job, in its order: states, or tensors.
Payload = Sequence[bytes]
#: The library that carries tensors between the members: over TCP, or between GPUs.
Backend = Literal["gloo", "nccl"]

#: The longest that a member may be told to wait for another.
MAX_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGroup:
    """One member's place in a group; plain values that travel to its session as JSON.

    Members that have met stay connected for as long as they are given the same name.
    """

    name: str
    rank: int  # 0..size-1: the order in which gradients are summed
    size: int
    host: str  # of the driver's rendezvous
    port: int
    backend: Backend = "gloo"
    timeout_s: float = 60.0  # how long a member waits for another, a step of it included


#: Where members of groups may meet besides this machine.
_MEETS_AT = frozenset({"localhost", os.environ.get("MMDB_GROUP_HOST", "localhost")})


def group_of(raw: Mapping[str, Any]) -> WorkerGroup:
    """Return the place that JSON says.

    Raises:
        InvalidOption: it says none, or a session would have to connect for it to another machine
            than the server's MMDB_GROUP_HOST: whoever may call it must not send it there.
    """
    try:
        group = WorkerGroup(**raw)
        fits = (
            0 <= group.rank < group.size
            and group.backend in ("gloo", "nccl")
            and (group.host in _MEETS_AT or ip_address(group.host).is_loopback)
            and 0 < group.port < 65536
            and 0 < group.timeout_s <= MAX_TIMEOUT_S
        )
    except (TypeError, ValueError) as error:
        raise _no_place(raw) from error
    if not fits:
        raise _no_place(raw)
    return group


def _no_place(raw: Mapping[str, Any]) -> InvalidOption:
    return InvalidOption(
        f"member is {show(dict(raw))}, which is no place in a group.",
        hint="A driver calls train_group, with a name, rank, size, host of this machine and port.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSpec:
    """A candidate, complete: it can be built from this alone."""

    candidate_id: int
    architecture: dict[str, Any]
    config: dict[str, Any]
    factories: dict[str, str]
    input_shape: Shape
    targets: tuple[Target, ...]
    seed: int
    functions: dict[str, dict[str, str]] = field(default_factory=dict)  # kind -> name -> target
    class_counts: dict[str, list[int]] | None = None  # of the train rows, by target
    train_rows: int | None = None  # all of them
    options: dict[str, Any] = field(default_factory=dict)  # the run's: metric, metrics, stack
    lr_scale: float = 1.0  # of the learning rate in the first epochs after a warm start
    lr_epochs: int = 0  # how many epochs that are
    frozen: Frozen | None = None  # what of it does not train; None: all of it trains
    # What has the frozen tensors that its states leave out; see `mmdb.train.compute.shared_base`.
    base: str | None = None
    # part_id and key of the rows by which groups stop; None: no epoch of a group is compared.
    held_out: tuple[int, str] | None = None

    @property
    def group_patience(self) -> int | None:
        """Epochs without a better loss after which a group stops; None: all are trained."""
        return self.options.get("group_patience")

    def comparing(self, parts: Sequence[Row]) -> CandidateSpec:
        """Return it with the rows that its groups are compared on, of its dataset's partitions."""
        if self.group_patience is None:
            return self
        (part,) = [one for one in parts if one["role"] == "validation"]
        return replace(self, held_out=(part["part_id"], bytes(part["content_hash"]).hex()))

    def over(self, state: bytes | None) -> CandidateSpec:
        """Return it with the base that an encoded state of it names."""
        if state is None or "adapted" not in self.architecture:
            return self
        return replace(self, base=base_in(state))

    @property
    def stacks(self) -> bool:
        """Whether it trains as in a stack, alone too, where its network can: with the same bits."""
        return stack_of(self.options) > 1

    @property
    def outputs(self) -> Outputs:
        """What its factory is asked for; see `mmdb.graph.spec.build.build`."""
        return outputs_asked(self.targets)

    @classmethod
    def from_row(
        cls,
        row: Row,
        factories: Mapping[str, str],
        functions: Mapping[str, Mapping[str, str]] | None = None,
    ) -> CandidateSpec:
        """Return the candidate of a row of `find_candidate`.

        Args:
            factories: name -> target.
            functions: kind -> name -> target.
        """
        options = json.loads(row["options"])
        counts = row.get("class_counts")
        return cls(
            candidate_id=row["candidate_id"],
            architecture=json.loads(row["architecture"]),
            config=json.loads(row["config"]),
            factories=dict(factories),
            input_shape=shape_of(row),
            targets=targets_of(row),
            seed=row["seed"],
            functions={kind: dict(known) for kind, known in (functions or {}).items()},
            class_counts=json.loads(counts) if counts else None,
            train_rows=row.get("train_rows"),
            options={k: options[k] for k in _OPTIONS if k in options},
            lr_scale=row.get("lr_scale", 1.0),
            lr_epochs=row.get("lr_epochs", 0),
            frozen=_frozen(row),
        )


def stack_of(options: Mapping[str, Any]) -> int:
    """Return how many candidates of a run train in one pass, at most; 1 for none."""
    given = options.get("stack", STACK[0])
    return 1 if given in STACK else int(given)


def stack_size(count: int, most: int) -> int:
    """Return how many of as many candidates train in one pass; a worker per processor has some."""
    return min(most, max(1, count // (os.cpu_count() or 1)))


#: The option that says that no candidates are stacked, or that `create_run` chooses their number.
NO_STACK, AUTO_STACK = STACK = ("never", "auto")


def _frozen(row: Row) -> Frozen | None:
    """Return what a candidate freezes; until its features are settled, as if it shared none."""
    config = json.loads(row["config"])
    transfer = parse_frozen_options(config)
    if transfer is None:
        return None
    model_id, is_augmented = row.get("backbone_id"), bool(config.get("augment"))
    return frozen_of(
        transfer,
        seed=frozen_seed(row["run_seed"]),
        pool=row.get("feature_pool"),
        backbone=None if model_id is None else backbone_name(model_id, row["dataset_id"]),
        storage=row.get("feature_storage"),
        choice=_choice(unshared(transfer), is_augmented, row.get("feature_choice")),
    )


def _choice(alone: str, is_augmented: bool, settled: str | None) -> str:
    """Return how features come to a candidate; others may share those that it cannot use."""
    if "whole" in (alone, settled) or settled is None:
        return "whole" if "whole" in (alone, settled) else alone
    return alone if is_augmented else settled


def targets_of(row: Row) -> tuple[Target, ...]:
    """Return the targets of a row with a dataset's targets."""
    return tuple(
        replace(Label.from_json(raw).target, size=raw["size"]) for raw in json.loads(row["targets"])
    )


def shape_of(row: Row) -> Shape:
    """Return the input shape of a row with a dataset's inputs and input_shape."""
    inputs = json.loads(row["inputs"]) if row.get("inputs") else []
    if not inputs:
        return tuple(row["input_shape"])
    shapes = {given["name"]: tuple(given["shape"]) for given in inputs}
    return shapes if all(shapes) else next(iter(shapes.values()))


def shape_of_json(raw: Any) -> Shape:
    """Return a shape as it was before JSON made lists of tuples."""
    if isinstance(raw, dict):
        return {name: tuple(shape) for name, shape in raw.items()}
    return tuple(raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class HopStep:
    """One visit to a partition."""

    part_id: int
    partition: str  # content hash in hex: the key of the node's cache
    epoch: int
    ordinal: int  # place in the candidate's order
    seed: int
    validates: bool
    ends_epoch: bool  # the epoch's last train hop
    publishes: bool = True  # whether another session may need the new state
    state_out: str | None = None  # in hex; known when the step is a replay
    rows: int = 0  # of the partition; known when the step is a replay
    ran_on: str = ""  # device and environment; known when the step is a replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a driver knows of the hops that a candidate has done, none being under way.

    On a cluster it spares a hop the question to all nodes.
    """

    epoch: int = 0  # of the last one
    part_ids: tuple[int, ...] = ()  # visited in that epoch, in order; none before the first hop

    def after(self, epoch: int, part_id: int) -> Past:
        """Return the past once another hop is done."""
        before = self.part_ids if epoch == self.epoch else ()
        return Past(epoch=epoch, part_ids=(*before, part_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Hops that lead from one state of a candidate to the next; see `ledger.state_history`."""

    kind: Literal["hop", "group", "average"]
    steps: tuple[HopStep, ...]  # one; in the order of the ranks; or in the order of the partitions
    state_out: str  # in hex


@dataclass(frozen=True, slots=True, kw_only=True)
class HopResult:
    """What a worker measured; becomes the hop's row."""

    rows: int
    steps: int
    loss: float
    metrics: dict[str, float]
    state_in: str
    state_out: str
    state_bytes: int  # of the encoded new state; 0 after a validation
    load_s: float
    compute_s: float
    encode_s: float
    device: str
    environment: str
    objective: float | None = None  # of a validation: the value that candidates are compared by
    peak_bytes: int = 0  # see `mmdb.train.compute.device.peak_bytes`
    # Of a group's round: rows, steps and loss of each member, in the order of the ranks.
    members: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class HopSpec:
    """A hop, the state it starts from, and the hops to replay where that state is lost: a job."""

    result: ClassVar[Any] = HopResult

    candidate: CandidateSpec
    step: HopStep
    state_in: str | None  # in hex; None: the initial state
    environment: str | None  # that the hops before ran in; None: any will do
    base: str | None  # in hex; the state that travels along; None: held already, or initial
    replays: tuple[Stage, ...] = ()
    adopts: bool = False  # the state that travels along is a parent's: see `live.adopt`
    group: WorkerGroup | None = (
        None  # the worker's place, where several train the candidate together
    )
    round: tuple[HopStep, ...] = ()  # of all members, in the order of their ranks

    def run(
        self, worker: Any, payload: Payload, stopped: Stopped
    ) -> tuple[HopResult, bytes | None]:
        """Do the hop from the state in `payload`, if one travels; see `DeviceWorker.perform`."""
        result, state = worker.perform(self, payload[0] if payload else None, stopped)
        return result, state
