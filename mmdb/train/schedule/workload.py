"""What a run has to do, how far its candidates are, and what a worker is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hop:
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
class Progress:
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
    hop: Hop
    publish: bool  # whether another worker may do the candidate's next hop
    group: tuple[tuple[str, int], ...] = ()  # (worker, part ordinal) of every rank, rank 0 first
    fused: tuple[int, ...] = ()  # other candidates that do the same hop in the same order

    @property
    def candidates(self) -> tuple[int, ...]:
        """The ordinals of all candidates, in the order in which they hop."""
        return (self.hop.candidate, *self.fused)
