"""One run in the hands of a driver: its schedule, its search, and what people ask of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from mmdb.db.citus import is_spread
from mmdb.db.connection import Row
from mmdb.db.queries import load
from mmdb.errors import (
    ConnectionLost,
    MmdbError,
    NodeLost,
    PartitionUnreachable,
    RanOnCoordinator,
    RunEnded,
)
from mmdb.train.drive.locked_connection import LockedConnection
from mmdb.train.drive.logged_search import Effect, LoggedSearch, Started, last_goals
from mmdb.train.drive.run_state import (
    CandidateState,
    HopGroups,
    RunState,
    find_places,
    load_run,
    new_candidates,
    note_failure,
    search_of,
)
from mmdb.train.ledger.run_options import Decide, fix_strategy
from mmdb.train.schedule import Event, HopAssignment, RunSchedule, ScheduledHop, TrainingProgress
from mmdb.train.search import BUDGET, Goal, Stop, stops_early
from mmdb.train.values.seeds import VALIDATION
from mmdb.train.values.spec import Past
from mmdb.train.warm.warm_options import OFF
from mmdb.train.watch import Watch
from mmdb.train.watch.progress import WatchedRun

_Q = load("runs")

#: Seconds of a hop below which a worker does not wait for the search, whose log takes milliseconds,
#: and the searches that are then asked for work ahead.
SHORT_S, AHEAD = 1.0, ("asha", "hyperband")
#: Seconds for which a candidate rests whose hop needed a node that does not answer.
REST_S = 1.0


class RunJob:
    """A run under its driver's lock.

    Attributes:
        hops: done by this driver, validations included.
        schedule: candidates by ordinal.
    """

    def __init__(self, control: LockedConnection, watch: Watch, run: RunState) -> None:
        """Resume a run from its rows; its lock is taken.

        Raises:
            RunEnded: it was copied from another database.
        """
        self._control, self._watch = control, watch
        self.run = run
        self.hops = 0
        fuse = max(run.options.features.fuse, run.options.stack)
        self.schedule = RunSchedule(run.workload, placement=run.placement, fuse=fuse)
        self._groups = HopGroups(control, run)
        self._members: list[CandidateState] = []
        self._pasts: list[Past | None] = []  # on a cluster, of each candidate
        self._knows_features = False  # whether a candidate that freezes layers has hopped
        self._is_moved = False  # whether partitions lie elsewhere than the schedule has them
        self._resting: dict[int, float] = {}  # candidate -> until when, in monotonic seconds
        self._untold: list[tuple[int, int, float]] = []  # candidate, epoch, objective
        self._stops_early = stops_early(run.search, run.raw_options)
        budget_s = run.options.budget_s
        self._ends_at = math.inf if budget_s is None else time.monotonic() + budget_s
        log = control.do(lambda c: c.rows(_Q.find_decisions, run_id=run.run_id, after=-1))
        if not log and any(member.past.part_ids for member in run.members):
            raise RunEnded(
                f"Run {run.name!r} is a copy: its checkpoints and its search stayed behind.",
                hint="Train it where it comes from, or create a run here with "
                "warm_start => 'NAME@VERSION', the model that came with it.",
            )
        asked = (run.workload.strategy, run.metric, bool(run.maximize), run.epochs, run.visits)
        watch.begin(WatchedRun(run.name, *asked, began_at=time.time()))
        self._search = LoggedSearch(control, run.run_id, search_of(run), log)
        known = last_goals(log)
        for member in run.members[: self._search.known]:
            self._add(member, known[member.ordinal])
        self._carry_out(self._search.begin())
        self._report_what_is_done()
        self.attend()

    @property
    def name(self) -> str:
        """The run's name."""
        return self.run.name

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        done = self.schedule.finished and (self._search.done or self._is_out_of_time)
        return done and not self._untold and not self._resting

    @property
    def hop_limit_s(self) -> float | None:
        """Seconds that one hop may take."""
        return self.run.options.hop_limit_s

    @property
    def holders(self) -> tuple[int, ...]:
        """The number by which hops on a cluster tell that this driver has the run."""
        return self._control.holders(self.run.run_id)

    def begins_apart(self, hop: ScheduledHop) -> bool:
        """Return whether it is settled before a hop, and apart, what its candidate begins with.

        Where several sessions may do its first hops at once; on a cluster, where a hop writes to
        its own node alone; and where it freezes layers, for others of the run wait to know as much.
        """
        if hop.epoch:
            return False
        if self._members[hop.candidate].config.get("freeze_up_to") is not None:
            return not self._knows_features
        strategy = self.run.workload.strategy
        apart = self.run.is_spread or strategy in ("model_average", "data_parallel")
        return self.run.warm_start != OFF and apart

    @property
    def candidate_ids(self) -> tuple[int, ...]:
        """The ids of all candidates, by ordinal."""
        return tuple(member.candidate_id for member in self._members)

    def candidate_id(self, ordinal: int) -> int:
        """Return the id of a candidate."""
        return self._members[ordinal].candidate_id

    def past(self, ordinal: int) -> Past | None:
        """Return what is known of a candidate's hops; None where one was lost."""
        return self._pasts[ordinal]

    def part_at(self, worker: str) -> int | None:
        """Return a partition on a worker's node; None where all lie on one server."""
        node = self.schedule.node_of(worker)
        for ordinal, nodes in self.run.placement.items():
            if node in nodes:
                return self.run.part_ids[ordinal]
        return None

    def durable(self, assignment: HopAssignment, rows: Sequence[Row]) -> list[Row]:
        """Return the rows of an assignment under way whose hops leave a checkpoint.

        Args:
            rows: of its candidates, in order.
        """
        if assignment.hop.part == VALIDATION:
            return []
        progress, parts = self.schedule.progress, max(len(assignment.group), 1)
        is_at_end = self.run.options.checkpoint == "epoch"  # alone they become durable
        enough = self.run.workload.partitions - parts if is_at_end else 0
        pairs = zip(assignment.candidates, rows, strict=False)  # a merge has no row
        return [row for c, row in pairs if len(progress[c].visited) >= enough]

    # -- events ----------------------------------------------------------------

    def assign(self, idle: Sequence[str], workers: int | None = None) -> list[HopAssignment]:
        """Return what idle workers are to start now; the search may have to think of something.

        Args:
            workers: that the run may count on; those that are up if left out.
        """
        if self._is_moved:
            return []
        assignments = self.schedule.assign(idle, workers)
        if not assignments and idle and self.tell():
            assignments = self.schedule.assign(idle, workers)
        if not assignments and idle and self._want(len(idle)):
            assignments = self.schedule.assign(idle, workers)
        return assignments

    def tell(self) -> bool:
        """Tell the search what it has not heard yet; return whether there was anything.

        The log takes milliseconds, so workers that can go on without it go on first.
        """
        untold, self._untold = self._untold, []
        for candidate, epoch, objective in untold:
            self.report(candidate, epoch, objective)
        return bool(untold)

    def think_ahead(self) -> None:
        """Ask the search for more before a worker has nothing to do, where hops are short."""
        asks = self.run.search.get("method") in AHEAD and self.schedule.hop_s < SHORT_S
        if asks and self.schedule.runs_dry:
            self._want(1)

    def _want(self, workers: int) -> bool:
        if self._search.done or self._is_out_of_time:
            return False
        return self._carry_out(self._search.want(workers))

    @property
    def _is_out_of_time(self) -> bool:
        """Whether the run's budget is used up; it lasts until a candidate has done an epoch."""
        if time.monotonic() < self._ends_at:
            return False
        return any(progress.epoch for progress in self.schedule.progress)

    def check_reach(self) -> None:
        """Raise where hops wait for a partition that no worker which is up can find.

        Not where it has just moved: workers of its old node may know of that before the driver.

        Raises:
            PartitionUnreachable
        """
        lost = self.schedule.unreachable()
        if not lost or self._is_moved or self.schedule.running or self.schedule.finished:
            return
        if not self.look():
            nodes = " or ".join(sorted(self.run.placement[lost[0]]))
            where = f"on node {nodes}, where no worker is up" if nodes else "on no node"
            raise PartitionUnreachable(f"Partition {lost[0]} of run {self.name!r} is {where}.")

    def take(self, event: Event, error: MmdbError | None = None) -> None:
        """Take in what became of a worker; record the end of a candidate that it ended.

        A hop that did not run on its partition's node says that the partition has moved.
        """
        self._is_moved = self._is_moved or isinstance(error, RanOnCoordinator)
        for ordinal in self.schedule.take(event):
            assert error is not None
            self._close(ordinal, self.schedule.progress[ordinal], error)
        if self._is_out_of_time:
            for ordinal, progress in enumerate(self.schedule.progress):
                if not progress.closed and progress.epoch < self.schedule.goal(ordinal):
                    stop = Stop(candidate=ordinal, reason=BUDGET)
                    self._carry_out(self._search.take(stop))

    def hear_all(self, assignment: HopAssignment, rows: Sequence[Row]) -> None:
        """Take in what the candidates of a validation reached, by its rows."""
        for candidate, row in zip(assignment.candidates, rows, strict=True):
            if row["objective"] is not None:
                self.hear(candidate, assignment.hop.epoch, row["objective"])

    def hear(self, candidate: int, epoch: int, objective: float) -> None:
        """Take in what a candidate reached in an epoch, counted from 0; the search is told soon.

        At once where that may end the candidate, or where hops are long.
        """
        self._untold.append((candidate, epoch, objective))
        if self._stops_early or self.schedule.hop_s >= SHORT_S:
            self.tell()

    def report(self, candidate: int, epoch: int, objective: float) -> None:
        """Tell the search of a validated epoch, counted from 0."""
        if (candidate, epoch + 1) not in self._search.reported:
            self._carry_out(self._search.report(candidate, epoch + 1, objective))

    def is_behind(self, news: Row | None) -> bool:
        """Return whether a row of `find_news` tells of what `attend` has not heeded yet."""
        if news is None:
            return False
        asked = (news["candidate_request"] or 0) > self._search.answered
        return asked or (news["candidate"] or 0) >= len(self._members)

    def attend(self) -> None:
        """Heed what people asked of candidates since the last call: clones, stops, resumptions."""
        run_id, after = self.run.run_id, self._search.answered
        count = len(self._members)
        clones = self._control.do(lambda c: new_candidates(c, run_id, count))
        for row, member in clones:
            if member.ordinal == len(self._members):
                self._carry_out(self._search.admit(row, self.run.epochs), [member])
        for row in self._control.do(
            lambda c: c.rows(_Q.find_candidate_requests, run_id=run_id, after=after)
        ):
            self._heed(row["request"], row["candidate"], row["request_id"])

    def ends_epoch(self, candidate: int, parts: int) -> bool:
        """Return whether nothing is left of a candidate's epoch after parts that are under way."""
        return len(self.schedule.progress[candidate].visited) + parts >= self.run.visits

    def rest(self, candidate: int) -> None:
        """Let a candidate wait a moment: a node that it needs does not answer."""
        if not self.schedule.progress[candidate].closed:
            self.schedule.close(candidate)
            self._resting[candidate] = time.monotonic() + REST_S

    def wake(self) -> None:
        """Let candidates go on that have rested."""
        now = time.monotonic()
        for candidate in [c for c, until in self._resting.items() if until <= now]:
            del self._resting[candidate]
            self.schedule.reopen(candidate)

    def look(self) -> bool:
        """Return whether partitions lie elsewhere than before; no hop more is begun then.

        Raises:
            MmdbError: the database cannot be asked.
        """
        if self.run.is_spread:  # one server alone moves nothing
            found = self._control.do(lambda c: find_places(c, self.run.part_ids))
            self._is_moved = self._is_moved or found != self.run.placement
        return self._is_moved

    def move(self, *, waits: bool = False) -> bool:
        """Go on where partitions have moved to, once no hop is under way; return whether it does.

        The rows are read again: a standby that was promoted may lack the last of them.

        Args:
            waits: for nodes that do not answer, as `LockedConnection.do`.
        Raises:
            MmdbError: the run cannot be read, such as one whose dataset was dropped.
        """
        if not self._is_moved or self.schedule.running:
            return False
        try:
            if waits:
                self.run = self._control.do(lambda c: load_run(c, self.name))
            else:
                self.run = load_run(self._control.connection, self.name)
        except (ConnectionLost, NodeLost):
            return False  # looked at again soon
        before, self._is_moved = self.schedule, False
        self.schedule = RunSchedule(self.run.workload, placement=self.run.placement)
        for ordinal, known in enumerate(before.progress):
            member = self.run.members[ordinal]
            progress = replace(
                member.progress,
                closed=known.closed,
                failures=known.failures,
                losses=known.losses,
            )
            self.schedule.add(progress, before.goal(ordinal))
            self._pasts[ordinal] = member.past
        return True

    def recall(self, assignment: HopAssignment, done: bool) -> None:
        """Remember a hop that is done, or may be; it may have settled what its candidate shares.

        Where the order is free another part may come after one that was lost, so nothing is sure
        then until the epoch ends.
        """
        hop = assignment.hop
        for part in [part for _, part in assignment.group] or [hop.part]:
            for candidate in assignment.candidates if part in self.run.part_ids else ():
                self._recall(candidate, hop.epoch, self.run.part_ids[part], done)
        if done:
            members = [self._members[candidate] for candidate in assignment.candidates]
            self._knows_features |= any(m.config.get("freeze_up_to") is not None for m in members)
            for candidate, group in self._groups.settled_by(assignment.candidates):
                self.schedule.join(candidate, group)

    def _recall(self, candidate: int, epoch: int, part_id: int, done: bool) -> None:
        past = self._pasts[candidate]
        if done and past is None and not self.schedule.progress[candidate].visited:
            past = Past(epoch=epoch)
        known = past is not None and (done or not self.run.workload.free)
        after = past.after(epoch, part_id) if past is not None and done else past
        self._pasts[candidate] = after if known else None

    # -- candidates --------------------------------------------------------------

    def _heed(self, request: str, candidate: int, request_id: int) -> None:
        if self._members[candidate].error is not None:
            self._search.answered = request_id
            return  # it has failed: there is nothing to stop, and nothing to go on with
        if request == "stop":
            stop = Stop(candidate=candidate, reason="asked for", by="user")
            self._carry_out(self._search.take(stop, request_id))
        else:
            goal = Goal(candidate=candidate, epochs=self.run.epochs, by="user")
            self._carry_out(self._search.take(goal, request_id))

    def _carry_out(self, effects: Iterable[Effect], members: Sequence[CandidateState] = ()) -> bool:
        """Apply decisions to the schedule; return whether there were any."""
        known = {member.ordinal: member for member in (*self.run.members, *members)}
        some = False
        for effect in effects:
            some = True
            if isinstance(effect, Started):
                member = known.get(effect.ordinal) or CandidateState(
                    candidate_id=effect.candidate_id,
                    ordinal=effect.ordinal,
                    config=effect.config,
                )
                self._add(member, Goal(candidate=effect.ordinal, epochs=effect.goal))
            elif isinstance(effect, Goal):
                self._resting.pop(effect.candidate, None)
                self.schedule.reopen(effect.candidate)
                self.schedule.set_goal(effect.candidate, effect.epochs)
                self._watch.goal(self.name, effect.candidate, effect.epochs)
            else:
                self._resting.pop(effect.candidate, None)
                self.schedule.close(effect.candidate)
                self._watch.stopped(self.name, effect.candidate)
        return some

    def _add(self, member: CandidateState, settled: Goal | Stop) -> None:
        assert member.ordinal == len(self._members)
        self._members.append(member)
        self._pasts.append(member.past)
        stopped = isinstance(settled, Stop)
        goal = self.run.epochs if isinstance(settled, Stop) else settled.epochs
        self.schedule.add(member.progress, goal)
        group = self._groups.of(member)
        if group is not None:
            self.schedule.join(member.ordinal, group)
        visits = self.run.visits
        self._watch.candidate(
            self.name,
            member.ordinal,
            member.config,
            candidate_id=member.candidate_id,
            goal=goal,
            hops=member.progress.epoch * visits + len(member.progress.visited),
            hop_s=member.progress.hop_s,
        )
        if stopped:
            self.schedule.close(member.ordinal)
            self._watch.stopped(self.name, member.ordinal)
        if member.error is not None:
            self._watch.failed(self.name, member.ordinal, member.error, time.time())

    def _close(self, ordinal: int, progress: TrainingProgress, error: MmdbError) -> None:
        note_failure(self._control, self.candidate_id(ordinal), error)
        self._members[ordinal].error = error.message
        self._watch.failed(self.name, ordinal, error.message, time.time())
        self._carry_out(self._search.fail(ordinal, progress.epoch))

    def _report_what_is_done(self) -> None:
        """Tell the search what it did not hear before a crash."""
        run_id = self.run.run_id
        for row in self._control.do(lambda c: c.rows(_Q.find_objectives, run_id=run_id)):
            if row["candidate"] < len(self._members):
                self.report(row["candidate"], row["epoch"], row["objective"])
                self._watch.objective(self.name, row["candidate"], row["epoch"], row["objective"])
        for member in self._members:
            if member.error is not None and member.ordinal not in self._search.failed:
                self._carry_out(self._search.fail(member.ordinal, member.progress.epoch))


def take_up(
    control: LockedConnection,
    name: str,
    watch: Watch,
    decide: Decide | None = None,
    workers: int | None = None,
) -> RunJob:
    """Return a run under its lock, as its rows have it.

    Args:
        decide: how it is to be trained, if this is the first time.
        workers: that there are for it; None where that is open.
    Raises:
        RunNotFound, DatasetDropped, RunBusy
        RunEnded: it was copied from another database.
    """
    run_id = control.do(lambda c: load_run(c, name).run_id)
    control.lock(run_id, name)
    try:
        # Only now: another driver may just have ended.
        spread = control.do(is_spread)
        control.do(lambda c: fix_strategy(c, name, None if spread else decide, workers))
        run = control.do(lambda c: load_run(c, name))
        return RunJob(control, watch, run)
    except BaseException:
        control.unlock(run_id)
        raise
