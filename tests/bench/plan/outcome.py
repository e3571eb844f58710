"""What was said of a run before it began, and what it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.journal import Journal

#: What tells a run from all others: workload, strategy, workers, repeat.
Key = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was said of a run before it began, and what it took.

    Attributes:
        rows, epochs: of the workload, sized to take the seconds that were asked for.
        seen: whether a warm-up had as many candidates on as many workers.
        hops: of all its workers.
        said, took: worker-seconds by phase.
        ratings: of baselines: seconds, or another number that is least where they would choose.
    """

    workload: str
    strategy: str
    workers: int
    repeat: int
    rows: int
    epochs: int
    seen: bool
    hops: int
    p10_s: float
    p50_s: float
    p90_s: float
    actual_s: float
    said: dict[str, float] = field(default_factory=dict)
    took: dict[str, float] = field(default_factory=dict)
    ratings: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What tells it from all others."""
        return self.workload, self.strategy, self.workers, self.repeat

    @property
    def cell(self) -> tuple[str, str, int]:
        """What its repeats have in common."""
        return self.key[:3]

    @property
    def error(self) -> float:
        """What was said over what it took, less one."""
        return self.p50_s / self.actual_s - 1


class Runs(Journal[Outcome]):
    """The runs of a file; those of earlier benches too."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, file.name, lambda row: Outcome(**row), lambda one: one.key)

    def of(self, workload: str) -> list[Outcome]:
        """Return a workload's runs, in the order in which they ended."""
        return [one for one in self.records() if one.workload == workload]
