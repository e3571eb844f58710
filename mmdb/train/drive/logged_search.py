"""A run's search with its log: what it is told and decides becomes rows, in one transaction each.

A search numbers its candidates in the order in which it learns of them; a run numbers them by
ordinal. The two differ where someone clones a candidate at the moment in which the search starts
one, so every entry is translated on its way to the log and back. The log speaks of ordinals.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import WriteConflict
from mmdb.train.drive.candidate_creation import add_candidate
from mmdb.train.drive.locked_connection import LockedConnection
from mmdb.train.search import (
    Decision,
    Entry,
    Goal,
    Report,
    Search,
    Start,
    Stop,
    Want,
    from_row,
    to_row,
)

_Q = load("runs")

#: Times that two sessions may take the same ordinal for a new candidate before one gives up.
_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A candidate of the run that the search has started, or a user."""

    ordinal: int
    candidate_id: int
    config: dict[str, Any]
    goal: int


#: What becomes of candidates, by ordinal.
Effect = Started | Goal | Stop


class LoggedSearch:
    """The search of one run, under its driver's lock."""

    def __init__(
        self, control: LockedConnection, run_id: int, search: Search, log: Sequence[Row]
    ) -> None:
        """Go through the run's log.

        Args:
            log: rows of `find_decisions`, in order.
        """
        self._control, self._run_id, self._search = control, run_id, search
        self._members = list[int]()
        self._next = len(log)  # place of the next entry
        self.reported: set[tuple[int, int]] = set()  # candidate and epochs done
        self.failed: set[int] = set()  # candidates whose failure was reported
        self.answered = 0  # the last request of a user that was heeded
        entries = [self._read(row) for row in log]
        search.resume(entries)

    @property
    def done(self) -> bool:
        """Whether nothing more will be started."""
        return self._search.done

    @property
    def known(self) -> int:
        """How many candidates the search knows of."""
        return len(self._members)

    def begin(self) -> list[Effect]:
        """Return what the search begins with, or what the log lacks of it."""
        return self._tell(None, self._search.begin)

    def report(self, candidate: int, epoch: int, value: float) -> list[Effect]:
        """Report a validated epoch, by epochs done."""
        self.reported.add((candidate, epoch))
        entry = Report(candidate=self._member(candidate), epoch=epoch, value=value)
        return self._tell(entry, lambda: self._search.report(entry))

    def fail(self, candidate: int, epoch: int) -> list[Effect]:
        """Report a failure after so many epochs."""
        self.failed.add(candidate)
        entry = Report(candidate=self._member(candidate), epoch=epoch, failed=True)
        return self._tell(entry, lambda: self._search.report(entry))

    def want(self, idle: int) -> list[Effect]:
        """Ask for work for idle workers."""
        decisions = self._search.want(idle)
        return self._tell(Want(idle=idle), lambda: decisions) if decisions else []

    def take(self, decision: Goal | Stop, request: int | None = None) -> list[Effect]:
        """Take in what a user asked of a candidate, by ordinal, or what the run's time demands."""
        if request is not None:
            self.answered = request
        entry = replace(decision, candidate=self._member(decision.candidate))
        own: list[Effect] = [decision]
        return own + self._tell(entry, lambda: self._search.take(entry), request=request)

    def admit(self, row: Row, goal: int) -> list[Effect]:
        """Take in a clone that a user has made: a row of `find_new_candidates`."""
        start = Start(
            config=json.loads(row["config"]),
            goal=goal,
            parent=None if row["parent"] is None else self._member(row["parent"]),
            epoch=None if row["parent_epoch"] is None else row["parent_epoch"] + 1,
            by="user",
        )
        self._members.append(row["ordinal"])
        own: list[Effect] = [
            Started(
                ordinal=row["ordinal"],
                candidate_id=row["candidate_id"],
                config=start.config,
                goal=goal,
            )
        ]
        return own + self._tell(start, lambda: self._search.take(start))

    # -- the log ---------------------------------------------------------------

    def _tell(self, entry: Entry | None, ask: Any, *, request: int | None = None) -> list[Effect]:
        """Log an entry with what the search decides on it, and carry the decisions out."""
        told = [] if entry is None else [entry]
        decisions: list[Decision] = ask()
        tries = count()
        for _ in range(_TRIES):
            try:
                return self._control.do(
                    lambda c: self._write(c, told, decisions, request, again=next(tries) > 0)
                )
            except WriteConflict:  # someone cloned a candidate at this moment
                continue
        raise WriteConflict(f"The candidates of run {self._run_id} change all the time.")

    def _write(
        self,
        connection: Connection,
        told: Sequence[Entry],
        decisions: Sequence[Decision],
        request: int | None,
        *,
        again: bool,
    ) -> list[Effect]:
        members, effects = list(self._members), list[Effect]()
        with connection.transaction():
            key = {"run_id": self._run_id, "after": self._next - 1}
            there = connection.rows(_Q.find_decisions, **key) if again else []
            if there:  # the server crashed after it had committed this very call
                return self._catch_up(connection, there[len(told) :], len(there))
            rows = [self._row(members, entry, request) for entry in told]
            for decision in decisions:
                if isinstance(decision, Start):
                    started = self._start(connection, members, decision)
                    members.append(started.ordinal)
                    effects.append(started)
                else:
                    effects.append(replace(decision, candidate=members[decision.candidate]))
                rows.append(self._row(members, decision, None))
            connection.run_many(
                _Q.add_decision,
                [
                    {"run_id": self._run_id, "ordinal": self._next + k, **row}
                    for k, row in enumerate(rows)
                ],
            )
        self._members = members
        self._next += len(rows)
        return effects

    def _catch_up(self, connection: Connection, rows: Sequence[Row], count: int) -> list[Effect]:
        effects = list[Effect]()
        for row in rows:
            place, detail = row["candidate"], json.loads(row["detail"])
            if row["kind"] == "start":
                self._members.append(place)
                key = {"run_id": self._run_id, "ordinal": place}
                made = connection.rows(_Q.find_new_candidates, **key)[0]
                effects.append(
                    Started(
                        ordinal=place,
                        candidate_id=made["candidate_id"],
                        config=detail["config"],
                        goal=row["epoch"],
                    )
                )
            elif row["kind"] == "goal":
                effects.append(Goal(candidate=place, epochs=row["epoch"]))
            else:
                effects.append(Stop(candidate=place, reason=detail["reason"]))
        self._next += count
        return effects

    def _start(self, connection: Connection, members: Sequence[int], start: Start) -> Started:
        """Make a candidate, or take the one that was made with the run."""
        place = len(members)
        found = connection.rows(_Q.find_new_candidates, run_id=self._run_id, ordinal=place)
        if found and found[0]["parent"] is None and place == found[0]["ordinal"]:
            ordinal, candidate_id = place, found[0]["candidate_id"]
        else:
            parent = None if start.parent is None else members[start.parent]
            ordinal, candidate_id = add_candidate(
                connection, self._run_id, start.config, parent=parent, epoch=start.epoch
            )
        return Started(
            ordinal=ordinal, candidate_id=candidate_id, config=start.config, goal=start.goal
        )

    def _row(self, members: Sequence[int], entry: Entry, request: int | None) -> dict[str, Any]:
        row = to_row(entry)
        if isinstance(entry, Start):
            row["candidate"] = members[-1]
            if entry.parent is not None:
                row["detail"]["parent"] = members[entry.parent]
        elif row["candidate"] is not None:
            row["candidate"] = members[row["candidate"]]
        if request is not None:
            row["detail"]["request"] = request
        row["detail"] = None if row["detail"] is None else json.dumps(row["detail"])
        return row

    def _read(self, row: Row) -> Entry:
        """Return an entry of the log as the search knows it, and note what it settles."""
        detail = json.loads(row["detail"]) if row["detail"] else None
        entry = from_row({**row, "detail": detail})
        if detail and "request" in detail:
            self.answered = max(self.answered, detail["request"])
        if isinstance(entry, Start):
            parent = None if entry.parent is None else self._member(entry.parent)
            self._members.append(row["candidate"])
            return replace(entry, parent=parent)
        if isinstance(entry, Report):
            if entry.failed:
                self.failed.add(entry.candidate)
            else:
                self.reported.add((entry.candidate, entry.epoch))
        if isinstance(entry, Want):
            return entry
        return replace(entry, candidate=self._member(entry.candidate))

    def _member(self, ordinal: int) -> int:
        return self._members.index(ordinal)


def last_goals(log: Sequence[Row]) -> dict[int, Goal | Stop]:
    """Return what a log has last said of each candidate, by ordinal."""
    found: dict[int, Goal | Stop] = {}
    for row in log:
        ordinal = row["candidate"]
        if row["kind"] in ("start", "goal"):
            found[ordinal] = Goal(candidate=ordinal, epochs=row["epoch"])
        elif row["kind"] == "stop":
            found[ordinal] = Stop(candidate=ordinal, reason=json.loads(row["detail"])["reason"])
    return found
