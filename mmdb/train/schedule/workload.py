"""What a run has to do, how far its candidates are, and what happens to workers."""

from __future__ import annotations

from dataclasses import dataclass

from mmdb.train.values.seeds import MERGE, VALIDATION, visit_order


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
class Assignment:
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
    order = visit_order(load.seed, candidate, progress.epoch, load.partitions)
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
