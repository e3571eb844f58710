"""Jobs: computations that travel to a worker as plain values, and the protocol of what runs them.

A job is a frozen dataclass with `run` and the type of its result. Beside it travel the bytes that
it needs and that it leaves: states and tensors. A new computation is a class here.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from mmdb.train.values.feature_spec import FEATURE_ROWS, Examined, Materialized, Wanted
from mmdb.train.values.spec import CandidateSpec, HopResult, HopSpec, Payload, Stopped

_T = TypeVar("_T")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)


class Job(Protocol[_R_co]):
    """A computation as a value; dataclasses fulfil it."""

    #: What JSON makes of a result is read as this.
    result: ClassVar[Any]

    def run(self, worker: Any, payload: Payload, stopped: Stopped) -> tuple[_R_co, bytes | None]:
        """Return the result, and the bytes that it leaves.

        Args:
            worker: a `DeviceWorker`.
        """


class Executor(Protocol):
    """Where hops are computed: this process's `DeviceWorker`, or a child process."""

    def held(self, candidate_id: int) -> str | None:
        """Return the hash in hex of the candidate's state that it holds live."""

    def has_partition(self, key: str) -> bool:
        """Return whether it has the partition mapped."""

    def has_backbone(self, name: str) -> bool:
        """Return whether it has the tensors of a model whose layers are frozen."""

    def compute(self, job: Job[_R], payload: Payload = ()) -> tuple[_R, bytes | None]:
        """Run a job; it can be interrupted."""

    def follow(self, work: Callable[[Stopped], _T]) -> _T:
        """Run `work(stopped)`, the replay of a recipe, in this process; it can be interrupted."""


@dataclass(frozen=True, slots=True)
class MapPartition:
    """A partition in the node's cache, to be mapped."""

    result: ClassVar[Any] = types.NoneType

    key: str

    def run(self, worker: Any, payload: Payload, stopped: Stopped) -> tuple[None, None]:
        """Map it."""
        worker.partition(self.key)
        return None, None


@dataclass(frozen=True, slots=True)
class TakeBackbone:
    """The tensors of a model to be kept, as `mmdb.train.compute.live.packed` writes them."""

    result: ClassVar[Any] = types.NoneType

    name: str

    def run(self, worker: Any, payload: Payload, stopped: Stopped) -> tuple[None, None]:
        """Keep them."""
        worker.take_backbone(self.name, payload[0])
        return None, None


@dataclass(frozen=True, slots=True)
class Average:
    """Encoded states whose mean is wanted, weighted by rows; its hash in hex is the result."""

    result: ClassVar[Any] = str

    rows: tuple[int, ...]

    def run(self, worker: Any, payload: Payload, stopped: Stopped) -> tuple[str, bytes]:
        """Compute it."""
        name, mean = worker.average(payload, self.rows)
        return name, mean


@dataclass(frozen=True, slots=True, kw_only=True)
class HopResults:
    """What several hops measured, in their order, and how long the state of each is that leaves."""

    hops: tuple[HopResult, ...]
    sizes: tuple[int | None, ...]  # bytes; None where it stays

    def states(self, left: bytes | None) -> list[bytes | None]:
        """Return the states out of the bytes that a job of several hops leaves."""
        found: list[bytes | None] = []
        start = 0
        for size in self.sizes:
            found.append(None if size is None else (left or b"")[start : start + size])
            start += size or 0
        return found


