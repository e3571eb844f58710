"""How far one run is, by what the driver said of it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from mmdb.train.watch.snapshot import CandidateView, EpochEnd, RunView, State
from mmdb.train.watch.track import Rate

#: Candidates that a snapshot carries at most.
LEADERS = 64
#: Strategies in which several workers may be at one candidate.
SHARING = ("model_average", "data_parallel")


@dataclass(slots=True)
class Member:
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


class Standing:
    """The candidates of one run."""

    def __init__(
        self,
        run: str,
        strategy: str,
        metric: str | None,
        maximize: bool,
        epochs: int,
        visits: int,
        at: float,
    ) -> None:
        self.run, self.strategy, self.metric, self.maximize = run, strategy, metric, maximize
        self.epochs, self.visits, self.began_at = epochs, visits, at
        self.members: dict[int, Member] = {}
        self.ended = False
        self._rate = Rate()
        self._latest: EpochEnd | None = None
        self._first: dict[str, str] = {}  # the first configuration, its values as JSON
        self._varied: dict[str, None] = {}

    def add(self, member: Member) -> None:
        """Take a candidate in."""
        texts = {key: json.dumps(value, sort_keys=True) for key, value in member.config.items()}
        if not self.members:
            self._first = texts
        for key in {**self._first, **texts}:
            if texts.get(key) != self._first.get(key):
                self._varied[key] = None
        self.members[member.candidate] = member

    def start_hop(self, member: Member, at: float) -> None:
        """Note that a worker begins a hop."""
        member.running += 1
        self._rate.begin(at)

    def count_hop(self, member: Member, seconds: float, at: float) -> None:
        """Count a hop that is done."""
        member.hops += 1
        old = member.hop_s
        member.hop_s = seconds if old is None else 0.7 * old + 0.3 * seconds
        self._rate.add(at)
        if member.hops % self.visits == 0:
            self._latest = EpochEnd(
                label=member.label, epochs=member.hops // self.visits, value=None, at=at
            )

    def validate(self, member: Member, epochs: int, value: float, at: float | None) -> None:
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

    def _hops_left(self, member: Member) -> int:
        if member.failed or member.stopped:
            return 0
        return max(0, member.goal * self.visits - member.hops)

    def _state(self, member: Member) -> State:
        if member.failed:
            return "failed"
        if member.running:
            return "training"
        if member.stopped:
            return "stopped"
        if self._hops_left(member):
            return "waiting"
        return "trained" if member.hops >= self.epochs * self.visits else "resting"

    def _place(self, member: Member) -> tuple[bool, bool, float, int, int]:
        """Order the best first; then those that are furthest, failed ones last."""
        best = member.best or 0.0
        return (
            member.failed,
            member.best is None,
            -best if self.maximize else best,
            -member.hops,
            member.candidate,
        )

    def _view(self, member: Member) -> CandidateView:
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
