"""What there is to schedule: partitions, candidates, workers; the strategies; hops to be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mmdb.train.values.seeds import MERGE, VALIDATION, visit_order

Parts = int  # a set of parts: bit p stands for part p


class Strategy(Protocol):
    """How a run uses its workers.

    An epoch of a candidate is a chain of stages. All parts of a stage are done before the next
    stage begins; there is no barrier between candidates.
    """

    @property
    def name(self) -> str:
        """Its name in SQL."""

    @property
    def alone(self) -> bool:
        """Whether a candidate is in one place at a time (a group counts as one place)."""

    @property
    def stays(self) -> bool:
        """Whether a candidate stays with the worker of its first hop until that worker is lost."""

    @property
    def group(self) -> int:
        """Workers that visit as many parts at once for one candidate."""

    def stages(self, train: Parts, merge: Parts, validation: Parts) -> tuple[Parts, ...]:
        """Return the stages of an epoch; `validation` is empty where nothing is validated."""


@dataclass(frozen=True, slots=True)
class Mop:
    """Model Hopper Parallelism: one hop of a candidate at a time, on whichever worker."""

    name: str = "mop"
    alone: bool = True
    stays: bool = False
    group: int = 1

    def stages(self, train: Parts, merge: Parts, validation: Parts) -> tuple[Parts, ...]:
        """Visit every partition, then validate."""
        return (train, validation) if validation else (train,)


@dataclass(frozen=True, slots=True)
class TaskParallel(Mop):
    """Task parallelism: a candidate visits all partitions on one worker."""

    name: str = "task"
    stays: bool = True


@dataclass(frozen=True, slots=True)
class DataParallel(Mop):
    """A group of workers visits as many partitions at once, with one state between them."""

    name: str = "data_parallel"
    group: int = 2


@dataclass(frozen=True, slots=True)
class ModelAverage:
    """All hops of an epoch at once, each from the epoch's merged state; then they are merged."""

    name: str = "model_average"
    alone: bool = False
    stays: bool = False
    group: int = 1

    def stages(self, train: Parts, merge: Parts, validation: Parts) -> tuple[Parts, ...]:
        """Visit every partition, then merge, then validate."""
        return (train, merge, validation) if validation else (train, merge)


STRATEGIES = ("mop", "task", "model_average", "data_parallel")


def strategy_of(name: str, group: int = 1) -> Strategy:
    """Return a strategy by its name.

    Args:
        group: workers of one candidate, for `data_parallel`.
    Raises:
        ValueError: there is no strategy of that name, or the group is empty.
    """
    if group < 1:
        raise ValueError(f"A group of {group} workers trains nothing.")
    if name == "data_parallel":
        return DataParallel(group=group)
    for known in (Mop(), TaskParallel(), ModelAverage()):
        if known.name == name:
            return known
    raise ValueError(f"There is no strategy {name!r}; known: {', '.join(STRATEGIES)}.")


@dataclass(frozen=True, slots=True)
class ScheduledHop:
    """One candidate on one partition in one epoch, by ordinals.

    `part` is VALIDATION where the candidate is validated, MERGE where its states become one.
    """

    candidate: int
    epoch: int
    part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a run has to do."""

    candidates: int  # at its beginning; a search adds more
    partitions: int
    epochs: int  # the goal of those candidates
    seed: int
    validates: bool
    free: bool = False  # partition order: chosen here for speed, or fixed by the seed
    strategy: str = "mop"
    group: int = 1  # workers that train one candidate together, for `data_parallel`
    first: int = 0  # what the first candidate counts as where seeds are drawn

    @property
    def merges(self) -> bool:
        """Whether the states of an epoch's hops become one at its end."""
        return self.strategy == "model_average"

    @property
    def visits(self) -> int:
        """Hops of a candidate in an epoch, the merge and the validation included."""
        return self.partitions + self.merges + self.validates


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """How far one candidate is."""

    epoch: int = 0
    visited: tuple[int, ...] = ()  # part ordinals of this epoch, in order
    closed: bool = False  # failed or stopped
    failures: int = 0  # of the next hop
    losses: int = 0  # of the next hop
    home: str | None = None  # worker that holds the state
    published: bool = True  # whether other workers find the state
    hop_s: float | None = None  # mean seconds of a hop, once measured


@dataclass(frozen=True, slots=True)
class HopAssignment:
    """A worker is to run a hop now."""

    worker: str
    hop: ScheduledHop
    publish: bool  # whether another worker may do the candidate's next hop
    group: tuple[tuple[str, int], ...] = ()  # (worker, part ordinal) of every rank, rank 0 first
    fused: tuple[int, ...] = ()  # other candidates that do the same hop in the same order

    @property
    def candidates(self) -> tuple[int, ...]:
        """The ordinals of all candidates, in the order in which they hop."""
        return (self.hop.candidate, *self.fused)


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has a fresh, warm session."""

    worker: str
    node: str = ""  # where it computes; one node where nothing is placed


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


def next_parts(load: Workload, candidate: int, progress: TrainingProgress) -> tuple[int, ...]:
    """Return the part ordinals of which any may be a candidate's next, the preferred one first."""
    order = visit_order(load.seed, load.first + candidate, progress.epoch, load.partitions)
    visited = set(progress.visited)
    left = tuple(p for p in order if p not in visited)
    if not left:
        return (MERGE,) if load.merges and MERGE not in visited else (VALIDATION,)
    if load.free or load.merges:
        return left
    return left[: load.group]