@dataclass(frozen=True, slots=True)
class SeveralHops:
    """Hops of several candidates on one partition; those of one shape train in one pass."""

    result: ClassVar[Any] = HopResults

    hops: tuple[HopSpec, ...]
    has_state: tuple[bool, ...]  # whether one travels along

    def run(
        self, worker: Any, payload: Payload, stopped: Stopped
    ) -> tuple[HopResults, bytes | None]:
        """Do them from the states in `payload`; see `DeviceWorker.perform_several`."""
        given = iter(payload)
        states = [next(given) if travels else None for travels in self.has_state]
        done = worker.perform_several(self.hops, states, stopped)
        left = [state for _, state in done]
        sizes = tuple(None if state is None else len(state) for state in left)
        results = HopResults(hops=tuple(result for result, _ in done), sizes=sizes)
        return results, b"".join(state for state in left if state is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializeSpec:
    """Features to be computed of one partition, all in one pass.

    Attributes:
        candidate: any with the same backbone.
        source: key in hex of a partition in the node's cache.
        source_cut: the cut whose features those are, float32 and not pooled; None: raw rows.
    """

    result: ClassVar[Any] = Materialized

    candidate: CandidateSpec
    source: str
    source_cut: str | None
    wanted: tuple[Wanted, ...]

    def run(self, worker: Any, payload: Payload, stopped: Stopped) -> tuple[Materialized, None]:
        """Put them into the node's cache."""
        return worker.materialize(self, stopped), None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamineSpec:
    """Frozen layers to be looked at, and timed on rows of a partition in the node's cache.

    Attributes:
        partition: key in hex.
        cuts: (cut, pool), all of the candidate's backbone; "auto" as it is with a head.
        rows: to time on, at most.
    """

    result: ClassVar[Any] = Examined

    candidate: CandidateSpec
    partition: str
    cuts: tuple[tuple[str, str], ...]
    rows: int = FEATURE_ROWS

    def run(self, worker: Any, payload: Payload, stopped: Stopped) -> tuple[Examined, None]:
        """Look at them."""
        return worker.examine(self), None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """What some steps took."""

    rows: int  # of a step
    steps: int
    seconds: float  # the median
    state_bytes: int


@dataclass(frozen=True, slots=True)
class TimeSteps:
    """Steps of a candidate to be timed on a partition in the node's cache, for some seconds.

    Attributes:
        members: as many of its kind take steps at once, if it stacks.
    """

    result: ClassVar[Any] = StepTimes

    candidate: CandidateSpec
    partition: str
    budget_s: float
    members: int = 1

    def run(self, worker: Any, payload: Payload, stopped: Stopped) -> tuple[StepTimes, None]:
        """Time them."""
        timed = self.candidate, self.partition, self.budget_s, stopped, self.members
        return worker.time_steps(*timed), None


_JOBS: tuple[Any, ...] = (
    HopSpec,
    SeveralHops,
    MapPartition,
    TakeBackbone,
    Average,
    MaterializeSpec,
    ExamineSpec,
    TimeSteps,
)


def job_of(name: str, raw: Mapping[str, Any]) -> Job[Any]:
    """Return the job that `asdict` and JSON made `raw` of, by the name of its class."""
    known = {kind.__name__: kind for kind in _JOBS}
    if name not in known:
        from mmdb.train.values.warm_spec import WarmSpec  # loads torch

        known[WarmSpec.__name__] = WarmSpec
    job: Job[Any] = from_json(known[name], raw)
    return job


# -- from JSON ------------------------------------------------------------------


def from_json(kind: Any, raw: Any) -> Any:
    """Return the value of a type that `dataclasses.asdict` and JSON made `raw` of.

    >>> from_json(tuple[tuple[str, int], ...], [["a", 1]]), from_json(dict[int, str], {"1": "b"})
    ((('a', 1),), {1: 'b'})
    """
    return _reader(kind)(raw)


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    if is_dataclass(kind):
        return _dataclass_reader(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple and inner[1:] != (...,):
        each = [_reader(one) for one in inner]
        return lambda raw: tuple(read(one) for read, one in zip(each, raw, strict=True))
    if origin in (tuple, list):
        make, one_of = origin, _reader(inner[0])
        return lambda raw: make(map(one_of, raw))
    if origin in (dict, Mapping):
        name, value_of = int if inner[0] is int else str, _reader(inner[1])
        return lambda raw: {name(key): value_of(one) for key, one in raw.items()}
    if origin in (Union, types.UnionType):
        return _union_reader(inner)
    return lambda raw: raw


def _dataclass_reader(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    readers = {one.name: _reader(hints[one.name]) for one in fields(kind)}
    return lambda raw: kind(**{name: readers[name](value) for name, value in raw.items()})


def _union_reader(members: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Return the reader of a union: JSON's lists are tuples, its objects dicts or dataclasses."""
    readers: dict[type, Callable[[Any], Any]] = {}
    for member in members:
        origin = get_origin(member)
        if origin in (dict, Mapping) or is_dataclass(member):
            readers[dict] = _reader(member)
        elif origin in (tuple, list):
            readers[list] = _reader(member)
    return lambda raw: readers[type(raw)](raw) if type(raw) in readers else raw
