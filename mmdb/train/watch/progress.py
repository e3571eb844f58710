"""How far one run is, and a worker's last minute, by what the driver said of them."""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import Any

from mmdb.train.watch.snapshot import CandidateView, EpochEnd, RunView, State, WorkSegment

#: Seconds that are looked back.
WINDOW_S = 60.0
#: A hop that begins so soon after the one before it began is drawn as a part of that one.
RESOLUTION_S = 0.2


class Track:
    """The last minute of one worker, in segments. Calls come in the order of their times."""

    def __init__(self, node: str, device: str) -> None:
        self.node, self.device = node, device
        self.up = True
        self._present: WorkSegment | None = None
        self._past: deque[WorkSegment] = deque()
        self._since: float | None = None
        self._busy: deque[tuple[float, float]] = deque()  # (end, seconds)

    @property
    def present(self) -> WorkSegment | None:
        """Return the hop that it does now."""
        return self._present

    def start(self, segment: WorkSegment) -> None:
        """Begin a hop; one that is still under way ends here."""
        if self._present is not None:
            self.finish(segment.begin)
        self._since = segment.begin if self._since is None else self._since
        self._present, self.up = segment, True

    def finish(self, at: float, *, failed: bool = False) -> WorkSegment | None:
        """End the hop under way and return it; None where there is none."""
        present, self._present = self._present, None
        if present is None:
            return None
        segment = replace(present, end=at, failed=failed)
        self._count(segment.begin, at)
        last = self._past[-1] if self._past else None
        if last is not None and not failed and segment.begin - last.begin < RESOLUTION_S:
            self._past[-1] = replace(last, end=at)
        else:
            self._past.append(segment)
        self._forget(at)
        return segment

    def segments(self, at: float) -> tuple[WorkSegment, ...]:
        """Return what lies in the last minute, the oldest first."""
        self._forget(at)
        present = () if self._present is None else (self._present,)
        return (*self._past, *present)

    def busy(self, at: float) -> float:
        """Return the share of the last minute that hops took, 0 to 1."""
        self._forget(at)
        if self._since is None:
            return 0.0
        span = min(WINDOW_S, at - self._since)
        seconds = sum(s for _, s in self._busy)
        if self._present is not None:
            seconds += min(at - self._present.begin, WINDOW_S)
        return min(1.0, seconds / span) if span > 0 else 0.0

    def _count(self, begin: float, end: float) -> None:
        """Add a hop's seconds to those of the second in which it ended."""
        if self._busy and end - self._busy[-1][0] < 1.0:
            first, seconds = self._busy[-1]
            self._busy[-1] = (first, seconds + end - begin)
        else:
            self._busy.append((end, end - begin))

    def _forget(self, at: float) -> None:
        while self._past and (self._past[0].end or at) < at - WINDOW_S:
            self._past.popleft()
        while self._busy and self._busy[0][0] < at - WINDOW_S:
            self._busy.popleft()


class HopRate:
    """How many things happened in the last minute, counted by the second."""

    def __init__(self) -> None:
        self._began_at: float | None = None
        self._counts: deque[tuple[float, int]] = deque()

    def begin(self, at: float) -> None:
        """Take it that the first one is under way; later calls change nothing."""
        self._began_at = at if self._began_at is None else self._began_at

    def add(self, at: float) -> None:
        """Count one more."""
        if self._counts and at - self._counts[-1][0] < 1.0:
            first, count = self._counts[-1]
            self._counts[-1] = (first, count + 1)
        else:
            self._counts.append((at, 1))

    def per_s(self, at: float) -> float:
        """Return the mean over the last minute, or over the time since the beginning."""
        while self._counts and self._counts[0][0] < at - WINDOW_S:
            self._counts.popleft()
        span = 0.0 if self._began_at is None else min(WINDOW_S, at - self._began_at)
        return sum(count for _, count in self._counts) / span if span > 0 else 0.0


#: Candidates that a snapshot carries at most.
LEADERS = 64
#: Strategies in which several workers may be at one candidate.
SHARING = ("model_average", "data_parallel")


@dataclass(slots=True)
class WatchedCandidate:
    """One candidate of a run."""

    candidate: int
    label: int
    config: Mapping[str, Any]
    goal: int
    hops: int = 0
    hop_s: float | None = None  # mean seconds of a hop
    running: int = 0  # workers that are at it
    value: float | None = None
    best: float | None = None
    best_epoch: int | None = None
    stopped: bool = False
    failed: bool = False


