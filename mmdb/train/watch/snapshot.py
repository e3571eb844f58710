"""What a training looks like at one moment: plain values, and lines of text for logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mmdb.train.values.seeds import VALIDATION

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
class WorkSegment:
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
    segments: tuple[WorkSegment, ...]
    busy: float  # share of the last minute, or of the time since it came, 0 to 1

    @property
    def present(self) -> WorkSegment | None:
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


def notice(run: RunView) -> str:
    """Return one line about a run: the epoch that ended last, and how far the whole run is."""
    far = progress_text(run)
    end = run.latest
    if end is None:
        return far
    text = f"epoch {end.epochs}/{run.epochs} of candidate {end.label}"
    if end.value is not None:
        text += f": {run.metric} {number_text(end.value)}"
        if run.best is not None:
            text += f", best {number_text(run.best.best)}"
    return f"{text}; {far}"


def progress_text(run: RunView) -> str:
    """Return hops done and to be done, and the time left."""
    text = f"{run.hops_done}/{run.hops_total} hops"
    if run.seconds_left is not None and run.hops_done < run.hops_total:
        text += f", {duration_text(run.seconds_left)} left"
    return text


def number_text(value: float | None) -> str:
    """Return a metric with three digits after the point, or four significant ones if it is large.

    >>> number_text(0.93415), number_text(1234.5), number_text(0.00012), number_text(None)
    ('0.934', '1234', '0.00012', '')
    """
    if value is None:
        return ""
    if value == 0 or 0.001 <= abs(value) < 100:
        return f"{value:.3f}"
    return f"{value:.4g}"


def duration_text(seconds: float) -> str:
    """Return seconds in units that people use.

    >>> [duration_text(s) for s in (0.3, 12.4, 300, 4800, 360_000)]
    ['0 s', '12 s', '5 min', '1 h 20 min', '4 d 4 h']
    """
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


class Notices:
    """Chooses what is worth a line: failures, ends of epochs, and a sign of life now and then.

    Args:
        every_s: seconds between two lines about epochs, at least.
        quiet_s: seconds after which a line comes although no epoch has ended.
    """

    def __init__(self, *, every_s: float = 1.0, quiet_s: float = 10.0) -> None:
        self._every_s, self._quiet_s = every_s, quiet_s
        self._said_at: float | None = None
        self._said: str | None = None
        self._failed_at = float("-inf")

    def lines(self, snapshot: Snapshot) -> list[str]:
        """Return what is new since the last call: failures at once, the rest not too often."""
        lines = [
            f"candidate {failure.label} failed: {failure.error}"
            for failure in snapshot.failures
            if failure.at > self._failed_at
        ]
        if snapshot.failures:
            self._failed_at = snapshot.failures[-1].at
        line = self._line(snapshot)
        return lines if line is None else [*lines, line]

    def _line(self, snapshot: Snapshot) -> str | None:
        if self._said_at is None:
            self._said_at = snapshot.at
        runs = [run for run in snapshot.runs if run.hops_done]
        if not runs:
            return None
        run = max(runs, key=lambda run: run.latest.at if run.latest else 0.0)
        ended = run.latest is not None and run.latest.at > self._said_at
        since = snapshot.at - self._said_at
        if since < (self._every_s if ended else self._quiet_s):
            return None
        line = notice(run) if ended else progress_text(run)
        line = line if len(snapshot.runs) == 1 else f"{run.run}: {line}"
        if line == self._said:
            return None
        self._said_at, self._said = snapshot.at, line
        return line