def next_part(
    load: Workload, candidate: int, progress: TrainingProgress, warm: frozenset[int] = frozenset()
) -> int:
    """Return the part ordinal that a candidate visits next; a free order prefers `warm` ones."""
    parts = next_parts(load, candidate, progress)
    return next((p for p in parts if p in warm), parts[0])


#: Steps between nothing and the longest. Within a step the lowest ordinal goes first.
LEVELS = 256


class Ranks:
    """Sets of candidates by level; a set is an integer with bit c for candidate c.

    Moving costs O(1), finding the longest of a set O(levels that hold anything).
    """

    __slots__ = ("_bits", "_sets", "filled", "scale")

    def __init__(self, longest_s: float) -> None:
        self.scale = (LEVELS - 1) / longest_s  # levels of a second
        self._sets = [0] * LEVELS
        self._bits = [1 << level for level in range(LEVELS)]
        self.filled = 0  # levels that hold anything

    @property
    def longest_s(self) -> float:
        """Return the seconds of the longest, rounded up by at most a level."""
        return self.filled.bit_length() / self.scale if self.filled else 0.0

    def move(self, bit: int, before: int, after: int) -> None:
        """Move a candidate from a level to another; a level below 0 is none."""
        if before >= 0:
            left = self._sets[before] ^ bit
            self._sets[before] = left
            if not left:
                self.filled ^= self._bits[before]
        if after >= 0:
            self._sets[after] |= bit
            self.filled |= self._bits[after]

    def top(self, among: int) -> int:
        """Return the longest candidate of a set that is not empty and is ranked."""
        filled, sets = self.filled, self._sets
        while True:
            level = filled.bit_length() - 1
            hit = sets[level] & among
            if hit:
                return (hit & -hit).bit_length() - 1
            filled ^= self._bits[level]


NOBODY = -1
#: The longest candidate keeps at least a quarter of the levels above 0.
COARSE = 1 << LEVELS // 4


class Backlog:
    """Candidates by number, with what they still have to do."""

    __slots__ = ("bits", "closed", "epoch", "goal", "left", "level", "load_s", "ranks", "weight")

    def __init__(self) -> None:
        self.bits: list[int] = []  # of each candidate: the set of it alone
        self.epoch: list[int] = []
        self.goal: list[int] = []  # epochs after which it rests
        self.closed: list[bool] = []
        self.left: list[int] = []  # parts until the goal
        self.weight: list[float] = []  # predicted seconds of a part
        self.level: list[int] = []  # in `ranks`; NOBODY for those that are at their goal or closed
        self.ranks, self.load_s = Ranks(1e-9), 0.0  # both of the others alone

    def active(self, c: int) -> bool:
        """Return whether a candidate is neither closed nor at its goal."""
        return not self.closed[c] and self.epoch[c] < self.goal[c]

    def remaining_s(self, c: int) -> float:
        """Return the predicted seconds of a candidate's work until its goal."""
        return self.left[c] * self.weight[c] if self.active(c) else 0.0

    def weigh(self, c: int, weight: float) -> None:
        """Set the predicted seconds of a candidate's part."""
        if self.level[c] >= 0:
            self.load_s += self.left[c] * (weight - self.weight[c])
        self.weight[c] = weight
        if self.level[c] >= 0:
            self.place(c)

    def lengthen(self, c: int, parts: int) -> None:
        """Add parts to what a candidate has to do, or with a negative number take them away."""
        self.left[c] += parts
        if self.level[c] >= 0:
            self.load_s += parts * self.weight[c]

    def rank(self, c: int) -> None:
        """Rank a candidate that is active, and no other."""
        active = self.active(c)
        if active and self.level[c] < 0:
            self.load_s += self.left[c] * self.weight[c]
        if active:
            self.place(c)
        elif self.level[c] >= 0:
            self.load_s -= self.left[c] * self.weight[c]
            self.ranks.move(self.bits[c], self.level[c], NOBODY)
            self.level[c] = NOBODY
            if not self.ranks.filled:
                self.load_s = 0.0  # rounding adds up
            self._refine()

    def place(self, c: int) -> None:
        """Put an active candidate on its level."""
        seconds, before = self.left[c] * self.weight[c], self.level[c]
        level = int(seconds * self.ranks.scale)
        if level >= LEVELS:
            self._rescale(2 * seconds)
            before, level = self.level[c], int(seconds * self.ranks.scale)
        self.level[c] = level
        self.ranks.move(self.bits[c], before, level)
        self._refine()

    def _refine(self) -> None:
        """Use finer levels where all candidates have come down to the lower ones."""
        if 0 < self.ranks.filled < COARSE:
            ranked = (c for c, level in enumerate(self.level) if level >= 0)
            longest_s = max(self.left[c] * self.weight[c] for c in ranked)
            if longest_s > 0:
                self._rescale(2 * longest_s)

    def _rescale(self, longest_s: float) -> None:
        self.ranks = Ranks(longest_s)
        for c, level in enumerate(self.level):
            if level >= 0:
                self.level[c] = int(self.left[c] * self.weight[c] * self.ranks.scale)
                self.ranks.move(self.bits[c], NOBODY, self.level[c])
