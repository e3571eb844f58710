"""Gathers the progress of runs from their driver into snapshots, which are shown to people."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from mmdb.train.values.seeds import VALIDATION
from mmdb.train.watch.progress import Track, WatchedCandidate, WatchedRun
from mmdb.train.watch.snapshot import Failure, RunView, Snapshot, WorkerView, WorkSegment

#: Failures that a snapshot carries at most.
FAILURES = 100
#: A snapshot costs so much time with so many candidates that more of them are to be rarer.
MANY = 1000


class Watch:
    """Follows the runs of one driver, and the workers that they share.

    It has no clock: times (`at`, `now`) are given, in seconds since 1970, and do not decrease but
    within the hop of one worker. All calls come from one thread. Candidates are named by their
    ordinal in the run, epochs count from 0, parts are ordinals. A part below VALIDATION is no hop
    of an epoch: a merge of states, say.

    Args:
        show: called with a snapshot by `tick`, every `every_s` seconds at most; less often where
            there are more than MANY candidates.
    """

    def __init__(
        self, show: Callable[[Snapshot], None] | None = None, *, every_s: float = 0.25
    ) -> None:
        self._show, self._every_s = show, every_s
        self._shown_at: float | None = None
        self._runs: dict[str, WatchedRun] = {}
        self._tracks: dict[str, Track] = {}
        self._joined: dict[str, list[int]] = {}  # by worker: candidates beside that of its hop
        self._failures: deque[Failure] = deque(maxlen=FAILURES)

    # -- runs and candidates --------------------------------------------------

    def begin(self, run: WatchedRun) -> None:
        """Begin to follow a run, or begin anew."""
        self._runs[run.run] = run

    def candidate(
        self,
        run: str,
        candidate: int,
        config: Mapping[str, Any],
        *,
        candidate_id: int | None = None,
        goal: int | None = None,
        hops: int = 0,
        hop_s: float | None = None,
    ) -> None:
        """Take in a candidate of a run, a resumed one with the hops that it has behind it.

        Args:
            goal: epochs that it trains up to; the run's epochs if left out.
            hop_s: mean seconds of those hops.
        """
        watched = self._runs[run]
        label = candidate if candidate_id is None else candidate_id
        goal = watched.epochs if goal is None else goal
        watched.add(WatchedCandidate(candidate, label, config, goal, hops, hop_s))

    def goal(self, run: str, candidate: int, epochs: int) -> None:
        """Let a candidate, also a stopped one, train up to a number of epochs."""
        member = self._runs[run].members[candidate]
        member.goal, member.stopped = epochs, False

    def stopped(self, run: str, candidate: int) -> None:
        """Take a candidate for stopped, by the search or by someone."""
        self._runs[run].members[candidate].stopped = True

    def failed(self, run: str, candidate: int, error: str, at: float) -> None:
        """Take a candidate for ended by an error."""
        member = self._runs[run].members[candidate]
        member.failed = True
        self._failures.append(Failure(run=run, label=member.label, error=error, at=at))

    def objective(
        self, run: str, candidate: int, epoch: int, value: float, at: float | None = None
    ) -> None:
        """Take in the metric of a validated epoch; `at` is None for one of an earlier call."""
        watched = self._runs[run]
        watched.validate(watched.members[candidate], epoch + 1, value, at)

    def end(self, run: str) -> None:
        """Take a run for ended; it stays in the snapshots until it is forgotten."""
        self._runs[run].ended = True

    def forget(self, run: str) -> None:
        """Leave a run out from now on."""
        self._runs.pop(run, None)

    # -- workers and hops -----------------------------------------------------

    def worker(self, worker: str, *, node: str = "", device: str = "") -> None:
        """Take in a worker that has a session now, a new one or one that had lost it."""
        track = self._tracks.setdefault(worker, Track(node, device))
        track.node, track.device, track.up = node, device, True

    def worker_gone(self, worker: str, at: float) -> None:
        """Take a worker for gone; what it was doing is not done."""
        self.hop_failed(worker, at)
        if worker in self._tracks:
            self._tracks[worker].up = False

    def hop_started(
        self, run: str, worker: str, candidate: int, epoch: int, part: int, at: float
    ) -> None:
        """Take in that a worker begins a hop."""
        watched = self._runs[run]
        member = watched.members[candidate]
        track = self._tracks.setdefault(worker, Track("", ""))
        self._leave(worker, track.present)
        watched.start_hop(member, at)
        track.start(
            WorkSegment(
                run=run,
                candidate=candidate,
                label=member.label,
                epoch=epoch,
                part=part,
                begin=at,
            )
        )

    def hop_joined(self, worker: str, candidate: int) -> None:
        """Take in that another candidate of the run does the hop, too, which a worker has begun."""
        present = self._tracks[worker].present
        if present is not None and present.run in self._runs:
            self._runs[present.run].members[candidate].running += 1
            self._joined.setdefault(worker, []).append(candidate)

    def hops_done(
        self, worker: str, at: float, seconds: Sequence[float], objectives: Sequence[float | None]
    ) -> None:
        """Take in that a hop is committed that several candidates did, one after the other.

        Args:
            seconds: that each took, in the order in which they joined; they may leave some over.
        """
        track = self._tracks.get(worker)
        hop = None if track is None else track.present
        joined = self._joined.get(worker, [])
        if hop is None or hop.run not in self._runs:
            return self.hop_done(worker, at)
        scale = (at - hop.begin) / (sum(seconds) or 1.0)
        ends = [hop.begin + scale * end for end in accumulate(seconds)]
        self.hop_done(worker, ends[0], objectives[0])
        for k, candidate in enumerate(joined, 1):
            self.hop_started(hop.run, worker, candidate, hop.epoch, hop.part, ends[k - 1])
            self.hop_done(worker, ends[k], objectives[k])

    def hop_done(self, worker: str, at: float, objective: float | None = None) -> None:
        """Take in that a worker's hop is committed; a validation comes with the run's metric."""
        hop = self._finish(worker, at, failed=False)
        if hop is None or hop.part < VALIDATION or hop.run not in self._runs:
            return
        watched = self._runs[hop.run]
        member = watched.members[hop.candidate]
        watched.count_hop(member, at - hop.begin, at)
        if objective is not None:
            watched.validate(member, hop.epoch + 1, objective, at)

    def hop_failed(self, worker: str, at: float) -> None:
        """Take in that a worker's hop raised or was lost, and will be done again, if at all."""
        self._finish(worker, at, failed=True)

    def _finish(self, worker: str, at: float, *, failed: bool) -> WorkSegment | None:
        track = self._tracks.get(worker)
        hop = None if track is None else track.finish(at, failed=failed)
        self._leave(worker, hop)
        return hop

    def _leave(self, worker: str, hop: WorkSegment | None) -> None:
        joined = self._joined.pop(worker, [])
        if hop is not None and hop.run in self._runs:
            for candidate in (hop.candidate, *joined):
                self._runs[hop.run].members[candidate].running -= 1

    # -- what is shown --------------------------------------------------------

    def tick(self, now: float) -> None:
        """Show a snapshot if it is time for one; call it often."""
        if self._show is None:
            return
        members = sum(len(watched.members) for watched in self._runs.values())
        every_s = self._every_s * max(1.0, members / MANY)
        if self._shown_at is None or now - self._shown_at >= every_s:
            self._shown_at = now
            self._show(self.snapshot(now))

    def snapshot(self, now: float) -> Snapshot:
        """Return everything that is known now, as values that do not change any more."""
        return Snapshot(
            at=now,
            runs=self._run_views(now),
            workers=tuple(
                WorkerView(
                    worker=name,
                    node=track.node,
                    device=track.device,
                    up=track.up,
                    segments=track.segments(now),
                    busy=track.busy(now),
                )
                for name, track in self._tracks.items()
            ),
            failures=tuple(self._failures),
        )

    def view(self, run: str, now: float) -> RunView:
        """Return how far a run is."""
        return next(view for view in self._run_views(now) if view.run == run)

    def _run_views(self, now: float) -> tuple[RunView, ...]:
        """Return the runs; their times left take it that they share the workers evenly."""
        elapsed: dict[str, dict[int, float]] = {name: {} for name in self._runs}
        for track in self._tracks.values():
            hop = track.present
            if hop is not None and hop.run in elapsed:
                of_run = elapsed[hop.run]
                of_run[hop.candidate] = of_run.get(hop.candidate, 0.0) + now - hop.begin
        workers = max(1, sum(track.up for track in self._tracks.values()))
        active = max(1, sum(not watched.ended for watched in self._runs.values()))
        return tuple(
            watched.view(now, _seconds_left(watched, elapsed[name], workers / active))
            for name, watched in self._runs.items()
        )


def _seconds_left(
    watched: WatchedRun, elapsed_s: Mapping[int, float], workers: float
) -> float | None:
    """Return how long a run still takes: on its share of the workers, or its longest candidate."""
    if watched.ended:
        return 0.0
    found = watched.remaining_s(elapsed_s)
    if found is None:
        return None
    total, longest = found
    return max(total / workers, longest)
