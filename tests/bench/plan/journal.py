"""Runs in a file, so that a bench of hours can stop and go on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

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


class Journal:
    """The runs of a file; those of earlier benches too."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file
        self._outcomes: dict[Key, Outcome] = {}
        if file.exists():
            whole, _, rest = file.read_text().rpartition("\n")
            if rest:  # a killed process leaves half a line
                file.write_text(f"{whole}\n" if whole else "")
            for line in whole.splitlines():
                self._keep(Outcome(**json.loads(line)))

    def outcomes(self, workload: str | None = None) -> list[Outcome]:
        """Return runs, in the order in which they ended."""
        return [one for one in self._outcomes.values() if workload in (None, one.workload)]

    def has(self, key: Key) -> bool:
        """Whether a run was done."""
        return key in self._outcomes

    def add(self, outcome: Outcome) -> None:
        """Keep a run, on the disk when this returns."""
        with self._file.open("a") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")
        self._keep(outcome)

    def _keep(self, outcome: Outcome) -> None:
        self._outcomes[outcome.key] = outcome
