"""The schedule of a run, as a pure reducer: (schedule, event) -> (schedule, assignments).

It keeps the invariants of Model Hopper Parallelism (Cerebro, PVLDB 13(11) 2020, section 3): every
candidate visits every partition exactly once an epoch, a candidate is in one place at a time, a
worker runs one hop at a time, and a hop is not pre-empted. There is no barrier, inside an epoch or
between epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mmdb.train.seeds import VALIDATION, visit_order

#: A hop that raised is tried once more; then its candidate is closed.
MAX_FAILURES = 2
#: A hop whose session died so often in a row is taken for what kills it. Each loss costs seconds,
#: a candidate that is closed in error costs its whole training.
MAX_LOSSES = 12


@dataclass(frozen=True, slots=True)
class Hop:
    """One candidate on one partition in one epoch, by ordinals; VALIDATION validates."""

    candidate: int
    epoch: int
    part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a run has to do."""

    candidates: int
    partitions: int
    epochs: int
    seed: int
    validates: bool
    free: bool = False  # partition order: chosen here for speed, or fixed by the seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one candidate is."""

    epoch: int = 0
    visited: tuple[int, ...] = ()  # part ordinals of this epoch, in order
    closed: bool = False  # failed or stopped before its last epoch
    failures: int = 0  # of the next hop
    losses: int = 0  # of the next hop
    home: str | None = None  # worker that holds the state
    published: bool = True  # whether other workers find the state
    hop_s: float | None = None  # mean seconds of a hop, once measured


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has a fresh, warm session."""

    worker: str


@dataclass(frozen=True, slots=True)
class Done:
    """A worker's hop is committed."""

    worker: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker's hop raised; the worker is Ready again once it has a fresh session."""

    worker: str
    final: bool  # trying again cannot help


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker's session broke, whatever it was doing."""

    worker: str
    bystander: bool = False  # it went down with another session, which is to blame


Event = Ready | Done | Failed | Lost


@dataclass(frozen=True, slots=True)
class Assignment:
    """A worker is to run a hop now."""

    worker: str
    hop: Hop
    publish: bool  # whether another worker may do the candidate's next hop


@dataclass(frozen=True, slots=True)
class Schedule:
    """The state of the reducer."""

    workload: Workload
    progress: tuple[Progress, ...]
    running: Mapping[str, Hop] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    warm: Mapping[str, frozenset[int]] = field(default_factory=dict)  # parts a worker has mapped
    slowest_s: float = 0.0  # the longest mean of any candidate's hops so far

    @property
    def finished(self) -> bool:
        """Whether every candidate has ended and no hop runs."""
        return not self.running and all(map(self.ended, range(len(self.progress))))

    def ended(self, candidate: int) -> bool:
        """Whether a candidate has nothing left to do."""
        progress = self.progress[candidate]
        return progress.closed or progress.epoch >= self.workload.epochs


def begin(workload: Workload, progress: Mapping[int, Progress] | None = None) -> Schedule:
    """Return the schedule of a run, resumed where `progress` says by candidate ordinal."""
    done = progress or {}
    candidates = tuple(done.get(c, Progress()) for c in range(workload.candidates))
    slowest_s = max((p.hop_s or 0.0 for p in candidates), default=0.0)
    return Schedule(workload, candidates, slowest_s=slowest_s)


def step(schedule: Schedule, event: Event) -> tuple[Schedule, tuple[Assignment, ...]]:
    """Take one event in, and return what is to be started now."""
    return _assign(_absorb(schedule, event))


def _absorb(schedule: Schedule, event: Event) -> Schedule:
    worker = event.worker
    if isinstance(event, Ready):
        return replace(schedule, idle=(*(w for w in schedule.idle if w != worker), worker))
    running = dict(schedule.running)
    hop = running.pop(worker, None)
    idle = tuple(w for w in schedule.idle if w != worker)
    if isinstance(event, Done):
        idle = (*idle, worker)
    progress = list(schedule.progress)
    if hop is not None:
        progress[hop.candidate] = _advance(schedule, progress[hop.candidate], hop, event)
    warm = dict(schedule.warm)
    if isinstance(event, Done) and hop is not None:
        warm[worker] = warm.get(worker, frozenset()) | {hop.part}
    elif not isinstance(event, Done):  # the session is gone, and what it held with it
        warm.pop(worker, None)
        progress = [replace(p, home=None) if p.home == worker else p for p in progress]
    slowest_s = schedule.slowest_s
    if hop is not None:
        slowest_s = max(slowest_s, progress[hop.candidate].hop_s or 0.0)
    return replace(
        schedule,
        progress=tuple(progress),
        running=running,
        idle=idle,
        warm=warm,
        slowest_s=slowest_s,
    )


