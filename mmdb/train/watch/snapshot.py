"""What a training looks like at one moment, as plain values; nothing here knows how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mmdb.train.seeds import VALIDATION

State = Literal["training", "waiting", "resting", "trained", "stopped", "failed"]
STATES: tuple[State, ...] = ("training", "waiting", "resting", "trained", "stopped", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateView:
    """One candidate of a run."""

    candidate: int  # ordinal in its run
    label: int  # what people call it: its candidate_id, or the ordinal where that is not known
    config: Mapping[str, Any]
    state: State
    hops: int  # done, validations included
    visits: int  # hops of an epoch
    goal: int  # epochs that it trains up to
    value: float | None  # the metric of its last validated epoch
    best: float | None
    best_epoch: int | None  # epochs done when it had `best`

    @property
    def epochs(self) -> int:
        """Return how many epochs are done."""
        return self.hops // self.visits


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """The end of one epoch of a candidate."""

    label: int
    epochs: int  # done by it now
    value: float | None  # None where nothing is validated
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What ended a candidate."""

    run: str
    label: int
    error: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """How far a run is. Times are seconds since 1970, rates are over the last minute."""

    run: str
    strategy: str
    metric: str | None
    maximize: bool
    epochs: int
    began_at: float
    ended: bool
    hops_done: int
    hops_total: int  # of what is decided so far: a search may add to it
    hops_per_s: float
    seconds_left: float | None  # None until a hop is measured
    counts: Mapping[State, int]
    leaders: tuple[CandidateView, ...]  # the best first; failed ones last
    varied: tuple[str, ...]  # keys of the configurations that differ between candidates
    latest: EpochEnd | None

    @property
    def candidates(self) -> int:
        """Return how many candidates there are so far."""
        return sum(self.counts.values())

    @property
    def best(self) -> CandidateView | None:
        """Return the candidate with the best validated epoch."""
        first = self.leaders[0] if self.leaders else None
        return first if first is not None and first.best is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of a worker's time; `end` is None while it goes on."""

    run: str
    candidate: int
    label: int
    epoch: int
    part: int
    begin: float
    end: float | None = None
    failed: bool = False

    @property
    def validates(self) -> bool:
        """Whether it is a validation."""
        return self.part == VALIDATION


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker and what it did in the last minute, the oldest first."""

    worker: str
    node: str
    device: str
    up: bool  # whether it has a session
    segments: tuple[Segment, ...]
    busy: float  # share of the last minute, or of the time since it came, 0 to 1

    @property
    def present(self) -> Segment | None:
        """Return the hop that it does now."""
        last = self.segments[-1] if self.segments else None
        return last if last is not None and last.end is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that is known at one moment, in seconds since 1970."""

    at: float
    runs: tuple[RunView, ...]
    workers: tuple[WorkerView, ...]
    failures: tuple[Failure, ...]  # the oldest first, the last of them alone where there are many
