"""A candidate as its search sees it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from mmdb.train.search.decisions import Decision, Goal, Report, Start, Stop

#: Reason of a stop for want of progress; the result stands as if it had trained to its goal.
PATIENCE = "patience"


@dataclass(slots=True, kw_only=True)
class Member:
    """What is known of a candidate. Scores are values of the metric, turned so that more is better.

    All of it follows from the decisions about the candidate in their order and from its own reports
    in theirs, whatever the other candidates did in between.
    """

    ordinal: int
    number: int | None  # among the search's own candidates, from 0; None of a user's clone
    config: dict[str, Any]
    goal: int
    trained: int  # epochs in the state that it started from
    epoch: int = 0  # epochs done
    scores: dict[int, float] = field(default_factory=dict)  # by epochs done
    best: float = -math.inf
    stopped: str | None = None  # why
    failed: bool = False
    promoted: bool = False  # the search has let it go on from a goal
    exempt: bool = False  # from patience and pruners, since a user set its goal
    mark: float = -math.inf  # what a score must beat by min_delta to count as better
    marked_at: int = 0  # the epoch that set the mark

    @property
    def ended(self) -> bool:
        """Whether it does no more hops, whatever its goal."""
        return self.failed or self.stopped is not None

    @property
    def in_flight(self) -> bool:
        """Whether it has hops to do."""
        return not self.ended and self.epoch < self.goal

    def decide(self, decision: Decision) -> None:
        """Take in what was decided about this candidate after its start."""
        match decision:
            case Goal():
                self.goal, self.stopped = decision.epochs, None
                self.promoted |= decision.by == "search"
                self.exempt |= decision.by == "user"
            case Stop():
                self.stopped = decision.reason

    def absorb(self, report: Report, score: float, min_delta: float) -> None:
        """Take in a report of this candidate; they come in the order of their epochs."""
        if report.failed:
            self.failed = True
            return
        self.scores[report.epoch] = score
        self.epoch = max(self.epoch, report.epoch)
        self.best = max(self.best, score)
        if score > self.mark + min_delta:
            self.mark, self.marked_at = score, report.epoch


def begin_member(start: Start, ordinal: int, number: int | None, parent: Member | None) -> Member:
    """Return the candidate that a start makes."""
    trained = parent.trained + (start.epoch or 0) if parent is not None else 0
    return Member(
        ordinal=ordinal, number=number, config=start.config, goal=start.goal, trained=trained
    )