def _advance(schedule: Schedule, progress: Progress, hop: Hop, event: Event) -> Progress:
    if isinstance(event, Failed):
        failures = progress.failures + 1
        closed = event.final or failures >= MAX_FAILURES
        return replace(progress, failures=failures, closed=closed, home=None)
    if isinstance(event, Lost):
        losses = progress.losses + (not event.bystander)
        return replace(progress, losses=losses, closed=losses >= MAX_LOSSES)
    assert isinstance(event, Done)
    visited = (*progress.visited, hop.part)
    epoch = progress.epoch
    if len(visited) == schedule.workload.partitions + schedule.workload.validates:
        epoch, visited = epoch + 1, ()
    mean = event.seconds
    if progress.hop_s is not None:
        mean = 0.7 * progress.hop_s + 0.3 * mean
    return replace(
        progress,
        epoch=epoch,
        visited=visited,
        failures=0,
        losses=0,
        home=event.worker,
        hop_s=mean,
    )


def remaining_s(schedule: Schedule, candidate: int) -> float:
    """Return the predicted seconds that a candidate still needs."""
    progress, load = schedule.progress[candidate], schedule.workload
    if progress.closed:
        return 0.0
    visits = load.partitions + load.validates
    hops = (load.epochs - progress.epoch) * visits - len(progress.visited)
    return hops * hop_s(schedule, candidate)


def hop_s(schedule: Schedule, candidate: int) -> float:
    """Return the predicted seconds of a candidate's hop.

    One that is not measured yet counts as the slowest: taken too late, it would be the last to end.
    """
    own = schedule.progress[candidate].hop_s
    return (schedule.slowest_s or 1.0) if own is None else own


def next_part(
    workload: Workload, candidate: int, progress: Progress, warm: frozenset[int] = frozenset()
) -> int:
    """Return the part ordinal that a candidate visits next; a free order prefers `warm` ones."""
    order = visit_order(workload.seed, candidate, progress.epoch, workload.partitions)
    visited = set(progress.visited)
    left = [p for p in order if p not in visited]
    if not left:
        return VALIDATION
    if workload.free:
        return next((p for p in left if p in warm), left[0])
    return left[0]


def _assign(schedule: Schedule) -> tuple[Schedule, tuple[Assignment, ...]]:
    """Give every idle worker something to do."""
    assignments: list[Assignment] = []
    waiting = schedule.idle
    schedule = replace(schedule, idle=())
    for worker in waiting:
        candidate = _pick(schedule, worker)
        if candidate is None:
            schedule = replace(schedule, idle=(*schedule.idle, worker))
        else:
            schedule, assignment = _start(schedule, candidate, worker)
            assignments.append(assignment)
    return schedule, tuple(assignments)


def _pick(schedule: Schedule, worker: str) -> int | None:
    """Return the candidate that a worker takes next.

    It goes on with its own until the epoch ends, so that no state moves, as long as there is work
    enough to balance the workers later. Then the longest remaining goes first.
    """
    busy = {hop.candidate for hop in schedule.running.values()}
    free = [
        c
        for c, progress in enumerate(schedule.progress)
        if c not in busy
        and not schedule.ended(c)
        and (progress.published or progress.home in (worker, None))
    ]
    for c in free:
        progress = schedule.progress[c]
        if (
            progress.home == worker
            and progress.visited
            and _slack_s(schedule) >= _epoch_s(schedule, c)
        ):
            return c
    return max(free, key=lambda c: (_weight(schedule, c, worker), -c), default=None)


def _start(schedule: Schedule, candidate: int, worker: str) -> tuple[Schedule, Assignment]:
    progress = list(schedule.progress)
    hop = _next_hop(schedule, candidate, worker)
    # The worker will surely do the next hop too, unless hop times change by more than an epoch.
    publish = _slack_s(schedule) < 2 * _epoch_s(schedule, candidate)
    ends = len(progress[candidate].visited) >= schedule.workload.partitions - 1
    progress[candidate] = replace(progress[candidate], published=publish or ends)
    running = {**schedule.running, worker: hop}
    return (
        replace(schedule, progress=tuple(progress), running=running),
        Assignment(worker, hop, publish),
    )


def _slack_s(schedule: Schedule) -> float:
    """Return by how many seconds the workers' fair share exceeds the longest candidate."""
    left = [remaining_s(schedule, c) for c in range(len(schedule.progress))]
    workers = len(schedule.running) + len(schedule.idle) + 1
    return sum(left) / workers - max(left)


def _epoch_s(schedule: Schedule, candidate: int) -> float:
    visits = schedule.workload.partitions + schedule.workload.validates
    return visits * hop_s(schedule, candidate)


def _weight(schedule: Schedule, candidate: int, worker: str) -> float:
    """Longest remaining first; moving a state must gain more than two of its hops."""
    progress = schedule.progress[candidate]
    at_home = progress.home in (worker, None)
    return remaining_s(schedule, candidate) + (2 * hop_s(schedule, candidate) if at_home else 0.0)


def _next_hop(schedule: Schedule, candidate: int, worker: str) -> Hop:
    progress = schedule.progress[candidate]
    warm = schedule.warm.get(worker, frozenset())
    part = next_part(schedule.workload, candidate, progress, warm)
    return Hop(candidate, progress.epoch, part)
