"""What a search is told and decides: the entries of a run's table `decision`. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: Who decided: the search itself, or a user while the run went on.
Author = Literal["search", "user"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A new candidate trains up to its goal, from fresh weights or from its parent's state."""

    config: dict[str, Any]
    goal: int  # epochs of its own
    parent: int | None = None
    epoch: int | None = None  # epochs that the parent had done in the state it starts from
    by: Author = "search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A candidate goes on from its state until it has done `epochs` epochs of its own."""

    candidate: int
    epochs: int
    by: Author = "search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A candidate does no more hops."""

    candidate: int
    reason: str
    by: Author = "search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A candidate has been validated after an epoch, or has failed."""

    candidate: int
    epoch: int  # epochs done, from 1; of a failed one those before it failed
    value: float = math.nan  # of the run's metric, as measured
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """So many workers had nothing to do. Logged for the reader; a resumed search skips it."""

    idle: int


Decision = Start | Goal | Stop
Entry = Report | Want | Decision


def to_row(entry: Entry) -> dict[str, Any]:
    """Return an entry as values of the columns kind, candidate, epoch, value and detail.

    `detail` is a JSON value or None. A start's `candidate` is None: its ordinal is its place.
    """
    row: dict[str, Any] = dict.fromkeys(("kind", "candidate", "epoch", "value", "detail"))
    row["kind"] = type(entry).__name__.lower()
    match entry:
        case Start():
            row["epoch"] = entry.goal
            row["detail"] = {
                "config": entry.config,
                "parent": entry.parent,
                "parent_epoch": entry.epoch,
                "by": entry.by,
            }
        case Goal():
            row |= {"candidate": entry.candidate, "epoch": entry.epochs}
            row["detail"] = {"by": entry.by}
        case Stop():
            row |= {"candidate": entry.candidate}
            row["detail"] = {"reason": entry.reason, "by": entry.by}
        case Report():
            row |= {"candidate": entry.candidate, "epoch": entry.epoch}
            row["value"] = None if entry.failed else entry.value
            row["detail"] = {"failed": True} if entry.failed else None
        case Want():
            row["detail"] = {"idle": entry.idle}
    return row


def from_row(row: Mapping[str, Any]) -> Entry:
    """Return the entry that `to_row` made a row of; `detail` is parsed JSON."""
    detail = row["detail"] or {}
    match row["kind"]:
        case "start":
            return Start(
                config=detail["config"],
                goal=row["epoch"],
                parent=detail["parent"],
                epoch=detail["parent_epoch"],
                by=detail["by"],
            )
        case "goal":
            return Goal(candidate=row["candidate"], epochs=row["epoch"], by=detail["by"])
        case "stop":
            return Stop(candidate=row["candidate"], reason=detail["reason"], by=detail["by"])
        case "report":
            failed = bool(detail.get("failed"))
            value = math.nan if row["value"] is None else row["value"]
            return Report(
                candidate=row["candidate"], epoch=row["epoch"], value=value, failed=failed
            )
        case "want":
            return Want(idle=detail["idle"])
    raise ValueError(f"no entry of a search is of kind {row['kind']!r}")


#: Reason of a stop for want of progress; the result stands as if it had trained to its goal.
PATIENCE = "patience"
#: Reason of a stop because the time that the run has is over.
BUDGET = "budget"


@dataclass(slots=True, kw_only=True)
class Trial:
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


def begin_trial(start: Start, ordinal: int, number: int | None, parent: Trial | None) -> Trial:
    """Return the candidate that a start makes."""
    trained = parent.trained + (start.epoch or 0) if parent is not None else 0
    return Trial(
        ordinal=ordinal, number=number, config=start.config, goal=start.goal, trained=trained
    )
