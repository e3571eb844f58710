"""A run in simulated time: the schedule that decides real runs, and the equations of its hops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from heapq import heappop, heappush

import numpy as np

from mmdb.plan.equations import Floats, slowdown_at
from mmdb.train.schedule import Done, HopAssignment, Placement, Policy, Ready, Workload, begin
from mmdb.train.values.seeds import MERGE, VALIDATION


class Clock:
    """Work under way on nodes, and which of it ends next.

    While k workers of a node are busy its work goes on at a rate of 1 / slowdown_k: each node has
    a time of its own in which it does not slow down, and its work ends in the order of that.
    """

    def __init__(self, slowdowns: Sequence[tuple[float, ...]]) -> None:
        """Begin at 0. Args: slowdowns: of each node, see `mmdb.plan.cost.ClusterNode`."""
        self.now = 0.0
        self._slowdowns = slowdowns
        self._steady = [set(s) == {1.0} for s in slowdowns]
        self._own = [0.0] * len(slowdowns)  # each node's time
        self._rate = [1.0] * len(slowdowns)
        self._looked = [0.0] * len(slowdowns)  # when its time was put right
        self._busy = [0] * len(slowdowns)
        self._stamp = [0] * len(slowdowns)  # of its last turn: what was planned before is void
        self._turned: set[int] = set()
        self._work: list[list[tuple[float, int]]] = [[] for _ in slowdowns]
        self._next: list[tuple[float, int, int]] = []  # (when, node, its stamp)
        self._waiting: list[tuple[float, int]] = []  # (when, what): work that nothing slows down

    def start(self, what: int, node: int, seconds: float, workers: int = 1) -> None:
        """Begin work of so many seconds alone; `workers` of the node are busy with it."""
        if self._steady[node]:
            self.wait(what, seconds)
            return
        self._turn(node, workers)
        heappush(self._work[node], (self._own[node] + seconds, what))

    def wait(self, what: int, seconds: float) -> None:
        """Begin something that nothing slows down, and that slows nothing down."""
        heappush(self._waiting, (self.now + seconds, what))

    def look(self) -> None:
        """Say that all that starts now has been started."""
        for node in self._turned:
            if self._work[node]:
                self._plan(node)
        self._turned.clear()

    def end(self, workers: Sequence[int]) -> int | None:
        """Go on to the next end; return what has ended, or None where nothing is under way.

        Args:
            workers: by what, how many were busy with it.
        """
        while self._next and self._next[0][2] != self._stamp[self._next[0][1]]:
            heappop(self._next)
        if self._waiting and (not self._next or self._waiting[0][0] <= self._next[0][0]):
            self.now, what = heappop(self._waiting)
            return what
        if not self._next:
            return None
        self.now, node, _ = heappop(self._next)
        _, what = heappop(self._work[node])
        self._turn(node, -workers[what])
        return what

    def _turn(self, node: int, workers: int) -> None:
        """Put a node's time right, and change how many of its workers are busy."""
        self._own[node] += (self.now - self._looked[node]) * self._rate[node]
        self._looked[node] = self.now
        self._busy[node] += workers
        self._rate[node] = 1 / slowdown_at(self._slowdowns[node], self._busy[node])
        self._stamp[node] += 1
        self._turned.add(node)

    def _plan(self, node: int) -> None:
        left = self._work[node][0][0] - self._own[node]
        when = self._looked[node] + max(left, 0.0) / self._rate[node]
        heappush(self._next, (when, node, self._stamp[node]))