@dataclass(slots=True)
class WatchedRun:
    """The candidates of one run."""

    run: str
    strategy: str
    metric: str | None
    maximize: bool
    epochs: int
    visits: int  # hops of one epoch of a candidate, the validation included
    began_at: float
    members: dict[int, WatchedCandidate] = field(default_factory=dict)
    ended: bool = False
    _rate: HopRate = field(default_factory=HopRate)
    _latest: EpochEnd | None = None
    _first: dict[str, str] = field(default_factory=dict)  # the first configuration, as JSON
    _varied: dict[str, None] = field(default_factory=dict)

    def add(self, member: WatchedCandidate) -> None:
        """Take a candidate in."""
        texts = {key: json.dumps(value, sort_keys=True) for key, value in member.config.items()}
        if not self.members:
            self._first = texts
        for key in {**self._first, **texts}:
            if texts.get(key) != self._first.get(key):
                self._varied[key] = None
        self.members[member.candidate] = member

    def start_hop(self, member: WatchedCandidate, at: float) -> None:
        """Note that a worker begins a hop."""
        member.running += 1
        self._rate.begin(at)

    def count_hop(self, member: WatchedCandidate, seconds: float, at: float) -> None:
        """Count a hop that is done."""
        member.hops += 1
        old = member.hop_s
        member.hop_s = seconds if old is None else 0.7 * old + 0.3 * seconds
        self._rate.add(at)
        if member.hops % self.visits == 0:
            self._latest = EpochEnd(
                label=member.label, epochs=member.hops // self.visits, value=None, at=at
            )

    def validate(
        self, member: WatchedCandidate, epochs: int, value: float, at: float | None
    ) -> None:
        """Take in the metric that a candidate had after so many epochs."""
        member.value = value
        if math.isfinite(value) and (member.best is None or self._beats(value, member.best)):
            member.best, member.best_epoch = value, epochs
        if at is not None:
            self._latest = EpochEnd(label=member.label, epochs=epochs, value=value, at=at)

    def view(self, at: float, seconds_left: float | None) -> RunView:
        """Return how far the run is."""
        leaders = nsmallest(LEADERS, self.members.values(), key=self._place)
        return RunView(
            run=self.run,
            strategy=self.strategy,
            metric=self.metric,
            maximize=self.maximize,
            epochs=self.epochs,
            began_at=self.began_at,
            ended=self.ended,
            hops_done=sum(m.hops for m in self.members.values()),
            hops_total=sum(m.hops + self._hops_left(m) for m in self.members.values()),
            hops_per_s=self._rate.per_s(at),
            seconds_left=seconds_left,
            counts=Counter(map(self._state, self.members.values())),
            leaders=tuple(map(self._view, leaders)),
            varied=tuple(self._varied),
            latest=self._latest,
        )

    def remaining_s(self, elapsed_s: Mapping[int, float]) -> tuple[float, float] | None:
        """Return the seconds of work left: of all candidates, and of the longest one.

        Args:
            elapsed_s: by candidate, how long its hop under way has taken already.
        """
        measured = [m.hop_s for m in self.members.values() if m.hop_s is not None]
        if not measured:
            return None
        mean = sum(measured) / len(measured)
        left = []
        for member in self.members.values():
            hop_s = mean if member.hop_s is None else member.hop_s
            under_way = min(elapsed_s.get(member.candidate, 0.0), hop_s)
            left.append(max(0.0, self._hops_left(member) * hop_s - under_way))
        longest = 0.0 if self.strategy in SHARING else max(left)
        return sum(left), longest

    def _beats(self, value: float, other: float) -> bool:
        return value > other if self.maximize else value < other

    def _hops_left(self, member: WatchedCandidate) -> int:
        if member.failed or member.stopped:
            return 0
        return max(0, member.goal * self.visits - member.hops)

    def _state(self, member: WatchedCandidate) -> State:
        if member.failed:
            return "failed"
        if member.running:
            return "training"
        if member.stopped:
            return "stopped"
        if self._hops_left(member):
            return "waiting"
        return "trained" if member.hops >= self.epochs * self.visits else "resting"

    def _place(self, member: WatchedCandidate) -> tuple[bool, bool, float, int, int]:
        """Order the best first; then those that are furthest, failed ones last."""
        best = member.best or 0.0
        return (
            member.failed,
            member.best is None,
            -best if self.maximize else best,
            -member.hops,
            member.candidate,
        )

    def _view(self, member: WatchedCandidate) -> CandidateView:
        return CandidateView(
            candidate=member.candidate,
            label=member.label,
            config=member.config,
            state=self._state(member),
            hops=member.hops,
            visits=self.visits,
            goal=member.goal,
            value=member.value,
            best=member.best,
            best_epoch=member.best_epoch,
        )
