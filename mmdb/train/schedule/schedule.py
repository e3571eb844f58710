"""The schedule of a run: what has happened goes in, what is to start now comes out.

It is deterministic, and it neither waits nor looks at a clock: the driver does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from mmdb.train.schedule.core import Crew, Placement, Policy, RunLayout
from mmdb.train.schedule.portfolio import HopCosts, Portfolio
from mmdb.train.schedule.snapshots import Snapshots
from mmdb.train.schedule.workload import (
    NOBODY,
    Done,
    Event,
    Failed,
    HopAssignment,
    Lost,
    Ready,
    ScheduledHop,
    TrainingProgress,
    Workload,
)

#: A hop that raised is tried once more; then its candidate is closed.
MAX_FAILURES = 2
#: A hop whose session died so often in a row is taken for what kills it. Each loss costs seconds,
#: a candidate that is closed in error costs its whole training.
MAX_LOSSES = 12


class RunSchedule:
    """The candidates of one run, and which of its hops run where.

    Workers may be shared with other runs: only those that are offered get something to do.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        placement: Placement | None = None,
        policy: Policy | None = None,
        fuse: int = 1,
    ) -> None:
        """Begin without candidates.

        Args:
            placement: part ordinal -> nodes that hold it; a part that is missing is everywhere.
            policy: None for the one that simulates best on the measured costs.
            fuse: candidates of a bundle that do a hop together, at most.
        Raises:
            ValueError: there is no such strategy.
        """
        self.workload, self.placement = workload, placement or {}
        self.running: dict[str, ScheduledHop] = {}  # by worker; each member of a group has its own
        self._layout = RunLayout(workload, self.placement)
        self._portfolio = Portfolio(workload, self.placement, policy)
        self._core = self._layout.core(self._portfolio.policy)
        self._queue = self._core.queue
        self._costs = HopCosts(self._queue, self._portfolio)
        self._crew = Crew(self._core, self._layout)
        self._groups: dict[str, tuple[tuple[str, int], ...]] = {}  # by each member
        self._fuse, self._bundles = fuse, self._core.bundles
        self._fused: dict[str, tuple[int, ...]] = {}  # by worker: candidates beside that of its hop
        self._unfinished = 0  # candidates that are neither closed nor at their goal
        self.progress: Snapshots = Snapshots(self._queue, self._crew.names)

    # -- candidates -----------------------------------------------------------

    def add(self, progress: TrainingProgress, goal: int) -> int:
        """Add a candidate that trains until it has done `goal` epochs; return its ordinal."""
        load, layout = self.workload, self._layout
        ordinal = len(self.progress)
        epoch, visited = progress.epoch, progress.visited
        if len(visited) >= load.visits:
            epoch, visited = epoch + 1, ()
        trained = [layout.part_of[o] for o in visited if o >= 0]
        last = trained[-1] if trained else (load.first + ordinal) % load.partitions - 1
        hop_s = progress.hop_s
        self.progress.add(progress, visited)
        self._queue.add(epoch, goal, layout.set_of(visited), last, hop_s or self._costs.guess_s)
        if progress.closed:
            self._queue.change(ordinal, goal, closed=True)
        self._costs.add(ordinal, hop_s)
        self._unfinished += self._queue.active(ordinal)
        return ordinal

    def node_of(self, worker: str) -> str:
        """Return the node of a worker that is up."""
        return self._crew.node_of[worker]

    def join(self, candidate: int, bundle: int) -> None:
        """Say that a candidate shares its input with the others of a bundle.

        Those that wait for the same part of the same epoch then hop together, as one order; not
        where several workers are at one candidate.
        """
        strategy = self._core.strategy
        if self._fuse > 1 and strategy.alone and strategy.group == 1:
            self._bundles.join(candidate, bundle)

    @property
    def shares(self) -> bool:
        """Whether candidates share their input with others."""
        return bool(self._bundles.members)

    def set_goal(self, candidate: int, epochs: int) -> None:
        """Let a candidate train until it has done so many epochs; a running hop is finished."""
        self._change(candidate, epochs, self._queue.closed[candidate])

    def close(self, candidate: int) -> None:
        """Stop a candidate; a running hop is finished, and counts."""
        self._change(candidate, self.goal(candidate), closed=True)

    def reopen(self, candidate: int) -> None:
        """Let a candidate that was closed go on."""
        self.progress.forgive(candidate)
        self._change(candidate, self.goal(candidate), closed=False)

    def goal(self, candidate: int) -> int:
        """Return the epochs after which a candidate rests."""
        return self._queue.goal[candidate]

    @property
    def finished(self) -> bool:
        """Whether every candidate is closed or at its goal, and no hop runs."""
        return not self._unfinished and not self.running

    def _change(self, candidate: int, goal: int, closed: bool) -> None:
        before = self._queue.active(candidate)
        self._queue.change(candidate, goal, closed)
        self._unfinished += self._queue.active(candidate) - before
        self.progress.touch(candidate)

    # -- events ---------------------------------------------------------------

    def take(self, event: Event) -> tuple[int, ...]:
        """Take in what happened to a worker; return the candidates that it closed."""
        if isinstance(event, Ready):
            self._forget(event.worker)
            self._crew.enlist(event.worker, event.node)
            return ()
        if isinstance(event, Done):
            self._absorb(event)
            return ()
        worker = event.worker
        hop, group = self.running.get(worker), self._groups.get(worker)
        fused = self._fused.pop(worker, ())
        self._forget(worker)
        if group and worker != group[0][0] and isinstance(event, Lost) and event.bystander:
            return ()  # what became of the group's hop is said of its first rank
        members = self._release(worker)
        if hop is None:
            return ()
        for c in (hop.candidate, *fused):
            for _, part in members:
                self._queue.undo(c, self._layout.part_of[part])
        if fused:
            return self._part((hop.candidate, *fused), event)
        return self._blame(hop.candidate, event)

    def _forget(self, worker: str) -> None:
        """Note that a worker's session is gone, and what it held with it."""
        number = self._crew.dismiss(worker)
        if number is None:
            return
        for candidate, home in enumerate(self._queue.home):
            if number in (home, self._queue.pin[candidate]):
                self._queue.leave(candidate)
                self.progress.touch(candidate)

    def _absorb(self, event: Done) -> None:
        hop = self.running.get(event.worker)
        fused = self._fused.pop(event.worker, ()) if self._fused else ()
        members = self._release(event.worker)
        if hop is None:
            return
        queue = self._queue
        seconds = event.seconds / len(members) / (1 + len(fused))
        for c in (*fused, hop.candidate):  # the worker goes on with the one that it started
            stays = self._core.strategy.stays or not self.progress.published(c)
            queue.fix(c, self._crew.numbers[event.worker] if stays else NOBODY)
            before = queue.active(c)
            for member, part in members:
                epoch = queue.epoch[c]
                self._core.done(c, self._crew.numbers[member], self._layout.part_of[part])
                self.progress.visit(c, part, ends=queue.epoch[c] > epoch)
            self._unfinished += queue.active(c) - before
            self._costs.measure(c, self.progress.measure(c, seconds))
        if self._bundles.members and not fused:
            self._bundles.hopped_alone(hop.candidate)

    def _part(self, candidates: tuple[int, ...], event: Failed | Lost) -> tuple[int, ...]:
        """Blame nobody for a hop that several did together; it closes none of them.

        They hop alone next, so that the one at fault ends alone; all go on as they are where the
        session went down with another one.
        """
        if isinstance(event, Failed) or not event.bystander:
            self._bundles.part(candidates)
        for c in candidates:
            self._queue.leave(c)
            self.progress.touch(c)
        return ()

    def _blame(self, candidate: int, event: Failed | Lost) -> tuple[int, ...]:
        if isinstance(event, Failed):
            failures = self.progress.fail(candidate)
            self._queue.leave(candidate)
            over = event.final or failures >= MAX_FAILURES
        else:
            over = self.progress.lose(candidate, blamed=not event.bystander) >= MAX_LOSSES
        if not over or self._queue.closed[candidate]:
            return ()
        self.close(candidate)
        return (candidate,)

    def _release(self, worker: str) -> tuple[tuple[str, int], ...]:
        """Let a worker's hop, and that of its group, be under way no more."""
        if worker not in self.running:
            return ()
        members = self._groups.get(worker) or ((worker, self.running[worker].part),)
        for member, _ in members:
            self.running.pop(member)
            self._groups.pop(member, None)
        return members

    # -- decisions ------------------------------------------------------------

    def assign(self, idle: Sequence[str], workers: int | None = None) -> list[HopAssignment]:
        """Return what is to start now on some of the workers that are idle.

        Args:
            idle: all workers that this run may use now. Those that get nothing stay idle, and may
                be lent to another run.
            workers: that the run may count on; those that are up if left out.
        """
        offered = [w for w in idle if w not in self.running]
        self._crew.offer(offered)
        assignments: list[HopAssignment] = []
        starts = self._core.decide(self._begun() if self._bundles.members else 0)
        if self._core.strategy.group > 1:
            return self._assign_groups(starts)
        for c, number, part in starts:
            worker, ordinal = self._crew.names[number], self._layout.ordinals[part]
            hop = ScheduledHop(c, self._queue.epoch[c], ordinal)
            self.running[worker] = hop
            publish = self._publish(c, number)
            self.progress.publish(c, publish or self._ends_training(c))
            assignments.append(HopAssignment(worker, hop, publish))
        if starts and self._bundles.members:
            most = self._share(len(offered), len(starts), workers or self._core.crew)
            return [self._take_along(a, most) for a in assignments]
        return assignments

    def _begun(self) -> int:
        """Return the candidates of all bundles of which a hop is under way."""
        begun = 0
        for hop in self.running.values():
            begun |= self._bundles.mates(hop.candidate)
        return begun

    def _share(self, idle: int, started: int, workers: int) -> int:
        """Return how many candidates may hop together so that no worker is left without any."""
        queue = self._queue
        pinned = sum(map(int.bit_count, queue.pinned))
        waiting = started + queue.loose.bit_count() + pinned
        return min(self._fuse, -(-waiting // idle), -(-self._unfinished // max(workers, 1)))

    def _take_along(self, assignment: HopAssignment, most: int) -> HopAssignment:
        """Return an assignment with others of its candidate's bundle, `most` with it."""
        hop, worker = assignment.hop, self._crew.numbers[assignment.worker]
        part, queue = self._layout.part_of[hop.part], self._queue
        others = self._bundles.companions(queue, hop.candidate, worker, part, most - 1)
        if not others:
            return assignment
        for c in others:
            queue.start(c, part)
            if self._core.strategy.stays:
                queue.fix(c, worker)
        self._fused[assignment.worker] = others
        publish = assignment.publish or any(self._publish(c, worker) for c in others)
        for c in (hop.candidate, *others):
            self.progress.publish(c, publish or self._ends_training(c))
        return replace(assignment, publish=publish, fused=others)

    def _assign_groups(self, starts: Sequence[tuple[int, int, int]]) -> list[HopAssignment]:
        ranks: dict[int, list[tuple[str, int]]] = {}
        for c, number, part in starts:
            ranks.setdefault(c, []).append((self._crew.names[number], self._layout.ordinals[part]))
        assignments = []
        for c, members in ranks.items():
            group = tuple(members)
            for worker, part in group:
                self.running[worker] = ScheduledHop(c, self._queue.epoch[c], part)
                self._groups[worker] = group
            worker = group[0][0]
            assignments.append(HopAssignment(worker, self.running[worker], True, group))
        return assignments

    def _publish(self, candidate: int, worker: int) -> bool:
        """Return whether another worker may do the candidate's next hop."""
        core = self._core
        if core.strategy.stays:
            return False
        if core.policy != "affinity" or not core.strategy.alone:
            return True
        places = core.places
        if not places.everywhere and places.can[places.node_of[worker]] != self._layout.used:
            return True
        # The worker will surely do the next hop too, unless hop times change by more than an epoch.
        return core.slack_s() < 2 * core.epoch_s(candidate)

    def _ends_training(self, candidate: int) -> bool:
        """Return whether a candidate's next state is kept in any case, at an epoch's end."""
        return len(self.progress.visited(candidate)) >= self.workload.partitions - 1

    # -- forecasts ------------------------------------------------------------

    @property
    def hop_s(self) -> float:
        """Seconds of a hop, as far as they are measured."""
        return self._costs.guess_s

    @property
    def runs_dry(self) -> bool:
        """Whether more candidates are about to reach their goals than others wait for a worker."""
        fused = [*chain.from_iterable(self._fused.values())]
        if self._unfinished >= 2 * (len(self.running) + len(fused)):
            return False  # whatever those are about to do
        hopping = {*fused, *(h.candidate for h in self.running.values())}
        busy = {c for c in hopping if self._queue.active(c)}
        return sum(map(self._nears_goal, busy)) > self._unfinished - len(busy)

    def _nears_goal(self, candidate: int) -> bool:
        queue, visited = self._queue, self.progress.visited(candidate)
        last = queue.epoch[candidate] + 1 >= queue.goal[candidate]
        return last and len(visited) + 1 >= self.workload.visits

    @property
    def stale(self) -> bool:
        """Whether measured costs have moved so far that another policy may be better now."""
        return self._costs.stale

    def replan(self) -> Policy:
        """Simulate the policies on the measured costs, and decide by the best from now on.

        It takes up to a second: call it while all workers are busy, where `stale` says so.
        """
        queue = self._queue
        active = [c for c in range(len(queue.bits)) if queue.active(c)]
        policy = self._portfolio.choose(
            {c: queue.weight[c] for c in active},
            max((queue.goal[c] - queue.epoch[c] for c in active), default=1),
            self._crew.slots(),
        )
        if policy != self._core.policy:
            self._core.follow(policy)
        return policy

    @property
    def wants(self) -> int:
        """Return how many workers must be idle at once for a hop to start."""
        return min(self._core.strategy.group, self.workload.partitions)

    @property
    def policy(self) -> Policy:
        """Return the policy that decides now."""
        return self._core.policy

    def unreachable(self) -> tuple[int, ...]:
        """Return the part ordinals that no worker which is up can find."""
        up = set(self._crew.node_of.values())
        return tuple(sorted(p for p, nodes in self.placement.items() if not nodes & up))

    def remaining_s(self, candidate: int) -> float:
        """Return the predicted seconds of hops that a candidate still needs."""
        return self._queue.remaining_s(candidate)

    def lower_bound_s(self) -> float:
        """Return the predicted seconds that the rest of the run takes at least."""
        queue = self._queue
        chain = 1 if self._core.strategy.alone else self.workload.partitions
        longest = max(map(queue.remaining_s, range(len(queue.bits))), default=0.0)
        group = self._core.strategy.group
        return max(queue.load_s / max(self._core.crew, 1), longest / chain / group)