#: Seconds of computing, reading, the hop itself, exchanging, and validating.
Pieces = tuple[float, float, float, float, float]
NOTHING: Pieces = (0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class SimulationResult:
    """What a simulated run came to; the phases are worker-seconds."""

    makespan_s: float = 0.0
    compute_s: float = 0.0
    read_s: float = 0.0
    hop_s: float = 0.0
    communication_s: float = 0.0
    validation_s: float = 0.0
    hops: int = 0
    moves: int = 0  # hops that took up a state which another worker had left
    bytes_moved: float = 0.0

    def add(self, pieces: Pieces, took_s: float, workers: int, gap_s: float = 0.0) -> None:
        """Count an assignment: what it takes alone, and what it took among others."""
        alone = sum(pieces)
        scale = workers * took_s / alone if alone else 0.0
        compute, read, hop, communication, validation = pieces
        if hop >= gap_s:
            hop -= gap_s
        else:
            validation = max(0.0, validation - gap_s)
        self.compute_s += scale * compute
        self.read_s += scale * read
        self.hop_s += scale * hop
        self.communication_s += scale * communication
        self.validation_s += scale * validation
        self.hops += workers

    def scale(self, factor: float) -> None:
        """Multiply all seconds."""
        for name in SECONDS:
            setattr(self, name, getattr(self, name) * factor)


#: Fields of a trace that are seconds.
SECONDS = tuple(one.name for one in fields(SimulationResult) if one.name.endswith("_s"))


def mean_of(traces: Sequence[SimulationResult]) -> SimulationResult:
    """Return the mean of runs that differ in their noise and their order."""
    found = SimulationResult()
    for one in fields(SimulationResult):
        mean = sum(getattr(trace, one.name) for trace in traces) / len(traces)
        setattr(found, one.name, round(mean) if isinstance(one.default, int) else mean)
    return found


#: Seconds of computing and of exchanging in a group's round: (candidate, partitions).
RoundSeconds = Callable[[int, Sequence[int]], tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HopSeconds:
    """Seconds of hops, of a worker alone on its node; (M,) where nothing else is said."""

    train: Floats  # (M, P)
    validation: Floats
    merge: Floats
    begin: Floats
    take: Floats
    leave: Floats
    publish: Floats
    durable: Floats
    read: Floats  # (P,)
    read_validation_s: float = 0.0
    state_bytes: Floats = field(default_factory=lambda: np.zeros(0))
    round: RoundSeconds | None = None  # of a group; the slowest partition's where left out
    meet_s: float = 0.0
    gap_s: float = 0.0  # of what hops take, as if idle
    late_s: float = 0.0  # by which each worker of a node begins after the one before it
    live_bytes: float = float("inf")  # of states that a worker keeps live
    noise: float = 0.0  # sigma of the lognormal factor of each hop


def run(
    seconds: HopSeconds,
    load: Workload,
    slots: Mapping[str, tuple[int, tuple[float, ...]]],
    *,
    placement: Placement | None = None,
    policy: Policy | None = None,
    source: np.random.Generator | None = None,
) -> SimulationResult:
    """Return what a run comes to.

    The schedule learns hops' seconds as they end, as it does in a real run.

    Args:
        slots: of each node, its workers and its slowdown.
        policy: None for what a real run follows.
        source: of the noise.
    Raises:
        ValueError: a partition lies where no worker is.
    """
    return _Simulation(seconds, load, slots, placement or {}, policy, source).trace()


class _Simulation:
    def __init__(
        self,
        seconds: HopSeconds,
        load: Workload,
        slots: Mapping[str, tuple[int, tuple[float, ...]]],
        placement: Placement,
        policy: Policy | None,
        source: np.random.Generator | None,
    ) -> None:
        self._s, self._load = seconds, load
        self._train = seconds.train.tolist()
        self._per = {
            name: getattr(seconds, name).tolist()
            for name in ("validation", "merge", "begin", "take", "leave", "publish", "durable")
        }
        self._bytes = seconds.state_bytes.tolist() or [0.0] * load.candidates
        self._schedule = begin(load, placement=placement, policy=policy)
        self._clock = Clock([slowdown for _, slowdown in slots.values()])
        self._node: dict[str, int] = {}
        for number, (node, (count, _)) in enumerate(slots.items()):
            for k in range(count):
                self._node[f"{node}/{k}"] = number
                self._schedule.take(Ready(f"{node}/{k}", node))
        self._read_at: dict[tuple[int, int], float] = {}  # (node, part) -> when it is there
        self._live: list[dict[str, None]] = [
            {} for _ in range(load.candidates)
        ]  # workers that hold it
        self._held: dict[str, dict[int, None]] = {worker: {} for worker in self._node}
        self._visited = [0] * load.candidates  # train parts of the epoch
        self._met: dict[str, tuple[str, ...]] = {}
        self._noise = self._draw(source) if source is not None and seconds.noise else None
        self._expected_s = self._drawn_s = 0.0  # of all pieces, without their noise and with it
        self._trace = SimulationResult()

    def trace(self) -> SimulationResult:
        """Run until nothing is left."""
        schedule, clock, trace = self._schedule, self._clock, self._trace
        started: list[tuple[HopAssignment | None, list[str], float, Pieces]] = []
        busy: list[int] = []
        idle: list[str] = []
        for worker, late_s in self._late_s().items():
            if late_s:
                started.append((None, [worker], 0.0, NOTHING))
                busy.append(0)
                clock.wait(len(busy) - 1, late_s)
            else:
                idle.append(worker)
        while True:
            for assignment in schedule.assign(idle) if idle else ():
                members = [w for w, _ in assignment.group] or [assignment.worker]
                node = self._node[assignment.worker]
                pieces = self._varied(self._pieces(assignment, members))
                here = sum(self._node[w] == node for w in members)
                started.append((assignment, members, clock.now, pieces))
                busy.append(here)
                clock.start(len(busy) - 1, node, sum(pieces), here)
                gone = set(members)
                idle = [w for w in idle if w not in gone]
            clock.look()
            what = clock.end(busy)
            if what is None:
                break
            begun, members, since, pieces = started[what]
            idle += members
            if begun is None:
                continue
            took = clock.now - since
            trace.makespan_s = clock.now
            trace.add(pieces, took, len(members), self._s.gap_s)
            schedule.take(Done(begun.worker, took))
        if not schedule.finished:
            raise ValueError("A partition lies on no node that has a worker.")
        if self._drawn_s:  # what was drawn counts for how hops meet, not for their sum
            trace.scale(self._expected_s / self._drawn_s)
        return trace

    def _late_s(self) -> dict[str, float]:
        """Return when each worker begins."""
        before: dict[int, int] = {}
        found = {}
        for worker, node in self._node.items():
            found[worker] = before.setdefault(node, 0) * self._s.late_s
            before[node] += 1
        return found

    def _varied(self, pieces: Pieces) -> Pieces:
        """Return pieces with their noise, which reading has none of."""
        if self._noise is None:
            return pieces
        factor = self._noise()
        compute, read, hop, communication, validation = pieces
        drawn = (
            factor * compute,
            read,
            factor * hop,
            factor * communication,
            factor * validation,
        )
        self._expected_s += sum(pieces)
        self._drawn_s += sum(drawn)
        return drawn

    def _draw(self, source: np.random.Generator) -> Callable[[], float]:
        pool: list[float] = []
        sigma = self._s.noise

        def factor() -> float:
            if not pool:
                pool.extend(np.exp(source.normal(-sigma * sigma / 2, sigma, 1024)).tolist())
            return pool.pop()

        return factor

    def _pieces(self, assignment: HopAssignment, members: Sequence[str]) -> Pieces:
        """Return what an assignment takes, alone on its node."""
        trace, per = self._trace, self._per
        c, part = assignment.hop.candidate, assignment.hop.part
        if part == MERGE:
            self._visited[c] = 0
            self._hold(c, ())
            trace.bytes_moved += (self._load.partitions + 1) * self._bytes[c]
            return 0.0, 0.0, per["merge"][c], 0.0, 0.0
        hop = self._take(c, members, assignment)
        if part == VALIDATION:
            read = self._read(members[0], VALIDATION)
            return 0.0, read, hop, 0.0, per["validation"][c]
        parts = [p for _, p in assignment.group] or [part]
        work, exchange = self._work(c, parts)
        read = max(self._read(w, p) for w, p in zip(members, parts, strict=True))
        hop += self._leave(c, assignment, len(parts))
        return work, read, hop, exchange, 0.0

    def _work(self, c: int, parts: Sequence[int]) -> tuple[float, float]:
        if len(parts) == 1:
            return self._train[c][parts[0]], 0.0
        if self._s.round is not None:
            return self._s.round(c, parts)
        return max(self._train[c][p] for p in parts), 0.0

    def _take(self, c: int, members: Sequence[str], assignment: HopAssignment) -> float:
        """Return the seconds until all members have the candidate's state."""
        seconds, live, per = 0.0, self._live[c], self._per
        averages = self._load.merges
        first = assignment.hop.epoch == 0 and assignment.hop.part != VALIDATION
        if first and (averages or not self._visited[c]):
            seconds = per["begin"][c]
        elif any(w not in live for w in members):
            moved = sum(w not in live for w in members)
            self._trace.moves += moved
            self._trace.bytes_moved += moved * self._bytes[c]
            seconds = per["take"][c]
        if len(members) > 1 and any(self._met.get(w) != tuple(members) for w in members):
            seconds += self._s.meet_s
            self._met.update(dict.fromkeys(members, tuple(members)))
        if averages and assignment.hop.part != VALIDATION:
            live.pop(members[0], None)  # the hop changes what the epoch's other hops start from
            self._held[members[0]].pop(c, None)
        else:
            self._hold(c, members)
        return float(seconds)

    def _leave(self, c: int, assignment: HopAssignment, parts: int) -> float:
        per = self._per
        self._visited[c] += parts
        seconds = per["leave"][c]
        if self._visited[c] >= self._load.partitions:
            if not self._load.merges:
                self._visited[c] = 0
                return float(seconds + per["durable"][c])
        if assignment.publish:
            seconds += per["publish"][c]
            self._trace.bytes_moved += self._bytes[c]
        return float(seconds)

    def _hold(self, c: int, workers: Sequence[str]) -> None:
        """Let these workers, and no others, have a candidate's state live."""
        for worker in self._live[c]:
            self._held[worker].pop(c, None)
        self._live[c] = dict.fromkeys(workers)
        for worker in workers:
            held = self._held[worker]
            held[c] = None
            while len(held) > 1 and sum(self._bytes[k] for k in held) > self._s.live_bytes:
                gone = next(iter(held))
                del held[gone]
                self._live[gone].pop(worker, None)

    def _read(self, worker: str, part: int) -> float:
        """Return the seconds until a node has a partition; its other workers wait for the first."""
        key = (self._node[worker], part)
        there = self._read_at.get(key)
        if there is None:
            seconds = float(self._s.read_validation_s if part == VALIDATION else self._s.read[part])
            self._read_at[key] = self._clock.now + seconds
            return seconds
        return max(0.0, there - self._clock.now)
